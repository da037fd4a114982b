import asyncio
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from shunter import bundle as packing
from support.documents import changed, script
from support.service_app import App

GZIP = {"Content-Type": "application/gzip"}


def archive(folder: Path) -> bytes:
    """A folder as the SDK packs it."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "train.py").write_text("print('hello')\n")
    with packing.pack(folder) as packed:
        return b"".join(packed.chunks())


async def upload(app: App, data: bytes, **headers: str) -> httpx.Response:
    return await app.http.post("/v1/bundles", content=data, headers={**GZIP, **headers})


def stored_objects(app: App) -> list[Path]:
    return [path for path in (app.service.data.data_dir / "objects").rglob("*") if path.is_file()]


async def test_a_bundle_is_named_by_its_digest_and_sending_it_again_is_harmless(app: App, tmp_path: Path) -> None:
    data = archive(tmp_path / "user")
    name = f"bun_{hashlib.sha256(data).hexdigest()}"

    first = await upload(app, data)
    second = await upload(app, data)

    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    assert first.json() | {"created_at": ""} == {"id": name, "size_bytes": len(data), "files": 2, "created_at": ""}
    assert first.headers["Location"] == f"/v1/bundles/{name}"
    assert [path.read_bytes() for path in stored_objects(app)] == [data]


async def test_uploads_at_once_of_the_same_archive_all_succeed(app: App, tmp_path: Path) -> None:
    data = archive(tmp_path / "user")

    answers = await asyncio.gather(*(upload(app, data) for _ in range(6)))

    assert {answer.status_code for answer in answers} <= {200, 201}
    assert len({answer.json()["id"] for answer in answers}) == 1


async def test_a_client_can_ask_whether_a_bundle_is_known(app: App, tmp_path: Path) -> None:
    made = (await upload(app, archive(tmp_path / "user"))).json()

    known = await app.http.get(f"/v1/bundles/{made['id']}")
    known_head = await app.http.head(f"/v1/bundles/{made['id']}")
    unknown = await app.http.head(f"/v1/bundles/bun_{'0' * 64}")

    assert (known.status_code, known.json()) == (200, made)
    assert (known_head.status_code, known_head.content) == (200, b"")
    assert unknown.status_code == 404


async def test_a_document_may_name_an_uploaded_bundle(app: App, tmp_path: Path) -> None:
    made = (await upload(app, archive(tmp_path / "user"))).json()
    document = changed(script(), {"source.id": made["id"], "inputs": {"train": {"from": f"bundle:{made['id']}"}}})

    job = await app.submit(document)

    assert job["spec"]["source"]["id"] == made["id"]


@pytest.mark.parametrize("data", [b"", b"no archive", b"\x1f\x8b\x08\x00"])
async def test_what_is_no_archive_is_a_422_and_nothing_is_stored(lite: App, data: bytes) -> None:
    answer = await upload(lite, data)

    assert answer.status_code == 422
    assert answer.json()["type"] == "/v1/problems/invalid_bundle"
    assert stored_objects(lite) == []


async def test_a_dangerous_archive_is_a_422_that_names_the_member(lite: App) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../../etc/cron.d/evil"))

    answer = await upload(lite, plain.getvalue())

    assert answer.status_code == 422
    assert "../../etc/cron.d/evil" in answer.json()["detail"]
    assert stored_objects(lite) == []


async def test_another_content_type_is_a_415(lite: App) -> None:
    answer = await lite.http.post("/v1/bundles", content=b"", headers={"Content-Type": "application/zip"})

    assert answer.status_code == 415


async def test_an_archive_over_the_limit_is_refused_by_its_length_and_while_it_arrives(
    lite: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = lite.service.settings.max_bundle_bytes
    monkeypatch.setitem(lite.service.settings.__dict__, "max_bundle_bytes", 1000)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    announced = await upload(lite, b"x" * 1001)
    unannounced = await lite.http.post("/v1/bundles", content=pieces(), headers=GZIP)

    assert limit >= 1 << 30
    assert (announced.status_code, unannounced.status_code) == (413, 413)
    assert stored_objects(lite) == []
    assert not list((lite.service.data.data_dir / "uploads").glob("*"))


async def test_a_key_that_may_only_read_uploads_nothing(lite: App, tmp_path: Path) -> None:
    answer = await upload(lite, archive(tmp_path / "user"), **lite.add_key(scopes=("jobs:read",)))

    assert answer.status_code == 403
