"""Agents that listen are told at once that something else is wanted of their nodes, and of nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from shunter_schemas.node_sync import ListenAnswer, ListenRequest, Phase
from shunter_service.app import create_app
from shunter_service.node.listeners import AGAIN_S, FULL_AGAIN_S, Listeners
from shunter_store import migrate
from shunter_store.installation import signing
from shunter_store.node.ledger import NodeRow
from support.exchanges import one_node, row, want
from support.service_app import App, served_app

LISTEN = "/v1/node/listen"
LONG_S = 60.0
"""Longer than any test takes: what ends sooner has been told something."""


@pytest.fixture(params=["the door", "the application"])
async def http(lite: App, request: pytest.FixtureRequest) -> AsyncIterator[httpx.AsyncClient]:
    """What agents ask, past the door too."""
    if request.param == "the door":
        yield lite.http
        return
    transport = httpx.ASGITransport(create_app(lite.service), raise_app_exceptions=False)  # type: ignore[arg-type]  # two spellings of ASGI
    async with httpx.AsyncClient(transport=transport, base_url="http://shunter", timeout=30) as behind:
        yield behind


def asking(app: App, node: NodeRow, *, wait_s: float = LONG_S) -> dict[str, Any]:
    """Body and headers of a request that says that the node has heard everything so far."""
    token = signing.node_sync_token(app.service.signing_key, node.token)
    heard = row(app.database, node).desired_at.timestamp()
    body = ListenRequest(node=node.token, since=heard, wait_s=wait_s).model_dump_json()
    return {"content": body, "headers": {"Authorization": f"Bearer {token}"}}


async def until(holds: Callable[[], bool]) -> None:
    """Wait for it."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)


async def listening(app: App, asked: Any) -> asyncio.Task[Any]:
    """The request, once it is held."""
    before = app.service.listeners.count
    task: asyncio.Task[Any] = asyncio.create_task(asked)
    await until(lambda: app.service.listeners.count > before or task.done())
    return task


async def test_an_agent_hears_of_what_is_decided_while_it_listens(lite: App, http: httpx.AsyncClient) -> None:
    node, other = one_node(lite.database), one_node(lite.database)
    asked = await listening(lite, http.post(LISTEN, **asking(lite, node)))
    untouched = await listening(lite, lite.http.post(LISTEN, **asking(lite, other)))

    want(lite.database, node, Phase.STOP)
    answer = await asked

    assert (answer.status_code, answer.json()) == (200, {"changed": True, "again_in_s": 0.0})
    assert not untouched.done()
    untouched.cancel()


async def test_what_was_decided_before_it_listened_is_told_at_once(lite: App) -> None:
    node = one_node(lite.database)
    asked = asking(lite, node)
    want(lite.database, node, Phase.STOP)

    answer = await lite.http.post(LISTEN, **asked)

    assert answer.json()["changed"] is True


async def test_without_news_the_answer_comes_when_the_time_is_over(lite: App) -> None:
    node = one_node(lite.database)

    answer = await lite.http.post(LISTEN, **asking(lite, node, wait_s=0.3))

    assert answer.json() == {"changed": False, "again_in_s": 0.0}
    assert lite.service.listeners.count == 0


@pytest.mark.parametrize(
    ("body", "token", "status"),
    [
        (None, "sns_of-nobody", 403),
        (None, "", 401),
        (b"{", None, 400),
        (b'{"node": "shn-1"}', None, 422),
        (b'{"node": "shn-1", "since": NaN, "wait_s": 1}', None, 422),
        (b'{"node": "shn-1", "since": 1.0, "wait_s": -1}', None, 422),
    ],
    ids=["another's token", "no token", "no JSON", "no message", "no number", "no time"],
)
async def test_who_may_not_listen_is_refused_and_not_held(
    lite: App, http: httpx.AsyncClient, body: bytes | None, token: str | None, status: int
) -> None:
    asked = asking(lite, one_node(lite.database))
    asked["content"] = asked["content"] if body is None else body
    if token is not None:
        asked["headers"] = {"Authorization": f"Bearer {token}" if token else ""}

    answer = await http.post(LISTEN, **asked)

    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert lite.service.listeners.count == 0


async def test_a_node_that_listens_twice_is_held_once(lite: App) -> None:
    node = one_node(lite.database)
    first = await listening(lite, lite.http.post(LISTEN, **asking(lite, node)))

    second = asyncio.create_task(lite.http.post(LISTEN, **asking(lite, node)))
    sent_away = await first
    want(lite.database, node, Phase.STOP)
    told = await second

    assert sent_away.json() == {"changed": False, "again_in_s": AGAIN_S}
    assert told.json()["changed"] is True


async def test_no_more_are_held_than_there_is_room_for(lite: App) -> None:
    listeners = Listeners(lite.database, b"secret", every_s=0.02, most=1)
    listeners.start()
    held = asyncio.create_task(listeners.listen(ListenRequest(node="shn-1", since=1.0, wait_s=LONG_S)))
    await until(lambda: listeners.count == 1)

    refused = await listeners.listen(ListenRequest(node="shn-2", since=1.0, wait_s=LONG_S))
    await listeners.close()

    assert refused == ListenAnswer(changed=False, again_in_s=FULL_AGAIN_S)
    assert await held == ListenAnswer(changed=False, again_in_s=AGAIN_S)


async def test_nobody_listens_and_nothing_is_asked_of_the_database(lite: App) -> None:
    await lite.http.post(LISTEN, **asking(lite, one_node(lite.database), wait_s=0.1))

    async with asyncio.timeout(30):
        before = -1
        while lite.database.statements != before:  # looks come every 20 ms while somebody listens
            before = lite.database.statements
            await asyncio.sleep(0.3)


async def test_a_service_that_ends_answers_those_that_listen(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shunter.db'}"
    migrate.upgrade(url)
    async with served_app(tmp_path, url) as app:
        node = one_node(app.database)
        held = await listening(app, app.http.post(LISTEN, **asking(app, node)))

        await app.service.listeners.close()
        answer = await held
        after = await app.http.post(LISTEN, **asking(app, node))

    assert answer.json() == after.json() == {"changed": False, "again_in_s": AGAIN_S}
