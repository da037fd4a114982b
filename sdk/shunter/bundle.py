"""A folder as one reproducible archive: the same files make the same bytes, on every machine and at every time.

The archive is a `tar.gz` with sorted names, no owners and no times, so its SHA-256 names its content and a folder that
has not changed is not uploaded again. Links inside the folder are sent as what they point to; links that leave it are
refused, because they would be broken on the node.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from shunter.errors import BundleRefused
from shunter.ignores import Ignores

_CHUNK_BYTES = 1 << 20
_LARGEST = 3
"""Files that are named where an archive is too large."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A finished archive on disk. `digest` is the hex SHA-256 of the archive."""

    folder: Path
    path: Path
    digest: str
    size_bytes: int
    files: int
    content_bytes: int

    def chunks(self) -> Iterator[bytes]:
        """The archive's bytes; each call reads from the start."""
        with self.path.open("rb") as source:
            while chunk := source.read(_CHUNK_BYTES):
                yield chunk


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in the archive (slashes, relative) and the real file or folder behind it."""

    name: str
    path: Path
    is_folder: bool


@contextmanager
def pack(folder: str | Path) -> Iterator[Bundle]:
    """The folder as an archive in a temporary file that is gone when the block ends.

    Raises:
        BundleRefused: the folder does not exist, is empty, or holds something that cannot be sent (named).
    """
    root = Path(folder)
    entries = list_entries(root)
    if all(entry.is_folder for entry in entries):
        raise BundleRefused(f"{root} holds no file to send", hint="see .gitignore and .shunterignore in it")
    with tempfile.TemporaryDirectory(prefix="shunter-bundle-") as scratch:
        target = Path(scratch) / "bundle.tar.gz"
        content_bytes = _write(entries, target)
        yield Bundle(
            folder=root,
            path=target,
            digest=_sha256(target),
            size_bytes=target.stat().st_size,
            files=sum(not entry.is_folder for entry in entries),
            content_bytes=content_bytes,
        )


def list_entries(root: Path) -> list[Entry]:
    """What would be sent of a folder, sorted by name; folders too, so that empty ones exist on the node."""
    if not root.is_dir():
        raise BundleRefused(f"{root} is not a folder")
    real_root = root.resolve()
    found = _walk(real_root, "", Ignores.at_root(real_root), _Bounds(real_root, (real_root,)))
    return sorted(found, key=lambda entry: entry.name)


def refused_for_its_size(archive: Bundle, why: str) -> BundleRefused:
    """The error for an archive that the service does not take, with what makes most of it."""
    files = [(entry.path.stat().st_size, entry.name) for entry in list_entries(archive.folder) if not entry.is_folder]
    largest = ", ".join(f"{name} ({size / 2**20:.1f} MiB)" for size, name in sorted(files, reverse=True)[:_LARGEST])
    return BundleRefused(
        f"{archive.folder} cannot be sent ({archive.files} files, {archive.size_bytes / 2**20:.1f} MiB packed): {why}",
        hint=f"leave out by .shunterignore what the job does not need; the largest files: {largest}",
    )


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The border that no link may cross, and the real folders above, which none may point back to."""

    root: Path
    above: tuple[Path, ...]

    def checked(self, path: Path, name: str) -> Path:
        """Where a link leads."""
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):
            raise BundleRefused(f"{name} is a broken link", hint=_leave_out(name)) from None
        if not real.is_relative_to(self.root):
            raise BundleRefused(
                f"{name} is a link to {real}, outside the folder",
                hint=f"put the file itself there (cp -rL), or {_leave_out(name)}",
            )
        if real in self.above:
            raise BundleRefused(f"{name} is a link to a folder that holds it", hint=_leave_out(name))
        return real

    def inside(self, folder: Path) -> _Bounds:
        return _Bounds(self.root, (*self.above, folder))


def _walk(folder: Path, prefix: str, ignores: Ignores, bounds: _Bounds) -> Iterator[Entry]:
    for path in _children(folder, prefix):
        name = prefix + path.name
        if ignores.leave_out(f"{name}/" if path.is_dir() else name):
            continue
        _check_name(name)
        if path.is_symlink():
            path = bounds.checked(path, name)
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            yield Entry(name, path, is_folder=True)
            yield from _walk(path, f"{name}/", ignores.inside(path, f"{name}/"), bounds.inside(path))
        elif stat.S_ISREG(mode):
            yield Entry(name, path, is_folder=False)
        else:
            raise BundleRefused(f"{name} is neither a file nor a folder", hint=_leave_out(name))


def _children(folder: Path, prefix: str) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        name = prefix.rstrip("/") or str(folder)
        raise BundleRefused(f"{name} could not be read: {error.strerror}", hint=_leave_out(name)) from error


def _check_name(name: str) -> None:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise BundleRefused(f"{os.fsencode(name)!r} is not a UTF-8 name", hint="rename the file") from None


def _leave_out(name: str) -> str:
    return f"leave it out: add /{name} to .shunterignore"


def _write(entries: list[Entry], target: Path) -> int:
    content_bytes = 0
    with target.open("wb") as raw, gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
        # GzipFile is a binary stream in all but its declared type.
        stream = cast(BinaryIO, packed)
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for entry in entries:
                content_bytes += _add(archive, entry)
    return content_bytes


def _add(archive: tarfile.TarFile, entry: Entry) -> int:
    info = tarfile.TarInfo(entry.name)
    if entry.is_folder:
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(info)
        return 0
    try:
        with entry.path.open("rb") as source:
            status = os.fstat(source.fileno())
            info.size = status.st_size
            info.mode = 0o755 if status.st_mode & 0o100 else 0o644
            archive.addfile(info, source)
    except OSError as error:
        raise BundleRefused(
            f"{entry.name} could not be read: {error.strerror or error}", hint=_leave_out(entry.name)
        ) from error
    return info.size


def _sha256(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
