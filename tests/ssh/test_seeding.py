"""A file that many nodes need goes over the uplink once, where nodes reach each other; and however it can where not."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from shunter_providers.contract import SshEndpoint
from shunter_providers.ssh.calling import CallFailed, HostSide
from shunter_providers.ssh.connecting import connect
from shunter_workers.channels.seeding import Blob, Seat, Seeder
from support.hosts import Host, Pool, make_pool
from support.ssh_pool import host_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SIZE = 8 << 20


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with make_pool(tmp_path_factory.mktemp("pool"), 4) as made:
        yield made


@pytest.fixture(autouse=True)
def _as_new(pool: Pool) -> None:
    pool.reset()


@pytest.fixture
def blob() -> Blob:
    content = os.urandom(SIZE)

    def read(offset: int) -> Iterator[bytes]:
        return (content[start : start + (1 << 20)] for start in range(offset, SIZE, 1 << 20))

    return Blob(hashlib.sha256(content).hexdigest(), SIZE, read)


@asynccontextmanager
async def seats(pool: Pool) -> AsyncIterator[list[Seat]]:
    python = host_settings(pool.hosts[0])["python"]
    endpoints = [
        SshEndpoint(host.address, host_keys=(host.host_key,), identity_file=str(pool.client_key)) for host in pool.hosts
    ]
    reached = await asyncio.gather(*(connect(endpoint) for endpoint in endpoints))
    try:
        yield [
            Seat(host.name, HostSide(one, python, "~/.shunter"), host.address)
            for host, one in zip(pool.hosts, reached, strict=True)
        ]
    finally:
        await asyncio.gather(*(one.aclose() for one in reached))


def copies(pool: Pool, blob: Blob) -> list[str]:
    return [hashlib.sha256(cached(host, blob).read_bytes()).hexdigest() for host in pool.hosts]


def cached(host: Host, blob: Blob) -> Path:
    return host.folder / "root/.shunter/cache" / blob.digest


async def test_a_file_for_four_nodes_goes_over_the_uplink_once(pool: Pool, blob: Blob) -> None:
    seeder = Seeder()

    async with seats(pool) as nodes:
        await asyncio.gather(*(seeder.provide("job_1", seat, [blob]) for seat in nodes))

    assert copies(pool, blob) == [blob.digest] * 4
    assert seeder.uploaded_bytes == SIZE
    assert seeder.passed_bytes == 3 * SIZE


async def test_what_a_host_has_is_not_sent_again(pool: Pool, blob: Blob) -> None:
    async with seats(pool) as nodes:
        await Seeder().provide("job_1", nodes[0], [blob])
        later = Seeder()

        await later.provide("job_2", nodes[0], [blob])

    assert (later.uploaded_bytes, later.passed_bytes) == (0, 0)


async def test_an_upload_that_was_cut_off_goes_on_where_it_stopped(pool: Pool, blob: Blob) -> None:
    def fails_at_half(offset: int) -> Iterator[bytes]:
        for number, piece in enumerate(blob.read(offset)):
            if number == 4:
                raise OSError("the store is gone")
            yield piece

    first, second = Seeder(), Seeder()
    async with seats(pool) as nodes:
        with pytest.raises((CallFailed, OSError)):
            await first.provide("job_1", nodes[0], [Blob(blob.digest, SIZE, fails_at_half)])
        await second.provide("job_1", nodes[0], [blob])

    assert hashlib.sha256(cached(pool.hosts[0], blob).read_bytes()).hexdigest() == blob.digest
    assert second.uploaded_bytes < SIZE


async def test_a_node_that_the_others_cannot_reach_is_served_over_the_uplink(pool: Pool, blob: Blob) -> None:
    seeder = Seeder()
    for host in pool.hosts[:2]:
        host.firewall("tcp dport 1024-65535 ct state new reject")

    async with seats(pool) as nodes:
        await seeder.provide("job_1", nodes[0], [blob])
        await seeder.provide("job_1", nodes[1], [blob])

    assert copies(Pool(pool.bridge, pool.hosts[:2], pool.client_key), blob) == [blob.digest] * 2
    assert seeder.uploaded_bytes == 2 * SIZE
    assert seeder.passed_bytes == 0


async def test_bytes_that_are_something_else_are_refused_and_leave_nothing(pool: Pool, blob: Blob) -> None:
    wrong = Blob("0" * 64, SIZE, blob.read)

    async with seats(pool) as nodes:
        with pytest.raises(CallFailed, match="what came is not") as refused:
            await Seeder().provide("job_1", nodes[2], [wrong])

    assert refused.value.kind == "digest"
    assert not list((pool.hosts[2].folder / "root/.shunter/cache").glob("0000*"))
