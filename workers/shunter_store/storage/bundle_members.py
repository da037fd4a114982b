"""Single files out of uploaded bundles: the archive is read up to the file, never unpacked."""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from shunter_schemas.job import JobSpec
from shunter_schemas.models import HuggingFaceModel
from shunter_schemas.source import BundleSource
from shunter_schemas.training import TrainingWorkload

from shunter_store.storage import bundles
from shunter_store.storage.objects import ObjectStore

READ_UP_TO_BYTES: Final = 64 << 20
"""Of the unpacked archive; a quarter of a second."""
_CONFIG: Final = "config.json"
_MOST_CONFIG_BYTES: Final = 1 << 20


def place_of(job: JobSpec, name: str) -> tuple[str, str] | None:
    """The digest of the bundle that holds a file of the document, and the path in it; None: it is in no bundle."""
    if not name.startswith("input:"):
        source = job.source
        return (source.id.removeprefix("bun_"), name) if isinstance(source, BundleSource) else None
    input_name, _, path = name.removeprefix("input:").partition("/")
    given = job.inputs.get(input_name)
    if given is None or not given.from_.startswith("bundle:bun_"):
        return None
    return given.from_.removeprefix("bundle:bun_"), path


def read_member(objects: ObjectStore, digest: str, path: str, most_bytes: int) -> bytes | None:
    """The file's first bytes; None: it lies too far inside, or the archive cannot be read.

    Raises:
        FileNotFoundError: there is no such bundle, or it holds no such file.
    """
    key = bundles.object_key(digest)
    if not objects.exists(key):
        raise FileNotFoundError(key)
    try:
        return _member(objects, key, path, most_bytes)
    except (tarfile.TarError, EOFError, zlib.error, ValueError):
        return None


def model_config(objects: ObjectStore, job: JobSpec) -> Mapping[str, Any] | None:
    """`config.json` of the weights that a `huggingface` model names, where they lie in a bundle. Blocks."""
    workload = job.workload
    if not isinstance(workload, TrainingWorkload) or not isinstance(workload.model, HuggingFaceModel):
        return None
    place = None if workload.model.weights is None else place_of(job, workload.model.weights)
    if place is None:
        return None
    digest, folder = place
    try:
        content = read_member(objects, digest, f"{folder}/{_CONFIG}", _MOST_CONFIG_BYTES)
        config = None if content is None else json.loads(content)
    except (FileNotFoundError, ValueError):
        return None
    return config if isinstance(config, dict) else None


def _member(objects: ObjectStore, key: str, path: str, most_bytes: int) -> bytes | None:
    wanted = _plain(path)
    stream: Any = _Stream(objects.open_range(key))  # of a file, tarfile uses `read` alone in this mode
    with tarfile.open(fileobj=stream, mode="r|gz") as tar:
        for member in tar:
            if member.isfile() and _plain(member.name) == wanted:
                file = tar.extractfile(member)
                return file.read(most_bytes) if file is not None else None
            if tar.offset > READ_UP_TO_BYTES:
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
