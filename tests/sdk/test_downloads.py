"""Downloads that break, are wrong, or were begun before."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest
from shunter import Client, errors
from shunter.transport import Retries
from shunter_schemas.api import Artifact
from support.both_clients import Kind, client_of

CONTENT = bytes(range(256)) * 4096


class FileService:
    """Serves one file by ranges; each connection breaks after so many bytes, as told."""

    def __init__(self, content: bytes = CONTENT, breaks: tuple[int, ...] = (), *, ranges: bool = True) -> None:
        self.content = content
        self.breaks = list(breaks)
        self.ranges = ranges
        self.starts: list[int] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        asked = request.headers.get("Range") if self.ranges else None
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        self.starts.append(start)
        return httpx.Response(206 if asked else 200, content=self._stream(start))

    def _stream(self, start: int) -> Iterator[bytes]:
        if not self.breaks:
            yield self.content[start:]
            return
        yield self.content[start : start + self.breaks.pop(0)]
        raise httpx.ReadError("connection reset")


def artifact(path: str = "model.bin", content: bytes = CONTENT) -> Artifact:
    digest = hashlib.sha256(content).hexdigest()
    return Artifact(path=path, size_bytes=len(content), sha256=digest, href="/v1/jobs/job_1/artifacts/x")


Connect = Callable[[FileService], AbstractContextManager[Client]]


@pytest.fixture
def to(kind: Kind) -> Connect:
    """A client of either kind to a service."""
    return lambda service: client_of(
        kind, "http://service.test", "k", handler=service, retries=Retries(first_pause_s=0.0)
    )


def test_a_broken_download_goes_on_where_it_stopped(to: Connect, tmp_path: Path) -> None:
    service = FileService(breaks=(100_000, 300_000))
    with to(service) as client:
        done = client.download_artifact("job_1", artifact(), tmp_path / "deep" / "model.bin")

    assert done.read_bytes() == CONTENT
    assert service.starts == [0, 100_000, 400_000]
    assert list(done.parent.iterdir()) == [done]


def test_a_server_without_ranges_sends_the_whole_file_again(to: Connect, tmp_path: Path) -> None:
    service = FileService(breaks=(100_000,), ranges=False)
    with to(service) as client:
        done = client.download_artifact("job_1", artifact(), tmp_path / "model.bin")

    assert done.read_bytes() == CONTENT


def test_wrong_bytes_are_thrown_away_and_what_was_there_stays(to: Connect, tmp_path: Path) -> None:
    target = tmp_path / "model.bin"
    target.write_bytes(b"the one from before")
    corrupt = FileService(content=CONTENT[:-1] + b"!")

    with to(corrupt) as client, pytest.raises(errors.DownloadCorrupt, match="did not arrive as it was stored"):
        client.download_artifact("job_1", artifact(), target)

    assert target.read_bytes() == b"the one from before"
    assert list(tmp_path.iterdir()) == [target]


def test_a_connection_that_never_brings_a_byte_gives_up_and_keeps_what_came(to: Connect, tmp_path: Path) -> None:
    service = FileService(breaks=(5000, 0, 0, 0, 0, 0, 0))
    with to(service) as client:
        with pytest.raises(errors.Unreachable):
            client.download_artifact("job_1", artifact(), tmp_path / "model.bin")

        service.breaks = []
        client.download_artifact("job_1", artifact(), tmp_path / "model.bin")

    assert service.starts[-1] == 5000
    assert (tmp_path / "model.bin").read_bytes() == CONTENT


def test_a_file_that_is_here_already_is_not_fetched(to: Connect, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(CONTENT)
    service = FileService()
    with to(service) as client:
        client.download_artifact("job_1", artifact(), tmp_path / "model.bin")

    assert service.starts == []


def test_an_empty_file_arrives_too(to: Connect, tmp_path: Path) -> None:
    with to(FileService(content=b"")) as client:
        done = client.download_artifact("job_1", artifact(content=b""), tmp_path / "empty")

    assert done.read_bytes() == b""


def test_a_stale_partial_file_that_is_too_long_is_begun_anew(to: Connect, tmp_path: Path) -> None:
    wanted = artifact()
    (tmp_path / f".model.bin.{wanted.sha256[:12]}.part").write_bytes(CONTENT + b"more")
    with to(FileService()) as client:
        done = client.download_artifact("job_1", wanted, tmp_path / "model.bin")

    assert done.read_bytes() == CONTENT


def test_progress_is_told_by_bytes(to: Connect, tmp_path: Path) -> None:
    told: list[int] = []
    with to(FileService()) as client:
        client.download_artifact("job_1", artifact(), tmp_path / "x", progress=lambda _, have: told.append(have))

    assert told == sorted(told)
    assert told[-1] == len(CONTENT)


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../outside", "", "link/outside"])
def test_a_path_that_leaves_the_folder_is_refused(kind: Kind, tmp_path: Path, path: str) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    page = {"items": [artifact(path).model_dump(mode="json")], "next_cursor": None}
    answering = client_of(kind, "http://service.test", "k", handler=lambda request: httpx.Response(200, json=page))

    with answering as client, pytest.raises(errors.DownloadCorrupt, match="is no path inside a folder"):
        client.download_artifacts("job_1", folder)

    assert not (tmp_path / "outside").exists()
