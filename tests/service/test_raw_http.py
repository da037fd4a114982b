"""What no HTTP library sends: heads without end, lengths that lie, bytes that are no HTTP: a problem document."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from shunter_schemas.api import Problem
from support.service_app import KEY, App, served_app

HEAD = (
    f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n".encode()
)


@pytest.fixture
async def served(tmp_path: Path, sqlite_url: str) -> AsyncIterator[App]:
    async with served_app(tmp_path, sqlite_url) as app:
        yield app


async def answered(app: App, *pieces: bytes) -> tuple[int, Problem]:
    """The answer to these bytes; the connection is closed by the service, or by us once the answer is whole."""
    reader, writer = await asyncio.open_connection(app.http.base_url.host, app.http.base_url.port)
    try:
        for piece in pieces:
            writer.write(piece)
            try:
                await writer.drain()
            except ConnectionError:
                break
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        body = await asyncio.wait_for(reader.readexactly(int(lengths[0].split(b":")[1])), 20)
    finally:
        writer.close()
    assert b"content-type: application/problem+json" in head.lower()
    return int(head.split()[1]), Problem.model_validate(json.loads(body))


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"hello\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"BREW /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/jobs/\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: many\r\n\r\n",
        HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc",
    ],
)
async def test_what_is_no_http_is_a_400_problem(served: App, request_bytes: bytes) -> None:
    status, problem = await answered(served, request_bytes)

    assert status == 400
    assert problem.type == "/v1/problems/bad_request"


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET /v1/me HTTP/1.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n"],
        [b"GET /v1/me HTTP/1.1\r\nX: ", *[b"a" * 10_000] * 200],
        [b"GET /v1/me HTTP/1.1\r\n", *[b"X: aaaaaaaaaaaaaaaa\r\n" * 1000] * 20, b"\r\n"],
        [b"GET /v1/jobs?name=" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n"],
    ],
    ids=["one header", "a header without end", "many headers", "the address"],
)
async def test_a_head_that_is_too_long_is_a_431_whoever_sends_it(served: App, pieces: list[bytes]) -> None:
    status, problem = await answered(served, *pieces)

    assert status == 431
    assert problem.type == "/v1/problems/head_too_large"


@pytest.mark.parametrize("announced", [b"10737418240", b"1048577"])
async def test_a_body_is_refused_by_the_length_that_it_announces(served: App, announced: bytes) -> None:
    status, problem = await answered(served, HEAD + b"Content-Length: " + announced + b"\r\n\r\n{")

    assert status == 413
    assert problem.detail == "the body is longer than 1048576 bytes"


async def test_a_connection_that_was_served_well_takes_another_request_with_a_long_body(served: App) -> None:
    for size in (10, 900_000):
        answer = await served.http.post("/v1/jobs", content=b" " * size, headers={"Content-Type": "application/json"})

        assert answer.status_code == 400
        assert answer.json()["type"] == "/v1/problems/not_parseable"
