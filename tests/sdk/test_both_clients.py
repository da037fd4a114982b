"""`Client` and `AsyncClient` offer the same: the same methods, parameters, defaults and answers."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, cast

import httpx
import pytest
import shunter
from shunter import AsyncClient, Client
from shunter_schemas.states import Reason
from support.api_process import ApiProcess
from support.both_clients import AwaitedMock
from support.documents import tiny_lm

NAMES = sorted(name for name in dir(Client) if not name.startswith("_"))


def test_both_have_the_same_methods() -> None:
    assert sorted(name for name in dir(AsyncClient) if not name.startswith("_")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_method_takes_and_answers_the_same_in_both(name: str) -> None:
    blocking, awaiting = _function(Client, name), _function(AsyncClient, name)

    ours, theirs = inspect.signature(blocking), inspect.signature(awaiting)

    assert ours.parameters == theirs.parameters
    assert theirs.return_annotation.removeprefix("Async") == ours.return_annotation
    assert inspect.iscoroutinefunction(awaiting) != (
        isinstance(inspect.getattr_static(Client, name), property) or "Iterator" in ours.return_annotation
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_method_says_what_it_is_in_both(name: str) -> None:
    first, *_ = inspect.getdoc(getattr(Client, name)).splitlines()  # type: ignore[union-attr]  # every one has some

    assert inspect.getdoc(getattr(AsyncClient, name)) == first


def test_both_are_made_with_the_same_arguments() -> None:
    def names(kind: type[Any]) -> list[tuple[str, Any]]:
        return [(each.name, each.default) for each in inspect.signature(kind).parameters.values()]

    assert names(Client) == names(AsyncClient)


def test_what_the_package_offers_is_a_closed_list() -> None:
    assert [name for name in dir(shunter) if not name.startswith("__")] == [
        "AsyncClient",
        "Client",
        "Connection",
        "ShunterError",
        "errors",
        "find_connection",
    ]


async def test_many_requests_are_under_way_at_once() -> None:
    under_way, most = 0, 0

    async def answer(_: httpx.Request) -> httpx.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return httpx.Response(200, json={"states": {}, "total": 0})

    async with AsyncClient("http://service.test", "k", transport=AwaitedMock(answer)) as client:
        await asyncio.gather(*(client.counts() for _ in range(8)))

    assert most == 8


def _function(owner: type, name: str) -> Callable[..., Any]:
    found = inspect.getattr_static(owner, name)
    return cast("Callable[..., Any]", found.fget if isinstance(found, property) else found)


async def test_waiting_can_be_cancelled_and_the_client_goes_on(api: ApiProcess) -> None:
    async with AsyncClient(api.url, api.key) as client:
        job = await client.submit(tiny_lm())

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.wait(job.id), 0.3)

        assert (await client.get(job.id)).state == "queued"


async def test_jobs_are_waited_for_side_by_side_in_one_thread(api: ApiProcess) -> None:
    async with AsyncClient(api.url, api.key) as client:
        jobs = [await client.submit(tiny_lm()) for _ in range(4)]
        waiting = [asyncio.create_task(client.wait(job.id, timeout_s=30)) for job in jobs]
        for job in jobs:
            part = api.worker_part(job.id)
            part.run()
            part.end(Reason.DONE)

        ended = await asyncio.gather(*waiting)

    assert [job.state for job in ended] == ["succeeded"] * 4


async def test_leaving_an_iteration_leaves_the_client_usable(api: ApiProcess) -> None:
    async with AsyncClient(api.url, api.key) as client:
        job = await client.submit(tiny_lm())

        async for event in client.follow_events(job.id):
            assert event.seq == 1
            break

        assert (await client.get(job.id)).id == job.id
