"""HEAD, as load balancers and `curl -I` send it: what GET says, without the body."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from litestar.routes import HTTPRoute
from shunter_service.app import create_app
from support.event_streams import eventually
from support.service_app import App, served_app

CHANGES_BY_ITSELF = {"date", "x-request-id", "transfer-encoding", "server"}


@pytest.fixture
async def served(tmp_path: Path, sqlite_url: str) -> AsyncIterator[App]:
    async with served_app(tmp_path, sqlite_url) as app:
        yield app


def readable_paths(job_id: str) -> list[str]:
    """Every path that has a GET, with the job in it where there is one."""
    routes = [route for route in create_app(None).routes if isinstance(route, HTTPRoute) and "GET" in route.methods]
    paths = {route.path_format.replace("{job_id}", job_id).replace("{", "a-").replace("}", "") for route in routes}
    return sorted(paths)


def head_of(answer: httpx.Response) -> tuple[int, dict[str, str]]:
    kept = {name: value for name, value in answer.headers.items() if name.lower() not in CHANGES_BY_ITSELF}
    return answer.status_code, kept


async def test_head_is_answered_wherever_get_is_and_says_the_same(served: App) -> None:
    job_id = (await served.submit())["id"]
    paths = readable_paths(job_id)

    answers = {path: (await served.http.get(path), await served.http.head(path)) for path in paths}

    assert {"/healthz", "/readyz", "/v1/jobs", f"/v1/jobs/{job_id}", "/openapi.json"} <= set(paths)
    for path, (got, head) in answers.items():
        assert (path, head.content, head_of(head)) == (path, b"", head_of(got))


async def test_a_head_with_the_tag_that_is_current_is_a_304(served: App) -> None:
    path = f"/v1/jobs/{(await served.submit())['id']}"
    tag = (await served.http.head(path)).headers["ETag"]

    known = await served.http.head(path, headers={"If-None-Match": tag})
    other = await served.http.head(path, headers={"If-None-Match": '"another"'})

    assert (known.status_code, other.status_code) == (304, 200)
    assert known.headers["ETag"] == tag


async def test_the_head_of_a_stream_is_all_that_is_sent_of_it_and_nobody_follows(served: App) -> None:
    job_id = (await served.submit())["id"]

    for _ in range(2):  # on one connection: the first answer has an end
        head = await served.http.head(f"/v1/jobs/{job_id}/events", headers={"Accept": "text/event-stream"})
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"].startswith("text/event-stream")

    watches = served.service.tailer._watches
    await eventually(lambda: not any(watch.followers for watch in watches.values()), "nobody follows")


async def test_without_a_key_head_is_refused_as_get_is(served: App) -> None:
    head = await served.http.head("/v1/jobs", headers={"Authorization": ""})

    assert (head.status_code, head.content) == (401, b"")
    assert "WWW-Authenticate" in head.headers
