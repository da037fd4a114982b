"""The relay between a node's port and the service: real streams, a real HTTP server behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from shunter_workers.channels.relay import Relay


@asynccontextmanager
async def relay_to(service: str) -> AsyncIterator[str]:
    """The address of a relay on loopback."""
    server = await asyncio.start_server(Relay(lambda: service).serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def echoing_service() -> AsyncIterator[tuple[str, list[bytes]]]:
    """Answers each request with its own head and body; the heads are kept."""
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        heads.append(head)
        length = next(
            (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line), 0
        )
        body = await reader.readexactly(length)
        writer.write(b"HTTP/1.1 201 Created\r\nX-Kept: yes\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(body), 1000):
            piece = body[start : start + 1000]
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads


async def test_requests_of_a_node_reach_the_service_over_one_kept_connection() -> None:
    body = bytes(range(256)) * 400

    async with (
        echoing_service() as (service, heads),
        relay_to(service) as url,
        httpx.AsyncClient(trust_env=False) as node,
    ):
        first = await node.post(f"{url}/v1/node/sync", content=body, headers={"Authorization": "Bearer sns_x"})
        second = await node.put(f"{url}/v1/objects/a/b?expires=1&signature=2", content=b"")

    assert (first.status_code, first.headers["x-kept"], first.content) == (201, "yes", body)
    assert second.status_code == 201
    assert heads[0].startswith(b"POST /v1/node/sync HTTP/1.1\r\n")
    assert b"bearer sns_x" in heads[0].lower()
    assert f"host: {service.removeprefix('http://')}".encode() in heads[0].lower()
    assert heads[1].startswith(b"PUT /v1/objects/a/b?expires=1&signature=2 ")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs",
        "/",
        "/v1/node/../jobs",
        "/v1/node/%2e%2e/jobs",
        "/v1/nodes/x",
        "/v1/objects//../jobs",
        "/v1/api-keys",
    ],
)
async def test_nothing_but_the_node_s_own_part_of_the_api_is_reached(path: str) -> None:
    async with echoing_service() as (service, heads), relay_to(service) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 403")
    assert heads == []


async def test_a_service_that_is_down_is_a_503_and_is_found_again_when_it_is_back() -> None:
    found = {"url": "http://127.0.0.1:9"}
    server = await asyncio.start_server(Relay(lambda: found["url"]).serve, "127.0.0.1", 0)

    async with server, httpx.AsyncClient(trust_env=False) as node:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        down = await node.post(f"{url}/v1/node/sync", content=b"x")
        async with echoing_service() as (service, _):
            found["url"] = service
            up = await node.post(f"{url}/v1/node/sync", content=b"x")

    assert (down.status_code, up.status_code) == (503, 201)


async def test_garbage_ends_the_connection_and_nothing_else() -> None:
    async with echoing_service() as (service, heads), relay_to(service) as url:
        port = int(url.rpartition(":")[2])
        for garbage in (b"\x00\xff\x16\x03\x01", b"GET /v1/node/sync\r\n\r\n", b"POST /v1/node/sync HTTP/1.1\r\nA"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(garbage)
            writer.write_eof()
            assert b"201" not in await reader.read()
            writer.close()
        async with httpx.AsyncClient(trust_env=False) as node:
            after = await node.post(f"{url}/v1/node/sync", content=b"x")

    assert after.status_code == 201
    assert len(heads) == 1
