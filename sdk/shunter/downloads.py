"""Fetching artifacts: resumed where a connection broke, checked against their digest, in place only when whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from shunter_schemas.api import Artifact

from shunter.errors import DownloadCorrupt, ShunterError
from shunter.transport import Transport, passes

Progress = Callable[[Artifact, int], None]
"""Called with the artifact and the bytes of it that are here, at each piece."""

_TRIES_WITHOUT_A_BYTE = 5


def fetch_all(
    transport: Transport, job_id: str, artifacts: Iterable[Artifact], folder: Path, progress: Progress | None = None
) -> list[Path]:
    """Every artifact under `folder`, at its own path. Files that are already there and whole are left alone."""
    return [fetch(transport, job_id, artifact, place(folder, artifact.path), progress) for artifact in artifacts]


def fetch(
    transport: Transport, job_id: str, artifact: Artifact, target: Path, progress: Progress | None = None
) -> Path:
    """One artifact as the file `target`; a partial download of an earlier run is resumed.

    Raises:
        DownloadCorrupt: the bytes do not have the artifact's digest. They are thrown away.
        Unreachable: the connection broke several times in a row without a byte; what has arrived is kept beside.
    """
    if _is_whole(target, artifact):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{artifact.sha256[:12]}.part")
    _receive(transport, f"/v1/jobs/{job_id}/artifacts/{quote(artifact.path)}", artifact, partial, progress)
    if not _is_whole(partial, artifact):
        partial.unlink()
        raise DownloadCorrupt(f"{artifact.path} did not arrive as it was stored", hint="try again")
    return partial.replace(target)


def place(folder: Path, path: str) -> Path:
    """Where an artifact goes. Its path comes from a training program, so it must not leave the folder.

    Raises:
        DownloadCorrupt: it would.
    """
    parts = PurePosixPath(path).parts
    target = folder.joinpath(*parts)
    inside = parts and ".." not in parts and not path.startswith("/") and "\0" not in path
    if not inside or not target.parent.resolve().is_relative_to(folder.resolve()):
        raise DownloadCorrupt(f"{path!r} is no path inside a folder", hint="fetch it by name into a file of yours")
    return target


def _receive(transport: Transport, url: str, artifact: Artifact, partial: Path, progress: Progress | None) -> None:
    if _size(partial) >= artifact.size_bytes:
        partial.unlink(missing_ok=True)
    failures = 0
    while True:
        have = _size(partial)
        try:
            _append(transport, url, artifact, partial, progress)
            return
        except ShunterError as error:
            failures = failures + 1 if _size(partial) == have else 1
            if not passes(error) or failures >= _TRIES_WITHOUT_A_BYTE:
                raise
            transport.retries.sleep(transport.retries.pause_s(failures))


def _append(transport: Transport, url: str, artifact: Artifact, partial: Path, progress: Progress | None) -> None:
    headers = {"Accept-Encoding": "identity"}
    if have := _size(partial):
        headers["Range"] = f"bytes={have}-"
    with transport.stream(url, headers=headers) as response, partial.open("ab") as out:
        if response.status_code != 206:  # the whole file comes, also where a part was asked for
            out.truncate(0)
        for chunk in response.iter_raw():
            out.write(chunk)
            if progress:
                progress(artifact, out.tell())


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is_whole(path: Path, artifact: Artifact) -> bool:
    if not path.is_file() or path.stat().st_size != artifact.size_bytes:
        return False
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest() == artifact.sha256
