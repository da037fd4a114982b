"""What is prepared once on a node and mapped by all of its ranks: folders in the scratch space, named by their digest.

The first rank to ask holds a lock while it prepares; the others wait for it and find the folder. The lock goes with the
process that holds it, so a rank that is killed leaves none behind, and a half-made folder is never taken for a whole.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shunter_trainer.failures import UserFault

Beat = Callable[[], None]
"""Says to the watchdog that work goes on."""

_WAIT_S = 0.05
_BLOCK_BYTES = 4 << 20


def prepared(scratch: Path, key: Mapping[str, Any], build: Callable[[Path], None], beat: Beat) -> Path:
    """The folder that `build` fills for this key, which must name all that its content depends on.

    Raises: UserFault when the node's disk is full; whatever `build` raises.
    """
    folder = scratch / "data" / _digest(json.dumps(key, sort_keys=True).encode())
    if folder.is_dir():
        return folder
    with _locked(folder.with_suffix(".lock"), beat):
        if not folder.is_dir():
            partial = folder.with_suffix(".part")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            with _disk_faults():
                build(partial)
            os.replace(partial, folder)
    return folder


def digest_of_files(scratch: Path, files: Sequence[Path], beat: Beat) -> str:
    """SHA-256 over names and contents. A file is read once on a node, as long as its size and times stay."""
    whole = hashlib.sha256()
    for file in files:
        whole.update(f"{file.name}\0{_digest_of_file(scratch, file, beat)}\n".encode())
    return whole.hexdigest()


def _digest_of_file(scratch: Path, file: Path, beat: Beat) -> str:
    seen = file.stat()
    identity = f"{file.absolute()}\0{seen.st_size}\0{seen.st_mtime_ns}\0{seen.st_ctime_ns}\0{seen.st_ino}"
    note = scratch / "data" / f"digest-{_digest(identity.encode(errors='surrogateescape'))}"
    if note.exists():
        return note.read_text()
    with _locked(note.with_suffix(".lock"), beat):
        if note.exists():
            return note.read_text()
        digest = hashlib.sha256()
        with file.open("rb") as content:
            while block := content.read(_BLOCK_BYTES):
                digest.update(block)
                beat()
        partial = note.with_suffix(".part")
        partial.write_text(digest.hexdigest())
        os.replace(partial, note)
    return digest.hexdigest()


@contextmanager
def _locked(path: Path, beat: Beat) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
            beat()
            time.sleep(_WAIT_S)
        yield


@contextmanager
def _disk_faults() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserFault(
            "/resources/disk_gib", "the node's disk is full while data are prepared; ask for a larger one"
        ) from error


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]
