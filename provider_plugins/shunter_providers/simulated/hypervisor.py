"""Runs the agents of a simulated cloud's nodes: starts those that have booted, starts dead ones again as a node's own
service manager would, warns those that are about to be taken away, and ends those that are gone.

There is no process of its own: every call to the cloud lets it look at what is due, as a scanner calls every second or
two. One process does the work at a time.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shunter_providers.contract import Intent, Offer, Price, ProviderError
from shunter_providers.machine import folders, processes, running
from shunter_providers.machine.folders import NodeFolder
from shunter_providers.simulated.books import Books
from shunter_providers.simulated.entries import Entry
from shunter_providers.simulated.making import unpack

_AT_ONCE = 16
"""Nodes that are started or ended at the same time."""
_NO_OFFER = Offer("", "", "", Price(billed=False))


class Hypervisor:
    """The agents of one cloud, below `root`."""

    def __init__(self, books: Books, root: Path, notice_s: float) -> None:
        self._books = books
        self._root = root
        self._notice_s = notice_s

    async def tend(self, at: float) -> None:
        """Do what is due; returns at once when another process is at it."""
        with self._alone() as alone:
            if not alone:
                return
            room = asyncio.Semaphore(_AT_ONCE)
            due = await asyncio.to_thread(self._unfinished)
            results = await asyncio.gather(*(self._tend_in(room, entry, at) for entry in due), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def folder(self, handle: str) -> NodeFolder:
        """Where a node's files are."""
        return folders.find(self._root, handle)

    async def _tend_in(self, room: asyncio.Semaphore, entry: Entry, at: float) -> None:
        """A node takes seconds to start or to end; others are not made to wait for it."""
        async with room:
            await self._tend_one(entry, at)

    async def _tend_one(self, entry: Entry, at: float) -> None:
        folder = self.folder(entry.handle)
        agent = folder.agent()
        lives = agent is not None and processes.is_alive(agent)
        if not entry.exists(at):
            if await asyncio.to_thread(running.end, folder):
                await asyncio.to_thread(self._note, entry, "cleared")
        elif at >= entry.preempted_at - self._notice_s and entry.started and not entry.warned:
            if agent is not None:
                processes.send(agent, signal.SIGTERM)
            await asyncio.to_thread(self._note, entry, "warned")
        elif at >= entry.boots_at and not entry.fails and not lives and not entry.warned:
            await self._start(entry)

    async def _start(self, entry: Entry) -> None:
        launch = unpack(entry.launch)
        intent = Intent(entry.handle, {"token": entry.token}, _NO_OFFER, launch, rank=0, gang_size=1)
        folder = await asyncio.to_thread(folders.make, self._root, entry.account, intent)
        try:
            await running.start(folder, launch)
        except ProviderError:
            return  # it is tried again at the next look; a node that never comes up is the caller's to notice
        await asyncio.to_thread(self._note, entry, "started")

    def _unfinished(self) -> list[Entry]:
        with self._books.writing() as page:
            return page.unfinished()

    def _note(self, entry: Entry, what: str) -> None:
        with self._books.writing() as page:
            page.change(entry.handle, **{what: True})

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._root / ".hypervisor", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)
