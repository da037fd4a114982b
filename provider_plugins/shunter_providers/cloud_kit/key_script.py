"""A start script that brings keys and nothing else, for vendors whose scripts are too short for an agent.

Keys stand in it in base64, so that no shell reads any of them.
"""

from __future__ import annotations

import base64

from shunter_providers.contract import Fault, Intent, ProviderError, Scope


def key_script(intent: Intent, *, home: str = "/root", owner: str = "root", largest_bytes: int) -> str:
    """For `sh`, as root: the public key for a user, and the host key, from which sshd is started anew.

    Args:
        home: that user's home.
        owner: that user.

    Raises:
        ProviderError: `INVALID`: longer than the vendor takes.
    """
    lines = ["umask 077"]
    if intent.public_key is not None:
        folder = f"{home}/.ssh"
        lines.append(
            f"mkdir -p {folder}; {_write(intent.public_key.strip() + chr(10), f'>> {folder}/authorized_keys')}"
        )
        lines.append(f"chown -R {owner}: {folder}")
    if intent.host_key is not None:
        lines.append("rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub")
        lines.append(_write(intent.host_key, "> /etc/ssh/ssh_host_ed25519_key"))
        lines.append("systemctl restart ssh || service ssh restart || pkill -HUP -o sshd || true")
    script = "\n".join(lines)
    if len(script) > largest_bytes:
        detail = f"the keys make a start script of {len(script)} bytes, at most {largest_bytes} are taken"
        raise ProviderError(Fault.INVALID, detail, scope=Scope.PROVIDER)
    return script


def _write(text: str, where: str) -> str:
    return f"echo {base64.b64encode(text.encode()).decode()} | base64 -d {where}"
