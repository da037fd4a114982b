"""Unpacking of uploaded archives: plain files and folders only, and never outside of the target."""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from typing import IO

from shunter_agent.files import BLOCK, remove_tree

MOST_ENTRIES = 100_000
MOST_RATIO = 200
RATIO_COUNTS_FROM_BYTES = 16 << 20
LONGEST_PATH = 1024
LONGEST_PART = 255

_NOT_WHOLE = (
    *(tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, UnicodeError, ValueError),
    *(FileExistsError, NotADirectoryError, IsADirectoryError),
)


class BadBundle(Exception):
    """The archive is refused; the text names the entry at fault."""


def unpack(archive: str, target: str) -> None:
    """Unpack a `tar.gz` so that `target` holds exactly its content, or nothing is changed.

    Raises:
        BadBundle: it is no whole gzip'd tar, or holds something that is refused.
    """
    partial = target + ".unpacking"
    remove_tree(partial)
    os.makedirs(partial)
    try:
        with open(archive, "rb") as file:
            _unpack(file, partial, RATIO_COUNTS_FROM_BYTES + MOST_RATIO * os.path.getsize(archive))
    except _NOT_WHOLE as error:
        remove_tree(partial)
        raise BadBundle(f"not a whole tar.gz archive: {error}") from error
    except BaseException:
        remove_tree(partial)
        raise
    remove_tree(target)
    os.replace(partial, target)


def _unpack(file: IO[bytes], target: str, most_bytes: int) -> None:
    seen: set[str] = set()
    written = 0
    # Not `r|gz`, which ends behind the first of several gzip members: what parallel packers write.
    with gzip.GzipFile(fileobj=file, mode="rb") as plain, tarfile.open(fileobj=plain, mode="r|") as tar:
        for entry in tar:
            path = _checked(entry, seen)
            if len(seen) > MOST_ENTRIES:
                raise BadBundle(f"more than {MOST_ENTRIES} entries")
            written += entry.size
            if written > most_bytes:
                raise BadBundle(f"{entry.name!r}: unpacks to more than {most_bytes} bytes, far beyond its packed size")
            where = os.path.join(target, path)
            if entry.isdir():
                os.makedirs(where, exist_ok=True)
            else:
                _write(tar, entry, where)


def _checked(entry: tarfile.TarInfo, seen: set[str]) -> str:
    """The entry's path, relative and plain."""
    name = entry.name
    if not (entry.isreg() or entry.isdir()):
        raise BadBundle(f"{name!r}: only files and folders are taken, no links or devices")
    if name.startswith("/") or "\0" in name or ".." in name.split("/"):
        raise BadBundle(f"{name!r}: leads out of the folder")
    if len(os.fsencode(name)) > LONGEST_PATH or any(len(part) > LONGEST_PART for part in os.fsencode(name).split(b"/")):
        raise BadBundle(f"{name[:80]!r}: a path that is too long")
    path = os.path.normpath(name)
    if path in seen and not entry.isdir():
        raise BadBundle(f"{name!r}: is there twice")
    seen.add(path)
    return path


def _write(tar: tarfile.TarFile, entry: tarfile.TarInfo, where: str) -> None:
    os.makedirs(os.path.dirname(where), exist_ok=True)
    content = tar.extractfile(entry)
    assert content is not None
    mode = 0o755 if entry.mode & 0o100 else 0o644
    descriptor = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        for block in iter(lambda: content.read(BLOCK), b""):
            file.write(block)
