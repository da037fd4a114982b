"""The object store: big things by key, each written once and whole. Any fsspec URL; a local folder by default."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, Final, Protocol

import fsspec

from shunter_store.errors import NotFound, ObjectExists, StoreError

CHUNK_BYTES: Final = 1 << 20
_REQUEST_BYTES: Final = 8 << 20
_SPOOL_BYTES: Final = 8 << 20

_SEGMENT: Final = re.compile(r"[^\x00-\x1f\x7f/\\]{1,255}")
_LONGEST_KEY_BYTES: Final = 900


class BadKey(StoreError):
    """A key that could leave the store's folder, or that no file system takes."""


class BadDigest(StoreError):
    """The bytes that came are not those that were announced; nothing was stored."""


class _Backend(Protocol):
    def put(self, key: str, chunks: Iterable[bytes], sha256: str | None) -> int: ...
    def open_range(self, key: str, start: int, end: int | None) -> Iterator[bytes]: ...
    def size(self, key: str) -> int | None: ...
    def delete(self, key: str) -> None: ...
    def below(self, folder: str) -> Iterator[str]: ...
    def tidy(self, folder: str) -> None: ...


class ObjectStore:
    """Objects by key. Every method blocks: call it in a thread from async code."""

    def __init__(self, url: str) -> None:
        filesystem, root = fsspec.core.url_to_fs(url)
        local = "file" in _protocols(filesystem)
        self._backend: _Backend = _Folder(Path(root)) if local else _Remote(filesystem, root)

    def put(self, key: str, chunks: Iterable[bytes], sha256: str | None = None) -> int:
        """Store an object whole, or not at all, and return its size. The same bytes again are fine.

        Raises:
            BadKey, BadDigest
            ObjectExists: the key holds other bytes.
        """
        return self._backend.put(_checked(key), chunks, sha256)

    def open_range(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes `[start, end)` in pieces; to the end without `end`.

        Raises:
            NotFound: at once, not at the first piece.
        """
        return self._backend.open_range(_checked(key), start, end)

    def size(self, key: str) -> int:
        """How many bytes the object has.

        Raises:
            NotFound
        """
        size = self._backend.size(_checked(key))
        if size is None:
            raise NotFound("object", key)
        return size

    def exists(self, key: str) -> bool:
        """Whether the object is there, whole."""
        return self._backend.size(_checked(key)) is not None

    def delete(self, key: str) -> None:
        """Remove the object; one that is not there is fine."""
        self._backend.delete(_checked(key))

    def delete_below(self, folder: str, *, kept: Collection[str] = ()) -> int:
        """Remove every object whose key begins with `folder` (which ends with `/`), except `kept`; how many went.

        Raises:
            BadKey
        """
        if not folder.endswith("/"):
            raise BadKey(f"not a folder of objects: {folder!r}")
        _checked(folder.removesuffix("/"))
        going = [key for key in self._backend.below(folder) if key not in kept]
        for key in going:
            self._backend.delete(key)
        self._backend.tidy(folder)
        return len(going)


class _Folder:
    """A folder of this machine: written beside, synced, then linked into place, which never replaces a file."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._unfinished = root / ".unfinished"

    def put(self, key: str, chunks: Iterable[bytes], sha256: str | None) -> int:
        target = self._root / key
        self._unfinished.mkdir(parents=True, exist_ok=True)
        beside = self._unfinished / secrets.token_hex(16)
        try:
            with open(beside, "xb") as file:
                digest, size = _copy(chunks, file)
                _check(digest, sha256)
                file.flush()
                os.fsync(file.fileno())
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(beside, target)
            except FileExistsError:
                if target.stat().st_size != size or _digest_of(target) != digest:
                    raise ObjectExists(key) from None
        finally:
            beside.unlink(missing_ok=True)
        return size

    def open_range(self, key: str, start: int, end: int | None) -> Iterator[bytes]:
        try:
            file = open(self._root / key, "rb")  # noqa: SIM115 - the iterator closes it
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise NotFound("object", key) from None
        return _pieces(file, start, end)

    def size(self, key: str) -> int | None:
        path = self._root / key
        return path.stat().st_size if path.is_file() else None

    def delete(self, key: str) -> None:
        path = self._root / key
        if path.is_file():
            path.unlink(missing_ok=True)

    def below(self, folder: str) -> Iterator[str]:
        for place, _, names in os.walk(self._root / folder):
            yield from ((Path(place) / name).relative_to(self._root).as_posix() for name in names)

    def tidy(self, folder: str) -> None:
        for place, _, _ in os.walk(self._root / folder, topdown=False):
            with suppress(OSError):  # not empty
                os.rmdir(place)


class _Remote:
    """Any other fsspec file system. What comes is kept aside until it is whole and checked; object stores then show
    the upload whole or not at all."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")

    def put(self, key: str, chunks: Iterable[bytes], sha256: str | None) -> int:
        with SpooledTemporaryFile(max_size=_SPOOL_BYTES) as aside:
            digest, size = _copy(chunks, aside)
            _check(digest, sha256)
            if (held := self.size(key)) is None:
                aside.seek(0)
                self._upload(key, aside)
            elif held != size or self._digest(key) != digest:
                raise ObjectExists(key)
        return size

    def open_range(self, key: str, start: int, end: int | None) -> Iterator[bytes]:
        if end is None:
            end = self.size(key)
            if end is None:
                raise NotFound("object", key)
        pieces = self._pieces(key, start, end)
        # The first piece is fetched at once: to ask before whether it is there would cost as much again.
        return chain([next(pieces, b"")], pieces)

    def size(self, key: str) -> int | None:
        try:
            info = self._filesystem.info(self._path(key))
        except FileNotFoundError:
            return None
        return int(info["size"]) if info["type"] == "file" else None

    def delete(self, key: str) -> None:
        if self.size(key) is not None:
            self._filesystem.rm_file(self._path(key))

    def below(self, folder: str) -> Iterator[str]:
        root = self._filesystem._strip_protocol(self._root)
        for path in self._filesystem.find(self._path(folder)):
            yield str(path).removeprefix(root).lstrip("/")

    def tidy(self, folder: str) -> None:
        """Folders are nothing of their own in an object store."""

    def _upload(self, key: str, source: Any) -> None:
        path = self._path(key)
        self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        with self._filesystem.open(path, "wb") as file:
            while piece := source.read(CHUNK_BYTES):
                file.write(piece)

    def _pieces(self, key: str, start: int, end: int) -> Iterator[bytes]:
        for first in range(start, end, _REQUEST_BYTES):
            try:
                piece = self._filesystem.cat_file(self._path(key), start=first, end=min(first + _REQUEST_BYTES, end))
            except FileNotFoundError:
                raise NotFound("object", key) from None
            if not piece:
                return
            yield piece

    def _digest(self, key: str) -> str:
        return _copy(self.open_range(key, 0, None), None)[0]

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _checked(key: str) -> str:
    segments = key.split("/")
    fine = all(_SEGMENT.fullmatch(part) and part not in (".", "..") for part in segments)
    if not fine or segments[0] == ".unfinished" or len(key.encode("utf-8", "surrogatepass")) > _LONGEST_KEY_BYTES:
        raise BadKey(f"not an object key: {key!r}")
    if any("\ud800" <= char <= "\udfff" for char in key):
        raise BadKey(f"not an object key: {key!r}")
    return key


def _copy(chunks: Iterable[bytes], file: Any) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
        if file is not None:
            file.write(chunk)
    return digest.hexdigest(), size


def _check(digest: str, announced: str | None) -> None:
    if announced is not None and announced.lower() != digest:
        raise BadDigest(f"announced sha256 {announced}, received {digest}")


def _digest_of(path: Path) -> str:
    return _copy(_pieces(path.open("rb"), 0, None), None)[0]


def _pieces(file: Any, start: int, end: int | None) -> Iterator[bytes]:
    with file:
        file.seek(start)
        left = None if end is None else max(0, end - start)
        while left is None or left > 0:
            piece = file.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left))
            if not piece:
                return
            yield piece
            left = None if left is None else left - len(piece)
