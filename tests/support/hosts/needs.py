"""What the machine needs to hold hosts."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

_PROGRAMS = {
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "nft": "nftables",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
}
"""By program, the Debian package that brings it."""

SBIN = "/usr/sbin:/sbin"


def skip_without_hosts() -> None:
    """Skip the calling test where hosts cannot be made, and say why."""
    why = why_no_hosts()
    if why:
        pytest.skip(why)


def find_program(name: str) -> str:
    """Its path; administrators' folders count too.

    Raises:
        FileNotFoundError: it is not installed.
    """
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}")
    if found is None:
        raise FileNotFoundError(f"{name} is not installed (Debian: {_PROGRAMS.get(name, name)})")
    return found


def why_no_hosts() -> str:
    """Why hosts cannot be made here; empty: they can."""
    if os.geteuid() != 0:
        return "hosts in namespaces take root"
    lacking = [package for program, package in _PROGRAMS.items() if not _is_there(program)]
    if lacking:
        return f"hosts in namespaces need the Debian packages {', '.join(sorted(set(lacking)))}"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if tried.returncode == 0 else f"this kernel gives no namespaces: {tried.stderr.strip()}"


def _is_there(program: str) -> bool:
    try:
        find_program(program)
    except FileNotFoundError:
        return False
    return True
