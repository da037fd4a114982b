"""Files: folders on their way to the service, artifacts on their way here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from shunter_schemas.api import Artifact, ArtifactPage, Bundle, Checkpoint, CheckpointPage

from shunter import bundle as packing
from shunter.errors import ApiError, DownloadCorrupt, ShunterError
from shunter.flows.answers import job_path, pages, post
from shunter.retries import Retries, passes
from shunter.steps import Call, Flow, ItemFlow, Request, ask, next_piece, opened, pause, work

Uploading = Callable[[packing.Bundle, bool], None]
"""Called for each folder before it is sent: the archive, and whether the service has it already."""
Progress = Callable[[Artifact, int], None]
"""Called with the artifact and the bytes of it that are here, at each piece."""

_TRIES_WITHOUT_A_BYTE = 5
_KEPT_OF_A_NAME = 48


def upload(folder: str | Path, uploading: Uploading | None = None) -> Flow[Bundle]:
    """A folder as a bundle, sent unless the service has exactly it."""
    with ExitStack() as stack:
        archive = yield from work(lambda: stack.enter_context(packing.pack(folder)))
        bundle_id = f"bun_{archive.digest}"
        known = yield from _exists(f"/v1/bundles/{bundle_id}")
        if uploading:
            uploading(archive, known)
        if known:
            return Bundle(id=bundle_id, size_bytes=archive.size_bytes)
        length = {"Content-Length": str(archive.size_bytes)}
        call = post(Bundle, "/v1/bundles", archive.chunks, content_type="application/gzip", headers=length)
        try:
            return (yield from ask(call))
        except ApiError as error:
            if error.status != 413 and error.slug != "invalid_bundle":
                raise
            raise packing.refused_for_its_size(archive, str(error)) from error


def artifacts(job_id: str) -> ItemFlow[Artifact]:
    """The files that a job left, by path."""
    return pages(ArtifactPage, job_path(job_id, "artifacts"))


def checkpoints(job_id: str) -> ItemFlow[Checkpoint]:
    """The checkpoints that are good to resume from, newest first."""
    return pages(CheckpointPage, job_path(job_id, "checkpoints"))


def download_all(
    job_id: str, found: Iterable[Artifact], folder: Path, retries: Retries, progress: Progress | None
) -> Flow[list[Path]]:
    """Every artifact under `folder`, at its own path."""
    targets = [(artifact, place(folder, artifact.path)) for artifact in found]
    paths: list[Path] = []
    for artifact, target in targets:
        paths.append((yield from download(job_id, artifact, target, retries, progress)))
    return paths


def download(job_id: str, artifact: Artifact, target: Path, retries: Retries, progress: Progress | None) -> Flow[Path]:
    """One artifact as the file `target`: resumed where a connection broke, in place only when whole.

    Raises:
        DownloadCorrupt: the bytes do not have the artifact's digest. They are thrown away.
        Unreachable: the connection broke several times in a row without a byte; what has arrived is kept beside.
    """
    if (yield from work(lambda: _is_whole(target, artifact))):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # Names may be 255 bytes long: whole they would leave no room for the rest.
    partial = target.with_name(f".{target.name[:_KEPT_OF_A_NAME]}.{artifact.sha256[:12]}.part")
    if _size(partial) >= artifact.size_bytes:
        partial.unlink(missing_ok=True)
    failures = 0
    while True:
        have = _size(partial)
        try:
            yield from _append(job_path(job_id, "artifacts", quote(artifact.path)), artifact, partial, progress)
            break
        except ShunterError as error:
            failures = failures + 1 if _size(partial) == have else 1
            if not passes(error) or failures >= _TRIES_WITHOUT_A_BYTE:
                raise
        yield from pause(retries.pause_s(failures))
    if not (yield from work(lambda: _is_whole(partial, artifact))):
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


def _append(path: str, artifact: Artifact, partial: Path, progress: Progress | None) -> Flow[None]:
    headers = {"Accept-Encoding": "identity"}
    if have := _size(partial):
        headers["Range"] = f"bytes={have}-"
    status = yield from opened(Request("GET", path, headers=headers))
    with partial.open("ab") as out:
        if status != 206:  # the whole file comes, also where a part was asked for
            out.truncate(0)
        while (piece := (yield from next_piece())) is not None:
            out.write(piece)
            if progress:
                progress(artifact, out.tell())


def _exists(path: str) -> Flow[bool]:
    try:
        yield from ask(Call(Request("HEAD", path), lambda _: None))
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is_whole(path: Path, artifact: Artifact) -> bool:
    if not path.is_file() or path.stat().st_size != artifact.size_bytes:
        return False
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest() == artifact.sha256
