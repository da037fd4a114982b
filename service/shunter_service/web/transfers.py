"""Bytes between HTTP (asynchronous) and the object store (blocking), in pieces, with back-pressure both ways."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from litestar import Request

from shunter_service.web.bodies import arriving, too_large
from shunter_service.web.problems import ProblemError

T = TypeVar("T")

_PIECE_BYTES = 1 << 20
_LOOK_UP_S = 0.5


class Transfers:
    """The threads that move bytes. An upload holds one while it lasts, so that reading has threads of its own."""

    def __init__(self, scratch: Path, *, threads: int) -> None:
        """`scratch`: a folder for uploads that are checked before they are stored."""
        self._scratch = scratch
        self._uploads = ThreadPoolExecutor(threads, thread_name_prefix="upload")
        self._reads = ThreadPoolExecutor(threads, thread_name_prefix="read")
        self._closing = False

    async def close(self) -> None:
        """Give up what runs. The loop goes on meanwhile: uploads wait for it."""
        self._closing = True
        for pool in (self._uploads, self._reads):
            pool.shutdown(wait=False, cancel_futures=True)
            await asyncio.to_thread(pool.shutdown)

    async def run(self, work: Callable[[], T]) -> T:
        """Run a short piece of blocking work in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._reads, work)

    async def pour(self, request: Request[Any, Any, Any], into: Callable[[Iterable[bytes]], T]) -> T:
        """Run `into` in a thread over the request's body, as it arrives.

        Raises:
            ProblemError: 400: the client went away in the middle; raised inside of `into`'s iteration too.
        """
        pieces = _pieces(request)
        loop = asyncio.get_running_loop()

        def arriving() -> Iterator[bytes]:
            while piece := self._wait(asyncio.run_coroutine_threadsafe(anext(pieces, b""), loop)):
                yield piece

        return await loop.run_in_executor(self._uploads, lambda: into(arriving()))

    async def receive(self, request: Request[Any, Any, Any], limit_bytes: int) -> Spooled:
        """The request's body as a temporary file, with its digest.

        Raises:
            ProblemError: 413 as soon as the body is longer than the limit.
        """

        def into(pieces: Iterable[bytes]) -> Spooled:
            self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = tempfile.TemporaryFile(dir=self._scratch)  # noqa: SIM115 - the caller closes it
            try:
                return _spool(file, pieces, limit_bytes)
            except BaseException:
                file.close()
                raise

        return await self.pour(request, into)

    def _wait(self, piece: Future[bytes]) -> bytes:
        """The next piece of a body, unless the process ends: then nobody would ever bring it."""
        while True:
            try:
                return piece.result(_LOOK_UP_S)
            except TimeoutError:
                if self._closing:
                    piece.cancel()
                    raise ProblemError("unavailable", "the service is ending; send it again") from None

    async def send(self, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Blocking chunks as an asynchronous stream."""
        try:
            while (chunk := await self.run(lambda: next(chunks, None))) is not None:
                yield chunk
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                with suppress(RuntimeError, ValueError):  # it runs in its thread at this moment
                    close()


class Spooled:
    """A body that has arrived whole, in a file without a name."""

    def __init__(self, file: BinaryIO, size: int, sha256: str) -> None:
        self.file = file
        self.size = size
        self.sha256 = sha256

    def pieces(self) -> Iterator[bytes]:
        """The bytes from the start."""
        self.file.seek(0)
        while piece := self.file.read(_PIECE_BYTES):
            yield piece

    def close(self) -> None:
        self.file.close()


def _spool(file: BinaryIO, pieces: Iterable[bytes], limit_bytes: int) -> Spooled:
    digest = hashlib.sha256()
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > limit_bytes:
            raise too_large(limit_bytes)
        digest.update(piece)
        file.write(piece)
    file.flush()
    return Spooled(file, size, digest.hexdigest())


async def _pieces(request: Request[Any, Any, Any]) -> AsyncGenerator[bytes, None]:
    """The body in pieces of about 1 MiB: a hop between threads costs more than a small piece is worth."""
    waiting: list[bytes] = []
    length = 0
    async for chunk in arriving(request):
        waiting.append(chunk)
        length += len(chunk)
        if length >= _PIECE_BYTES:
            yield b"".join(waiting)
            waiting, length = [], 0
    if length:
        yield b"".join(waiting)
