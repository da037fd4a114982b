"""Files that nodes need, by their content: what a host lacks goes there once, from the service or from another node.

Nodes of one job pass a file on: the first gets it over the uplink, and then each that has it serves another at a time,
so that n nodes cost one upload and log2(n) rounds between themselves. A node that cannot be reached from the others is
served over the uplink.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from shunter_providers.ssh.calling import CallFailed, HostSide

LEAST_BYTES: Final = 1 << 20
"""Smaller files are not worth a server."""
FETCH_STALLS_S: Final = 10.0
_SLOWEST_BYTES_PER_S: Final = 200_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Blob:
    """A file, and how to read it here from an offset on."""

    digest: str
    size: int
    read: Callable[[int], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class Seat:
    """A node that needs files."""

    node_id: str
    side: HostSide
    address: str | None
    """Where the other nodes reach it; None: nowhere."""


@dataclass(slots=True)
class _Spread:
    """How far one file is among the nodes of one job."""

    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    idle: list[Seat] = field(default_factory=list)
    """Have it, can be reached by others, and serve nobody at the moment."""
    serving: list[Seat] = field(default_factory=list)
    """Have it, and serve another node at this moment."""
    uploading: int = 0

    def comes_soon(self, tried: set[str]) -> bool:
        """Whether a node that was not tried yet will have it, or will be idle, after a while."""
        return self.uploading > 0 or any(seat.node_id not in tried for seat in self.serving)

    def add(self, seat: Seat, blob: Blob) -> None:
        """This node has it, and may serve others."""
        if seat.address is not None and blob.size >= LEAST_BYTES and seat not in self.idle:
            self.idle.append(seat)


class Seeder:
    """For all jobs of one process."""

    def __init__(self) -> None:
        self._spreads: dict[tuple[str, str], _Spread] = {}
        self.uploaded_bytes = 0
        """Over the uplink, in this process's life."""
        self.passed_bytes = 0
        """Between nodes."""

    async def provide(self, job_id: str, seat: Seat, blobs: list[Blob]) -> None:
        """See that the node's host has these files.

        Raises:
            CallFailed: it cannot be done over this connection (any more).
        """
        found = await seat.side.call("have", digests=[blob.digest for blob in blobs])
        for blob in blobs:
            spread = self._spreads.setdefault((job_id, blob.digest), _Spread())
            if blob.digest not in found["present"]:
                await self._bring(spread, seat, blob, int(found["partial"].get(blob.digest, 0)))
            async with spread.changed:
                spread.add(seat, blob)
                spread.changed.notify_all()

    def keep_only(self, job_ids: Collection[str]) -> None:
        """Other jobs need nothing any more."""
        self._spreads = {key: spread for key, spread in self._spreads.items() if key[0] in job_ids}

    def leave(self, node_id: str) -> None:
        """This node serves nobody any more: its connection was lost."""
        for spread in self._spreads.values():
            spread.idle = [seat for seat in spread.idle if seat.node_id != node_id]

    async def _bring(self, spread: _Spread, seat: Seat, blob: Blob, offset: int) -> None:
        tried: set[str] = set()
        while True:
            async with spread.changed:
                await spread.changed.wait_for(
                    lambda: _choose(spread, tried) is not None or not spread.comes_soon(tried)
                )
                peer = _choose(spread, tried)
                if peer is None:
                    spread.uploading += 1
                else:
                    spread.idle.remove(peer)
                    spread.serving.append(peer)
            if peer is None:
                break
            tried.add(peer.node_id)
            if await self._pass_on(spread, peer, seat, blob):
                return
        done = False
        try:
            await self._upload(seat, blob, offset)
            done = True
        finally:
            async with spread.changed:
                spread.uploading -= 1
                if done:  # before anybody else finds that nobody has it
                    spread.add(seat, blob)
                spread.changed.notify_all()

    async def _upload(self, seat: Seat, blob: Blob, offset: int) -> None:
        within_s = 60.0 + blob.size / _SLOWEST_BYTES_PER_S
        body = self._read(blob, offset)
        await seat.side.send("put", body, within_s, digest=blob.digest, size=blob.size, offset=offset)

    async def _read(self, blob: Blob, offset: int) -> AsyncIterator[bytes]:
        pieces = blob.read(offset)
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            self.uploaded_bytes += len(piece)
            yield piece

    async def _pass_on(self, spread: _Spread, peer: Seat, seat: Seat, blob: Blob) -> bool:
        """Have the peer serve it and the node fetch it; False: that did not work, for whatever reason of theirs."""
        secret, served = secrets.token_urlsafe(24), False
        try:
            async with peer.side.hold("serve", digest=blob.digest, secret=secret, address=peer.address) as said:
                served = True
                url = f"http://{peer.address}:{said['port']}/{secret}"
                within_s = 60.0 + blob.size / _SLOWEST_BYTES_PER_S
                await seat.side.call("fetch", within_s, digest=blob.digest, url=url, timeout_s=FETCH_STALLS_S)
        except (CallFailed, OSError) as exc:
            if isinstance(exc, CallFailed) and exc.kind == "lost" and served and not seat.side.reached.is_open:
                raise
            _log.info("%s did not get %s from %s: %s", seat.node_id, blob.digest[:12], peer.node_id, exc)
            return False
        finally:
            async with spread.changed:
                spread.serving.remove(peer)
                if peer.side.reached.is_open:
                    spread.add(peer, blob)
                spread.changed.notify_all()
        self.passed_bytes += blob.size
        return True


def _choose(spread: _Spread, tried: set[str]) -> Seat | None:
    """A node that has it and serves nobody; one that did not work for this node is not asked again."""
    return next((seat for seat in spread.idle if seat.node_id not in tried and seat.side.reached.is_open), None)
