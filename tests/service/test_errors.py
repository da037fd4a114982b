import errno
import gzip

import httpx
import pytest
from shunter_schemas.api import Problem
from shunter_service.app import create_app
from shunter_service.web.problem_pages import PAGES
from shunter_service.web.problems import PROBLEMS
from shunter_store.sql.database import Database
from shunter_store.storage.objects import ObjectStore
from sqlalchemy.exc import OperationalError
from support.service_app import App


class Broken:
    """Stands for a database or an object store that raises whatever a test gives it."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def aread(self, _: object) -> object:
        raise self._error

    def put(self, *_: object) -> object:
        raise self._error


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (RuntimeError("password=hunter2"), 500, "internal_error"),
        (OperationalError("SELECT 1", {}, Exception("password=hunter2")), 503, "unavailable"),
    ],
)
async def test_a_failure_of_ours_is_a_problem_without_its_text(
    lite: App, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, slug: str
) -> None:
    await lite.http.get("/v1/me")
    monkeypatch.setattr(Database, "aread", Broken(error).aread)

    answer = await lite.http.get("/v1/jobs")

    found = Problem.model_validate_json(answer.content)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert (answer.status_code, found.type) == (status, f"/v1/problems/{slug}")
    assert found.request_id == answer.headers["X-Request-Id"]
    assert "hunter2" not in answer.text
    assert "Traceback" not in answer.text


async def test_a_database_that_is_away_is_worth_a_retry(lite: App, monkeypatch: pytest.MonkeyPatch) -> None:
    await lite.http.get("/v1/me")
    monkeypatch.setattr(Database, "aread", Broken(OperationalError("SELECT 1", {}, Exception("gone"))).aread)

    answer = await lite.http.get("/v1/jobs")

    assert answer.headers["Retry-After"] == "1"


async def test_a_full_disk_is_worth_a_retry_and_other_faults_of_the_machine_are_not(
    lite: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []
    for number in (errno.ENOSPC, errno.EIO):
        monkeypatch.setattr(ObjectStore, "put", Broken(OSError(number, "x")).put)
        answers.append(
            await lite.http.post(
                "/v1/bundles", content=gzip.compress(bytes(10240)), headers={"Content-Type": "application/gzip"}
            )
        )

    assert [answer.json()["type"] for answer in answers] == ["/v1/problems/unavailable", "/v1/problems/internal_error"]
    assert answers[0].headers["Retry-After"] == "30"


async def test_readiness_is_503_without_a_database_and_health_goes_on(
    lite: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Database, "aread", Broken(RuntimeError("gone")).aread)

    ready, healthy = await lite.http.get("/readyz"), await lite.http.get("/healthz")

    assert (ready.status_code, ready.json()["status"]) == (503, "unready")
    assert (healthy.status_code, healthy.text) == (200, "ok")


async def test_the_type_of_every_problem_can_be_looked_up(lite: App) -> None:
    for slug, kind in PROBLEMS.items():
        answer = await lite.http.get(f"/v1/problems/{slug}")

        assert answer.json() == {
            "type": f"/v1/problems/{slug}",
            "status": kind.status,
            "title": kind.title,
            "meaning": PAGES[slug].meaning,
            "way_out": PAGES[slug].way_out,
        }


async def test_every_answer_carries_a_request_id_of_its_own(lite: App) -> None:
    answers = [await lite.http.get(path) for path in ("/healthz", "/v1/me", "/nope", "/v1/jobs?x=1")]

    ids = {answer.headers["X-Request-Id"] for answer in answers}
    assert len(ids) == len(answers)
    assert all(id_.startswith("req_") for id_ in ids)


def test_no_route_is_open_by_accident() -> None:
    handlers = [handler for route in create_app(None).routes for handler in getattr(route, "route_handlers", ())]

    public = {str(handler).rpartition(".")[2] for handler in handlers if handler.opt.get("public")}

    assert public == {
        *("health", "readiness", "job_schema", "problem", "reason"),
        *("description", "page", "part"),  # what the API is, and a page to try it
        *("sync", "listen", "grants", "write", "read"),  # these ask for credentials of their own
        "options_handler",
    }


async def test_the_schema_of_the_job_document_is_served(lite: App) -> None:
    answer = await httpx.AsyncClient(transport=lite.http._transport, base_url="http://shunter").get(
        "/v1/schemas/job.json"
    )

    assert answer.headers["Content-Type"] == "application/schema+json"
    assert answer.json()["$schema"].startswith("https://json-schema.org/")
