"""A node's folder: how it comes to be, what it says of the node, and how it goes.

    nodes/<token>/
        node.json      ours: which instance made it, and the launch command
        …              the launch's own files
        agent.json     the agent's: pid, start time and boot of its process, written once it lives
        released       ours: somebody asked for the end; nothing starts here any more

The folder appears by rename only when it is whole, so that a crash leaves either no node or one that can be started.
Everything here blocks for a moment at most.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from shunter_providers.contract import Fault, Intent, NodeCondition, NodeView, ProviderError
from shunter_providers.machine import processes
from shunter_providers.machine.processes import ProcessIdentity

MARK = "LOCAL_SHUNTER_NODE"
"""The variable that every process of a node inherits; its value is `NodeFolder.mark`. (The agent hands on no variable
that begins with `SHUNTER_`.)"""

_TOKEN = re.compile(r"[a-z][a-z0-9-]{0,39}")
_START_GRACE_S = 3.0
_STALE_S = 3600.0


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """One node of this machine."""

    path: Path

    @property
    def token(self) -> str:
        """The node's token, which is its handle too."""
        return self.path.name

    @property
    def mark(self) -> str:
        """What tells the processes of this node from all others of the machine.

        Its token, which is unique in the world; for a simulated node, since each such cloud counts from 1, its folder.
        """
        return self.token if self.token.startswith("shn-") else str(self.path.absolute())

    @property
    def environment_mark(self) -> bytes:
        """What the environment of each of its processes holds."""
        return f"{MARK}={self.mark}".encode()

    def is_released(self) -> bool:
        """Whether somebody asked for its end."""
        return (self.path / "released").exists()

    def release(self) -> None:
        """Note that nothing shall start here any more."""
        with suppress(FileNotFoundError):
            (self.path / "released").touch(mode=0o600)

    def instance(self) -> str | None:
        """The provider instance that made it; None: not readable as one of ours."""
        made = _read_json(self.path / "node.json")
        return None if made is None else str(made.get("instance"))

    def agent(self) -> ProcessIdentity | None:
        """The agent's process, dead or alive, once it has said who it is."""
        said = _read_json(self.path / "agent.json")
        if said is None:
            return None
        try:
            return ProcessIdentity(int(said["pid"]), int(said["start_time"]), str(said["boot_id"]))
        except (KeyError, TypeError, ValueError):
            return None

    def remains(self) -> list[ProcessIdentity]:
        """Every living process of the node: the agent, and whatever carries the node's mark."""
        agent = self.agent()
        left = processes.marked(self.environment_mark)
        return left if agent is None or agent in left or not processes.is_alive(agent) else [agent, *left]

    def view(self) -> NodeView:
        """The node as it is now."""
        if not self.path.is_dir():
            return self._seen(NodeCondition.GONE, "no such node")
        agent = self.agent()
        if agent is not None:
            alive = processes.is_alive(agent)
            return self._seen(*((NodeCondition.RUNNING, "") if alive else (NodeCondition.GONE, "its agent has ended")))
        if not self.is_released() and (self._age_s() < _START_GRACE_S or processes.marked(self.environment_mark)):
            return self._seen(NodeCondition.PENDING, "its agent is being started")
        return self._seen(NodeCondition.GONE, "its agent never came up")

    def _seen(self, condition: NodeCondition, reason: str) -> NodeView:
        return NodeView(
            handle=self.token,
            token=self.token,
            condition=condition,
            reason=reason,
            addresses={"private": "127.0.0.1", "interface": "lo"},
            billed_usd_per_hour=0.0,
        )

    def _age_s(self) -> float:
        try:
            return time.time() - self.path.stat().st_mtime
        except FileNotFoundError:
            return float("inf")


def find(root: Path, token: str) -> NodeFolder:
    """The folder of this token, whether or not it exists.

    Raises:
        ProviderError: `INVALID`: this is no token (it would become a path).
    """
    if not _TOKEN.fullmatch(token):
        raise ProviderError(Fault.INVALID, f"{token!r} is no node token")
    return NodeFolder(root / token)


def owned(root: Path, instance: str, deployment: str) -> Iterator[NodeFolder]:
    """Folders that this instance made for this deployment."""
    for path in root.glob(f"shn-{deployment}-*"):
        folder = NodeFolder(path)
        if folder.instance() == instance:
            yield folder


def make(root: Path, instance: str, intent: Intent) -> NodeFolder:
    """The folder of this intent, with the launch's files in it; one that is there already stays as it is."""
    folder = find(root, intent.token)
    if folder.path.is_dir():
        return folder
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = root / f".new-{intent.token}-{token_hex(4)}"
    unfinished.mkdir(mode=0o700)
    try:
        made = {"instance": instance, "argv": list(intent.launch.argv), "tags": dict(intent.tags), "rank": intent.rank}
        _write(unfinished, "node.json", json.dumps(made).encode())
        for name, content in intent.launch.files.items():
            _write(unfinished, name, content)
        with suppress(FileExistsError):  # another worker made it at the same moment: the same intent, the same files
            _rename_new(unfinished, folder.path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def tidy(root: Path, keep_s: float) -> None:
    """Remove the folders of nodes that have been dead for `keep_s`, and half-made ones that nobody finishes."""
    for path in root.glob(".new-*"):
        if time.time() - path.stat().st_mtime > _STALE_S:
            shutil.rmtree(path, ignore_errors=True)
    for path in root.glob("shn-*"):
        folder = NodeFolder(path)
        if _last_change(path) < time.time() - keep_s and not folder.remains():
            shutil.rmtree(path, ignore_errors=True)


def _rename_new(source: Path, target: Path) -> None:
    """Rename a folder; unlike `os.rename` alone, an existing empty target is refused too."""
    if target.exists():
        raise FileExistsError(target)
    try:
        os.rename(source, target)
    except OSError as exc:
        if target.is_dir():
            raise FileExistsError(target) from exc
        raise


def _write(folder: Path, name: str, content: bytes) -> None:
    path = folder / name
    if path.parent != folder:
        raise ProviderError(Fault.INVALID, f"the launch file {name!r} would lie outside its folder")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        read = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return read if isinstance(read, dict) else None


def _last_change(folder: Path) -> float:
    times = [folder.stat().st_mtime, *(entry.stat().st_mtime for entry in os.scandir(folder))]
    return max(times)
