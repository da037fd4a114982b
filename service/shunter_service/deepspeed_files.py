"""The DeepSpeed file of a script, checked when the job is submitted, where the file lies in an uploaded bundle.

The archive is read up to the file, never unpacked. What cannot be read here, a git source or a file far inside a large
archive, is checked on the node before the program starts.
"""

from __future__ import annotations

import asyncio
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any

from shunter_schemas.checks.deepspeed import program_of
from shunter_schemas.deepspeed.file import MOST_BYTES, file_faults
from shunter_schemas.faults import Fault
from shunter_schemas.job import JobSpec
from shunter_schemas.source import BundleSource
from shunter_schemas.strategies import OwnStrategy
from shunter_store import bundles
from shunter_store.objects import ObjectStore

_READ_UP_TO_BYTES = 64 << 20
"""Of the unpacked archive; a quarter of a second."""


async def deepspeed_file_faults(objects: ObjectStore, job: JobSpec) -> list[Fault]:
    """What is wrong with `strategy.deepspeed_file`; nothing where it cannot be read here."""
    strategy = job.strategy
    if not isinstance(strategy, OwnStrategy) or strategy.deepspeed_file is None:
        return []
    found = _where(job, strategy.deepspeed_file)
    return [] if found is None else await asyncio.to_thread(_faults, objects, job, strategy.deepspeed_file, *found)


def _faults(objects: ObjectStore, job: JobSpec, name: str, digest: str, path: str) -> list[Fault]:
    key = bundles.object_key(digest)
    if not objects.exists(key):
        return []  # told by the check of bundles
    try:
        content = _member(objects, key, path)
    except (tarfile.TarError, EOFError, zlib.error, ValueError):
        return []
    except FileNotFoundError:
        return [Fault("/strategy/deepspeed_file", f"there is no file {path} in this bundle")]
    return [] if content is None else list(file_faults(content, program_of(job, name)))


def _where(job: JobSpec, name: str) -> tuple[str, str] | None:
    """The digest of the bundle that holds the file, and the path in it."""
    if not name.startswith("input:"):
        source = job.source
        return (source.id.removeprefix("bun_"), name) if isinstance(source, BundleSource) else None
    input_name, _, path = name.removeprefix("input:").partition("/")
    place = job.inputs[input_name].from_
    return (place.removeprefix("bundle:bun_"), path) if place.startswith("bundle:") else None


def _member(objects: ObjectStore, key: str, path: str) -> bytes | None:
    """The file's first bytes, one more than a DeepSpeed file may have; None: it lies too far inside.

    Raises:
        FileNotFoundError: the archive holds no such file.
    """
    wanted = _plain(path)
    stream: Any = _Stream(objects.open_range(key))  # of a file, tarfile uses `read` alone in this mode
    with tarfile.open(fileobj=stream, mode="r|gz") as tar:
        for member in tar:
            if member.isfile() and _plain(member.name) == wanted:
                file = tar.extractfile(member)
                return file.read(MOST_BYTES + 1) if file is not None else None
            if tar.offset > _READ_UP_TO_BYTES:
                return None
    raise FileNotFoundError(path)


def _plain(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in ("", "."))


class _Stream:
    """Chunks as a file that only goes forward."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, length: int = -1) -> bytes:
        while length < 0 or len(self._rest) < length:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._rest += chunk
        size = len(self._rest) if length < 0 else length
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken
