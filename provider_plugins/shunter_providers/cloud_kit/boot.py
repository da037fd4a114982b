"""What a node is told when it is made: keys, and the command that starts its agent, in the vendor's ways.

Nothing here passes a user's string through a shell: cloud-init takes JSON (which is YAML), containers take variables.
The SSH host key is ours, so that nobody has to trust a node on first use.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping
from typing import Any, Final

from shunter_providers.contract import HANDLE_VARIABLE, Fault, Intent, Launch, ProviderError, Scope

FOLDER: Final = "/opt/shunter"
_CHUNK: Final = 96 * 1024
"""Linux takes no variable longer than 128 KiB."""
_PREFIX: Final = "SHUNTER_FILE_"
_HOST_KEY_TYPES: Final = {"ssh-ed25519": "ed25519", "ecdsa-sha2": "ecdsa", "ssh-rsa": "rsa"}


def cloud_init(intent: Intent, *, largest_bytes: int | None = None) -> str | None:
    """User data for cloud-init: the intent's own where it has some, else keys and launch; None: nothing to tell.

    Raises:
        ProviderError: `INVALID`: longer than the vendor takes.
    """
    text = intent.user_data if intent.user_data is not None else _cloud_config(intent)
    if text is not None and largest_bytes is not None and len(text.encode()) > largest_bytes:
        detail = f"user data of {len(text.encode())} bytes, at most {largest_bytes} are taken"
        raise ProviderError(Fault.INVALID, detail, scope=Scope.PROVIDER)
    return text


def container_environment(intent: Intent) -> dict[str, str]:
    """Variables of a container that `container_script` reads: keys, and the launch's files in pieces."""
    found = {**intent.launch.environment}
    if intent.public_key:
        found["PUBLIC_KEY"] = intent.public_key
    if intent.host_key:
        found["SHUNTER_HOST_KEY"] = intent.host_key
    for number, (name, content) in enumerate(sorted(intent.launch.files.items())):
        encoded = base64.b64encode(content).decode()
        pieces = [encoded[at : at + _CHUNK] for at in range(0, len(encoded), _CHUNK)] or [""]
        found[f"{_PREFIX}{number}"] = name
        found |= {f"{_PREFIX}{number}_{index}": piece for index, piece in enumerate(pieces)}
    return found


def container_script(intent: Intent, *, then: str = "", handle_from: str = "") -> str:
    """A POSIX shell script without any user's string: host key, files, agent, then the image's own program.

    Args:
        then: what goes on in the foreground; empty: the script sleeps, for a container that ends ends its node.
        handle_from: the variable in which the provider tells a container its id.
    """
    lines = [
        f"mkdir -p {FOLDER} && cd {FOLDER} || exit 1",
        "umask 077",
        'if [ -n "${SHUNTER_HOST_KEY:-}" ]; then mkdir -p /etc/ssh; '
        "rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub; "
        "printf '%s\\n' \"$SHUNTER_HOST_KEY\" > /etc/ssh/ssh_host_ed25519_key; unset SHUNTER_HOST_KEY; fi",
    ]
    if handle_from:
        lines.append(f'export {HANDLE_VARIABLE}="${{{handle_from}:-}}"')
    if intent.launch.files:
        lines += [_UNPACK, f"({_start_command(intent.launch)}) > start.log 2>&1 &"]
    lines.append(f"exec {then}" if then else "exec sleep infinity")
    return "\n".join(lines)


_UNPACK: Final = f"""\
n=0
while eval "name=\\${{{_PREFIX}${{n}}:-}}" && [ -n "$name" ]; do
  i=0; : > part.b64
  while eval "[ -n \\"\\${{{_PREFIX}${{n}}_${{i}}:-}}\\" ]"; do
    eval "printf %s \\"\\${{{_PREFIX}${{n}}_${{i}}}}\\"" >> part.b64
    eval "unset {_PREFIX}${{n}}_${{i}}"; i=$((i+1))
  done
  base64 -d part.b64 > "$name"; eval "unset {_PREFIX}${{n}}"; n=$((n+1))
done
rm -f part.b64"""


def _cloud_config(intent: Intent) -> str | None:
    config: dict[str, Any] = {}
    if intent.public_key:
        config["ssh_authorized_keys"] = [intent.public_key]
    if intent.host_key:
        config["ssh_deletekeys"] = True
        config["ssh_keys"] = {f"{_host_key_type(intent.host_key)}_private": intent.host_key}
    if intent.launch.files:
        config["write_files"] = [_file(name, content) for name, content in sorted(intent.launch.files.items())]
        command = f"cd {FOLDER} && {_environment(intent.launch.environment)}{_start_command(intent.launch)}"
        config["runcmd"] = [["sh", "-c", command]]
    if intent.alone_s is not None and intent.spared_boot_id:
        config.setdefault("runcmd", []).append(["sh", "-c", _end_alone(intent.alone_s, intent.spared_boot_id)])
    return f"#cloud-config\n{json.dumps(config, sort_keys=True)}\n" if config else None


def _end_alone(after_s: float, spared_boot_id: str) -> str:
    """Whoever made the machine may be gone before the agent is on it, and then nobody else would end it."""
    spared = f'[ "$(cat /proc/sys/kernel/random/boot_id)" = {shlex.quote(spared_boot_id)} ]'
    # The brackets keep the pattern from finding this very command.
    return f"{spared} || {{ sleep {after_s:.0f}; grep -qs 'agent[.]pyz' /proc/[0-9]*/cmdline || poweroff; }} &"


def _file(name: str, content: bytes) -> dict[str, str]:
    encoded = base64.b64encode(content).decode()
    return {"path": f"{FOLDER}/{name}", "encoding": "b64", "content": encoded, "permissions": "0600"}


def _start_command(launch: Launch) -> str:
    return shlex.join("python3" if part == "{python}" else part for part in launch.argv)


def _environment(variables: Mapping[str, str]) -> str:
    return "".join(f"{name}={shlex.quote(value)} " for name, value in sorted(variables.items()))


def _host_key_type(private_key: str) -> str:
    """By what stands in the key; ours are ed25519."""
    body = "".join(private_key.splitlines()[1:-1])
    try:
        decoded = base64.b64decode(body, validate=False)
    except ValueError:
        return "ed25519"
    return next((kind for mark, kind in _HOST_KEY_TYPES.items() if mark.encode() in decoded), "ed25519")
