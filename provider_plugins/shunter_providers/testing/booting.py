"""Lets the nodes of a fake cloud do on this machine what they are told when they boot: real agents, real training.

    boots = Boots(tmp_path)
    boots.start(machine.id, from_cloud_init(order["user_data"]))
    ...
    boots.end(machine.id)

A node's processes are known by a variable that they inherit, so that an end leaves none of them.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from shunter_providers.cloud_kit.boot import FOLDER
from shunter_providers.machine import processes

MARK: Final = "FAKE_CLOUD_NODE"
"""The agent hands on no variable that begins with `SHUNTER_`."""


class Boot(NamedTuple):
    """What a node does first."""

    script: str
    """For `sh`; what it says of `/opt/shunter` is meant of the node's own folder."""
    files: Mapping[str, bytes]
    environment: Mapping[str, str]
    user: str = "root"
    """Who may be logged in as, with any of `authorized_keys`."""
    authorized_keys: Sequence[str] = ()
    host_key: str = ""
    """What sshd is given before it starts, in OpenSSH's private form; empty: the image's own."""
    starts_sshd: bool = True
    """False: nothing runs but what `script` starts, as in containers."""
    gpus: Sequence[str] = ()
    """What NVIDIA's tool calls the GPUs."""


class Runner(Protocol):
    """Whatever lets nodes do what they are told."""

    def start(self, id_: str, boot: Boot) -> tuple[str, int]:
        """Boot a node, and return at once: the address and port of its sshd, if it has one."""
        ...

    def end(self, id_: str) -> None:
        """Nothing of the node is left when this returns."""
        ...


NOTHING: Final = Boot("", {}, {})


class Boots:
    """The nodes of one cloud, a folder each."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._first: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, id_: str, boot: Boot) -> tuple[str, int]:
        """Boot a node; returns at once. No sshd is started: whoever needs one needs a machine for it."""
        folder = self._root / id_
        folder.mkdir(parents=True)
        for name, content in boot.files.items():
            (folder / name).write_bytes(content)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SHUNTER_", "CELERY"))}
        path = f"{Path(sys.executable).parent}:{kept.get('PATH', '')}"  # the node's python3 is ours
        with (folder / "boot.log").open("wb") as log:
            self._first[id_] = subprocess.Popen(
                ["sh", "-c", boot.script.replace(FOLDER, str(folder))],
                cwd=folder,
                env={**kept, **boot.environment, "PATH": path, MARK: id_},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return "127.0.0.1", 22

    def end(self, id_: str) -> None:
        """Kill everything of the node."""
        while left := processes.marked(f"{MARK}={id_}".encode()):
            for process in left:
                processes.send(process, signal.SIGKILL)
            time.sleep(0.01)
        if id_ in self._first:
            self._first.pop(id_).wait()

    def end_all(self) -> None:
        """Kill everything of every node."""
        for folder in self._root.glob("*"):
            self.end(folder.name)


def from_cloud_init(user_data: str, environment: Mapping[str, str] | None = None, *, user: str = "root") -> Boot:
    """What cloud-init makes of user data that is a cloud-config in JSON, or nothing. `user`: the image's first one."""
    if not user_data:
        return NOTHING._replace(user=user)
    head, _, rest = user_data.partition("\n")
    assert head == "#cloud-config", f"user data begins with {head!r}"
    config = json.loads(rest)
    files = {Path(one["path"]).name: base64.b64decode(one["content"]) for one in config.get("write_files", ())}
    commands = [command[2] for command in config.get("runcmd", ()) if command[:2] == ["sh", "-c"]]
    return Boot(
        "\n".join(commands),
        files,
        environment or {},
        user=user,
        authorized_keys=config.get("ssh_authorized_keys", ()),
        host_key=config.get("ssh_keys", {}).get("ed25519_private", ""),
    )


def from_container(environment: Mapping[str, str]) -> Boot:
    """What a container does whose program is in its variable `SHUNTER_BOOT`."""
    return Boot(environment["SHUNTER_BOOT"], {}, environment, starts_sshd=False)
