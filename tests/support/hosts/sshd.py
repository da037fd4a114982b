"""Keys, and the configuration of a host's sshd."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

_CONFIGURATION = """\
Port 22
ListenAddress {address}
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile /run/sshd.pid
AuthorizedKeysFile .ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
MaxStartups 100
MaxSessions 100
AllowTcpForwarding yes
Subsystem sftp internal-sftp
"""
HOST_KEY = "ssh_host_ed25519_key"
"""Where sshd looks by itself."""


def make_key(path: Path, comment: str) -> Path:
    """An ed25519 key pair: `path` and `path.pub`."""
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return path


def public_half(path: Path) -> str:
    """`ssh-ed25519 AAAA…` without the comment."""
    return " ".join(path.with_name(f"{path.name}.pub").read_text().split()[:2])


def write_configuration(folder: Path, address: str, environment: Mapping[str, str] | None = None) -> None:
    """`sshd_config` beside the host key in the host's `/etc/ssh`; `environment` is that of sessions."""
    told = " ".join(f"{name}={value}" for name, value in (environment or {}).items())
    lines = f"SetEnv {told}\n" if told else ""
    (folder / "sshd_config").write_text(_CONFIGURATION.format(address=address) + lines)
