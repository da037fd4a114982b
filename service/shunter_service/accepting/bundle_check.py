"""Whether an uploaded source archive may be stored: read through once, never unpacked.

An archive is a gzip'd tar of plain files and folders. What could leave its folder, hide, collide or explode on a
node is refused here, with the member's name, although the agent that unpacks it checks again.
"""

from __future__ import annotations

import gzip
import tarfile
import unicodedata
import zlib
from dataclasses import dataclass
from typing import BinaryIO

_LARGEST_HEADER_BYTES = 1 << 20
_RATIO_COUNTS_FROM_BYTES = 16 << 20
_SKIP_BYTES = 1 << 18
_LONGEST_PATH_BYTES = 1024
_LONGEST_PART_BYTES = 255


@dataclass(frozen=True, slots=True)
class BundleLimits:
    """What a source archive may hold."""

    max_entries: int = 20_000
    """Files and folders."""
    max_unpacked_bytes: int = 4 << 30
    """All of it, unpacked."""
    max_ratio: int = 200
    """Unpacked bytes per packed byte; asked of archives that unpack to 16 MiB or more."""


class BadBundle(Exception):
    """The archive is refused; `member` names the entry at fault, if one is."""

    def __init__(self, detail: str, member: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.member = member


def check_bundle(archive: BinaryIO, size: int, limits: BundleLimits) -> int:
    """Read the archive through and count its entries.

    Raises:
        BadBundle: it is no whole gzip'd tar, or holds what it may not.
    """
    archive.seek(0)
    seen = _Seen()
    tape = _Tape(archive, size, limits)
    try:
        with tarfile.open(fileobj=tape, mode="r:", errorlevel=2) as tar:  # type: ignore[call-overload]
            for member in tar:
                _check_member(member)
                seen.add(member)
                if seen.entries > limits.max_entries:
                    raise BadBundle(f"more than {limits.max_entries} entries")
                tar.members.clear()  # it would keep every header in memory
        tape.drain()
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, ValueError, UnicodeError) as error:
        raise BadBundle(f"not a whole gzip'd tar archive: {error}") from error
    return seen.entries


class _Tape:
    """The unpacked bytes as a file that only goes forward and stops a bomb while it is still small."""

    def __init__(self, archive: BinaryIO, size: int, limits: BundleLimits) -> None:
        self._unpacked = gzip.GzipFile(fileobj=archive, mode="rb")
        self._limit = min(limits.max_unpacked_bytes, max(_RATIO_COUNTS_FROM_BYTES, size * limits.max_ratio))
        self._size = size
        self._position = 0

    def read(self, length: int) -> bytes:
        if length > _LARGEST_HEADER_BYTES:
            raise BadBundle(f"a tar header of {length} bytes")
        return self._take(length)

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> int:
        while self._position < position:
            if not self._take(min(_SKIP_BYTES, position - self._position)):
                raise EOFError("it ends inside a member")
        if position != self._position:
            raise ValueError("a member that points backwards")
        return position

    def drain(self) -> None:
        """Read what follows the tar's end: it counts too, and gzip's checksum stands at the end."""
        while self._take(_SKIP_BYTES):
            pass

    def _take(self, length: int) -> bytes:
        taken = self._unpacked.read(length)
        self._position += len(taken)
        if self._position > self._limit:
            raise BadBundle(f"it unpacks to more than {self._limit} bytes, from {self._size} packed ones")
        return taken


class _Seen:
    """The paths met so far, folded as file systems fold them that do not tell cases apart."""

    def __init__(self) -> None:
        self.entries = 0
        self._files: set[str] = set()
        self._folders: dict[str, str] = {}
        """Every folder, also the implied ones, by folded path: its exact path."""

    def add(self, member: tarfile.TarInfo) -> None:
        self.entries += 1
        parts = [part for part in member.name.split("/") if part not in ("", ".")]
        for depth in range(1, len(parts)):
            self._add_folder("/".join(parts[:depth]), member.name)
        path = "/".join(parts)
        if member.isdir():
            if path:
                self._add_folder(path, member.name)
            return
        folded = _fold(path)
        if folded in self._files or folded in self._folders:
            raise BadBundle("another entry has the same path, or one that differs in case only", member.name)
        self._files.add(folded)

    def _add_folder(self, path: str, name: str) -> None:
        folded = _fold(path)
        if folded in self._files or self._folders.setdefault(folded, path) != path:
            raise BadBundle("another entry has the same path, or one that differs in case only", name)


def _check_member(member: tarfile.TarInfo) -> None:
    name = member.name
    if not (member.isfile() or member.isdir()) or member.issparse():
        raise BadBundle("only plain files and folders may be in a bundle, no links, devices or pipes", name)
    if any(ord(letter) < 0x20 or letter == "\x7f" for letter in name):
        raise BadBundle("a path with control characters", name)
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise BadBundle("a path that is not UTF-8", name.encode(errors="replace").decode()) from None
    parts = name.split("/")
    if name.startswith("/") or ".." in parts:
        raise BadBundle("a path that leaves the bundle", name)
    if "\\" in name:
        raise BadBundle("a path with a backslash", name)
    if len(encoded) > _LONGEST_PATH_BYTES or any(len(part.encode()) > _LONGEST_PART_BYTES for part in parts):
        raise BadBundle("a path that is too long", name[:80])
    if member.isfile() and not any(part not in ("", ".") for part in parts):
        raise BadBundle("a file without a name", name)


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()
