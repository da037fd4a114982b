"""The door for agents' exchanges answers as the application behind it does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from shunter_service.app import create_app
from shunter_store.node.ledger import NodeRow
from support.exchanges import one_node
from support.node_messages import boot, points, sync_request
from support.service_app import App

SYNC = "/v1/node/sync"


@pytest.fixture
async def behind(lite: App) -> AsyncIterator[httpx.AsyncClient]:
    """The same service without the door."""
    transport = httpx.ASGITransport(create_app(lite.service), raise_app_exceptions=False)  # type: ignore[arg-type]  # two spellings of ASGI
    async with httpx.AsyncClient(transport=transport, base_url="http://shunter") as http:
        yield http


def headers(node: NodeRow) -> dict[str, str]:
    return {"Authorization": f"Bearer token:{node.token}", "Content-Type": "application/json"}


async def test_an_exchange_is_answered_alike(lite: App, behind: httpx.AsyncClient) -> None:
    node = one_node(lite.database)
    body = sync_request(node, boot(1), points(2, [1])).model_dump_json()

    through = await lite.http.post(SYNC, content=body, headers=headers(node))
    past = await behind.post(SYNC, content=body, headers=headers(node))

    assert through.status_code == past.status_code == 200
    assert through.headers["content-type"] == past.headers["content-type"]
    spread = {"next_sync_s": 0.0}
    assert through.json() | spread == past.json() | spread


@pytest.mark.parametrize(
    ("body", "token", "status"),
    [
        (b"{", None, 400),
        (b'{"protocol": 1}', None, 422),
        (b"{}", "token:nobody", 422),
        (b"", None, 400),
    ],
    ids=["no JSON", "no message", "neither", "nothing"],
)
async def test_what_is_no_exchange_is_refused_alike(
    lite: App, behind: httpx.AsyncClient, body: bytes, token: str | None, status: int
) -> None:
    node = one_node(lite.database)
    sent = headers(node) | ({"Authorization": f"Bearer {token}"} if token else {})

    answers = [await http.post(SYNC, content=body, headers=sent) for http in (lite.http, behind)]

    assert [answer.status_code for answer in answers] == [status, status]
    assert answers[0].json()["type"] == answers[1].json()["type"]
    assert answers[0].headers["content-type"] == "application/problem+json"


async def test_a_token_that_nobody_has_is_refused_and_another_method_too(lite: App) -> None:
    node = one_node(lite.database)
    body = sync_request(node).model_dump_json()

    nobody = await lite.http.post(SYNC, content=body, headers=headers(node) | {"Authorization": "Bearer nobody"})
    without = await lite.http.post(SYNC, content=body, headers={"Authorization": ""})
    read = await lite.http.get(SYNC, headers=headers(node))

    assert (nobody.status_code, without.status_code, read.status_code) == (401, 401, 405)


async def test_a_body_that_is_too_long_is_refused_before_it_is_read(lite: App) -> None:
    node = one_node(lite.database)
    longest = lite.service.settings.max_sync_bytes

    answer = await lite.http.post(SYNC, content=b" " * (longest + 1), headers=headers(node))

    assert answer.status_code == 413
