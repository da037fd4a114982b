"""`python -m shunter_providers.simulated.fleet FOLDER CLOUD`: play the agents of this cloud, detached.

The plugin starts it. Returns at once; the process that plays is nobody's child.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import importlib
import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from shunter_providers.simulated.books import Books
from shunter_providers.simulated.clock import CloudClock
from shunter_providers.simulated.fleet import keeper
from shunter_providers.simulated.fleet.memory import Memory
from shunter_providers.simulated.fleet.player import Player
from shunter_providers.simulated.settings import FleetSettings


def main(arguments: Sequence[str]) -> int:
    """Leave a process that plays; 0 also when another one plays already."""
    if os.fork():
        return 0
    os.setsid()
    files = keeper.Files(Path(arguments[0]), arguments[1])
    descriptor = os.open(files.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    told = json.loads(files.settings.read_text())
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # each agent's ear is a connection
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)  # thousands of agents live long, and hold no cycles
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_play(files, FleetSettings(**told["fleet"]), float(told["notice_s"])))
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's, where it is there (the service brings it): a third of a played agent's time is the loop's."""
    try:
        return importlib.import_module("uvloop").new_event_loop  # type: ignore[no-any-return]
    except ImportError:
        return asyncio.new_event_loop


async def _play(files: keeper.Files, manner: FleetSettings, notice_s: float) -> None:
    memory = Memory(files.memory)
    try:
        now = CloudClock(files.folder, files.cloud).now
        await Player(Books(files.books), memory, manner, notice_s=notice_s, now=now).play()
    finally:
        memory.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
