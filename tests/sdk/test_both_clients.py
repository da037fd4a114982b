"""`Client` and `AsyncClient` offer the same: the same methods, parameters, defaults and answers."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, cast

import httpx
import pytest
import shunter
from shunter import AsyncClient, Client
from support.both_clients import AwaitedMock

NAMES = sorted(name for name in vars(Client) if not name.startswith("_"))


def test_both_have_the_same_methods() -> None:
    assert sorted(name for name in vars(AsyncClient) if not name.startswith("_")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_method_takes_and_answers_the_same_in_both(name: str) -> None:
    blocking, awaiting = _function(Client, name), _function(AsyncClient, name)

    ours, theirs = inspect.signature(blocking), inspect.signature(awaiting)

    assert ours.parameters == theirs.parameters
    assert theirs.return_annotation.removeprefix("Async") == ours.return_annotation
    assert inspect.iscoroutinefunction(awaiting) != (
        isinstance(vars(Client)[name], property) or "Iterator" in ours.return_annotation
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
    found = vars(owner)[name]
    return cast("Callable[..., Any]", found.fget if isinstance(found, property) else found)
