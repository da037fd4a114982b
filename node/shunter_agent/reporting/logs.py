"""Logs go up as chunks: bytes of one stream of one rank, cut at line ends, the object first and its record after."""

from __future__ import annotations

import io
import os
import re
import time
from functools import partial
from typing import Any, NamedTuple

from shunter_agent.exchange.link import Body
from shunter_agent.exchange.objects import Objects, Refused
from shunter_agent.shared import Place, Shared
from shunter_agent.trace import trace

_RANK_FILE = re.compile(r"rank-(\d+)\.(stdout|stderr)")
SETUP_RANK = -1
WATCHED_S = 0.5


class Chunk(NamedTuple):
    """Bytes `[offset, offset + len(data))` of a stream."""

    offset: int
    data: bytes
    last_at: float


class _Stream:
    def __init__(self, rank: int, name: str, path: str, offset: int) -> None:
        self.rank = rank
        self.name = name
        self.path = path
        self.offset = offset
        self.busy = False
        self.waiting_since: float | None = None
        """When the oldest byte that is not uploaded was first seen (monotonic)."""
        self.seen_at: float | None = None
        """The same by the wall clock, which may be set meanwhile."""

    def size(self) -> int:
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0


class LogShipper:
    """All streams of one generation."""

    def __init__(self, shared: Shared, place: Place) -> None:
        self._shared = shared
        self._place = place
        self._folder = shared.layout.logs(place.generation)
        self._streams: dict[str, _Stream] = {}
        self._watched = False

    def step(self, everything: bool, watched: bool = False) -> None:
        """Queue what is due: a full chunk, bytes that have waited long, or everything there is.

        `watched`: somebody follows, so the service hears of the chunks soon.
        """
        self._watched = watched
        self._discover()
        now, tuning = time.monotonic(), self._shared.tuning
        # What arrives first is shown first: the set-up before the ranks.
        for stream in sorted(self._streams.values(), key=lambda stream: (stream.rank, stream.name)):
            waiting = stream.size() - stream.offset
            if stream.busy or waiting <= 0:
                continue
            if stream.waiting_since is None:
                stream.waiting_since, stream.seen_at = now, time.time()
            due = waiting >= tuning.log_chunk_bytes or now - stream.waiting_since >= tuning.log_s
            if everything or due:
                stream.busy = True
                work = partial(_upload, stream.path, stream.offset, tuning.log_chunk_bytes, self._key(stream))
                self._shared.log_uploader.submit(work, partial(self._uploaded, stream))

    @property
    def idle(self) -> bool:
        """Whether every byte that was written is uploaded and recorded."""
        self._discover()
        return all(not stream.busy and stream.size() <= stream.offset for stream in self._streams.values())

    def _discover(self) -> None:
        try:
            names = os.listdir(self._folder)
        except OSError:
            return
        for name in names:
            if name in self._streams:
                continue
            match = _RANK_FILE.fullmatch(name)
            if match is None and name != "setup":
                continue
            rank, stream = (int(match[1]), match[2]) if match else (SETUP_RANK, "setup")
            offset = self._shared.state.of(self._place.generation).logs.get(f"{rank}-{stream}", 0)
            self._streams[name] = _Stream(rank, stream, os.path.join(self._folder, name), offset)

    def _key(self, stream: _Stream) -> str:
        journal_id = self._shared.journal.journal_id
        return self._place.key("logs", f"{journal_id}/{stream.rank}-{stream.name}-{stream.offset:012d}")

    def _uploaded(self, stream: _Stream, result: Any, error: Any) -> None:
        stream.busy = False
        if error is not None:
            raise error
        key, chunk = result
        first_at = stream.seen_at or chunk.last_at
        stream.waiting_since = stream.seen_at = None
        stream.offset += len(chunk.data)
        if key is None:
            detail = {"object": self._key(stream), "detail": f"{len(chunk.data)} bytes at {chunk.offset} were refused"}
            self._shared.recorder.record("upload_failed", self._place.generation, detail)
            return
        self._shared.recorder.record(
            "log",
            self._place.generation,
            {
                "rank": stream.rank,
                "stream": stream.name,
                "offset": chunk.offset,
                "length": len(chunk.data),
                "lines": chunk.data.count(b"\n"),
                "object": key,
                "first_at": min(first_at, chunk.last_at),
                "last_at": chunk.last_at,
            },
            within_s=WATCHED_S if self._watched else None,
        )


def read_chunk(path: str, offset: int, limit: int) -> Chunk:
    """At most `limit` bytes from `offset`, cut after the last line end among them if there is one."""
    with open(path, "rb") as file:
        last_at = os.fstat(file.fileno()).st_mtime
        file.seek(offset)
        data = file.read(limit)
    end = data.rfind(b"\n") + 1
    return Chunk(offset, data[:end] if end else data, last_at)


def _upload(path: str, offset: int, limit: int, key: str, objects: Objects) -> list[Any]:
    """Store the next chunk and return its key, or None for a key if the service will never take it.

    Objects are write-once, and a crash between the upload and its record leaves one behind under this offset, perhaps
    shorter than the chunk is now: then the chunk goes under a key of its own.
    """
    import hashlib

    chunk = read_chunk(path, offset, limit)
    body = Body(lambda: io.BytesIO(chunk.data), len(chunk.data), hashlib.sha256(chunk.data).hexdigest())
    for attempt in range(20):
        name = f"{key}-{attempt}" if attempt else key
        try:
            objects.put(name, body)
            return [name, chunk]
        except Refused as refused:
            if refused.status != 409:
                trace(f"log chunk given up: {refused}")
                return [None, chunk]
    return [None, chunk]
