"""A shell on a node: a key for this one shell, a configuration for `ssh` that trusts the node's own key only."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from shunter.errors import ShunterError

NODE: Final = "shunter-node"
_WORD: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:%$-]{0,253}")
_KEY: Final = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/=]+")


@contextmanager
def key_pair() -> Iterator[tuple[Path, str]]:
    """A private key in a folder that goes when the shell does, and its public half.

    Raises:
        ShunterError: OpenSSH's client is not installed here.
    """
    if shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        raise ShunterError("`ssh` and `ssh-keygen` are needed", hint="install OpenSSH's client")
    with TemporaryDirectory(prefix="shunter-ssh-") as folder:
        private = Path(folder) / "key"
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(private)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        yield private, " ".join(private.with_suffix(".pub").read_text().split()[:2])


def ssh_command(where: Mapping[str, Any], private: Path, wanted: Sequence[str], *, terminal: bool) -> list[str]:
    """The command that opens the shell, or runs `wanted` in the job's folder. Writes its configuration beside the key.

    Raises:
        ShunterError: the service's answer holds what is no address, user or key.
    """
    configuration = private.with_name("config")
    configuration.write_text("\n".join(_hosts(where, private.parent, private, NODE)) + "\n")
    return ["ssh", "-F", str(configuration), "-t" if terminal else "-T", NODE, _remote(where, wanted)]


def _remote(where: Mapping[str, Any], wanted: Sequence[str]) -> str:
    folder = str(where["folder"])
    begin = " || ".join(
        f"cd {shlex.quote(place)} 2>/dev/null" for place in (f"{folder}/source", f"{folder}/work", folder)
    )
    then = shlex.join(wanted) if wanted else '"${SHELL:-/bin/sh}" -l'
    return f"{{ {begin}; }}; exec {then}"


def _hosts(where: Mapping[str, Any], folder: Path, private: Path | None, name: str) -> Iterator[str]:
    """The machine, and the one through which it is reached; each shows a key that is known, or is refused."""
    known = folder / f"known-{name}"
    known.write_text("".join(f"{name} {_checked(_KEY, key)}\n" for key in where["host_keys"]))
    yield f"Host {name}"
    yield f"  HostName {_checked(_WORD, where['host'])}"
    yield f"  Port {int(where['port'])}"
    yield f"  User {_checked(_WORD, where['user'])}"
    yield f"  HostKeyAlias {name}"
    yield f'  UserKnownHostsFile "{known}"'
    yield "  GlobalKnownHostsFile /dev/null"
    yield "  StrictHostKeyChecking yes"
    yield "  ForwardAgent no"
    if private is not None:
        yield f'  IdentityFile "{private}"'
        yield "  IdentitiesOnly yes"
        yield "  IdentityAgent none"
    if where.get("via"):
        yield f"  ProxyJump {name}-via"
        yield from _hosts(where["via"], folder, None, f"{name}-via")


def _checked(form: re.Pattern[str], text: Any) -> str:
    if not isinstance(text, str) or not form.fullmatch(text):
        raise ShunterError(f"the service names {str(text)[:80]!r}, which cannot be passed to ssh")
    return text
