"""What a backup holds: every file with its size and checksum, and what is needed to read it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from shunter_store import migrate

KIND: Final = "shunter-backup"
FORMAT: Final = 1
FILE: Final = "manifest.json"
DATABASE: Final = "shunter.db"
_CHUNK_BYTES: Final = 1 << 20


class BadBackup(Exception):
    """What lies there cannot be restored; the text says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """`objects_elsewhere`: where the objects are that the backup does not hold; empty: it holds them all."""

    shunter: str
    schema: str
    deployment: str
    created_at: str
    objects_elsewhere: str = ""
    files: Mapping[str, Entry] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Put it into the backup's folder."""
        (folder / FILE).write_text(json.dumps({"kind": KIND, "format": FORMAT, **asdict(self)}, indent=1))


def read(folder: Path) -> Manifest:
    """What the backup in this folder says of itself.

    Raises:
        BadBackup: it is no backup, a newer Shunter made it, or it names files outside of itself.
    """
    try:
        found: Any = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        raise BadBackup(f"{folder} is no backup: it has no {FILE}") from None
    except (OSError, ValueError) as error:
        raise BadBackup(f"{folder / FILE} cannot be read: {error}") from None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise BadBackup(f"{folder} is no backup of Shunter")
    made_by = f"it was made by Shunter {found.get('shunter', '?')}"
    if found.get("format") != FORMAT:
        raise BadBackup(f"{folder} has the format {found.get('format')}, this Shunter reads {FORMAT}; {made_by}")
    manifest = _manifest(folder, found)
    if not migrate.is_known(manifest.schema):
        raise BadBackup(
            f"{folder} holds a database of schema {manifest.schema}, this Shunter knows {migrate.head_revision()} "
            f"and older; {made_by}: restore it with that release or a newer one"
        )
    return manifest


def check(folder: Path, manifest: Manifest) -> None:
    """Prove that every file is there as it was written.

    Raises:
        BadBackup: naming the files that are not, ten at most.
    """
    wrong = [fault for path, entry in manifest.files.items() if (fault := _fault(folder / path, entry))]
    if wrong:
        more = f" and {len(wrong) - 10} more" if len(wrong) > 10 else ""
        raise BadBackup(f"{folder} is damaged: {'; '.join(wrong[:10])}{more}")


def entry_of(path: Path) -> Entry:
    """Size and checksum of a file."""
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(path):
        digest.update(chunk)
        size += len(chunk)
    return Entry(size, digest.hexdigest())


def _manifest(folder: Path, found: Mapping[str, Any]) -> Manifest:
    try:
        files = {str(path): Entry(int(one["size"]), str(one["sha256"])) for path, one in found["files"].items()}
        manifest = Manifest(
            shunter=str(found["shunter"]),
            schema=str(found["schema"]),
            deployment=str(found["deployment"]),
            created_at=str(found["created_at"]),
            objects_elsewhere=str(found.get("objects_elsewhere") or ""),
            files=files,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadBackup(f"{folder / FILE} is not whole: {type(error).__name__} at {error}") from None
    outside = [path for path in files if ".." in PurePosixPath(path).parts or PurePosixPath(path).is_absolute()]
    if outside or DATABASE not in files:
        raise BadBackup(f"{folder / FILE} names {outside[0]!r}" if outside else f"{folder} holds no database")
    return manifest


def _fault(path: Path, entry: Entry) -> str:
    if path.is_symlink() or not path.is_file():
        return f"{path.name} is missing"
    if path.stat().st_size != entry.size:
        return f"{path.name} has {path.stat().st_size} bytes, not {entry.size}"
    return "" if entry_of(path) == entry else f"{path.name} holds other bytes than were written"


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
