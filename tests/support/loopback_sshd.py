"""This machine as a host of its own: an sshd on the loopback, without a namespace, for what has to be the machine's."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.hosts import sshd
from support.waiting import wait_until

_CONFIGURATION = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes no
PrintMotd no
AllowTcpForwarding yes
SetEnv {variables}
"""


def program() -> str | None:
    """Where sshd is, if it is installed."""
    return shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def loopback_host(folder: Path, variables: Mapping[str, str], **settings: Any) -> Iterator[dict[str, Any]]:
    """The settings of a pool with this machine alone; sessions have these variables."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    host_key, client_key = (sshd.make_key(folder / name, name) for name in ("host_key", "client_key"))
    (folder / "authorized_keys").write_text(sshd.public_half(client_key) + "\n")
    told = " ".join(f"{name}={value}" for name, value in variables.items())
    (folder / "sshd_config").write_text(_CONFIGURATION.format(port=port, folder=folder, variables=told))
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    found = program()
    assert found is not None, "sshd is not installed"
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen([found, "-D", "-e", "-f", folder / "sshd_config"], stderr=log)
    try:
        wait_until(lambda: _listens(port), description="sshd listens")
        host = {"name": "here", "address": "127.0.0.1", "port": port, "host_keys": [sshd.public_half(host_key)]}
        host |= {"base": str(folder / "base"), "authorized_keys": "", "cpu_slots": 2, **settings}
        yield {"hosts": [host], "user": "root", "identity_file": str(client_key), "connect_timeout_s": 5}
    finally:
        process.terminate()
        process.wait(10)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
