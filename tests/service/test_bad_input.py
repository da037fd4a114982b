"""Bad input of every kind: a 4xx problem document with pointers, and nothing stored."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from shunter_schemas.api import Problem
from shunter_store.accounts import providers
from shunter_store.tables import idempotency, jobs, outbox
from sqlalchemy import Connection, func, select
from support.documents import BUNDLE_ID, changed, script, tiny_lm
from support.service_app import JSON, App

DEEP = b'{"version": ' * 5000 + b"1" + b"}" * 5000
TWICE = json.dumps(tiny_lm()).encode().replace(b'"version"', b'"version": "1", "version"', 1)
BIG = json.dumps(changed(tiny_lm(), {"labels": {"x": "y" * (1 << 20)}})).encode()

UNREADABLE = {
    "nothing": b"",
    "no JSON": b"version: 1",
    "cut off": b'{"version": "1"',
    "not UTF-8": b'{"name": "\xff"}',
    "NaN": b'{"version": NaN}',
    "too deep": DEEP,
}

# What is changed in the example, and a pointer that must be among those of the answer.
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"workload.modle": {}}, "/workload/modle"),
    "a missing field": ({"version": None}, "/version"),
    "a boolean for a number": ({"resources.cpu_processes": True}, "/resources/cpu_processes"),
    "a text for a number": ({"workload.batch.global_size": "16"}, "/workload/batch/global_size"),
    "a batch that does not divide": ({"workload.batch.global_size": 15}, "/workload/batch/global_size"),
    "a negative number": ({"limits.max_duration_s": -1}, "/limits/max_duration_s"),
    "NUL in a text": ({"labels": {"team": "a\x00b"}}, "/labels/team"),
    "half a surrogate pair": ({"labels": {"team": "\ud800"}}, "/labels/team"),
    "an escape for terminals": ({"labels": {"team": "\x1b[2J"}}, "/labels/team"),
    "a time beyond all dates": ({"limits": {"max_queue_s": 1e30}}, "/limits/max_queue_s"),
    "a name that is too long": ({"name": "n" * 64}, "/name"),
    "an unknown kind": ({"strategy": {"kind": "magic"}}, "/strategy/kind"),
    "not available yet": ({"keep_alive_s": 60}, "/keep_alive_s"),
    "a folder on the user's machine": ({"source": {"kind": "folder", "path": "."}}, "/source/kind"),
    "a path on the user's machine": ({"inputs": {"train": {"from": "./data"}}}, "/inputs/train/from"),
    "an unknown provider": ({"placement": {"providers": ["local", "mars"]}}, "/placement/providers/1"),
    "an unknown bundle": ({"source": {"kind": "bundle", "id": BUNDLE_ID}}, "/source/id"),
    "an unknown bundle as input": ({"inputs": {"a": {"from": f"bundle:{BUNDLE_ID}"}}}, "/inputs/a/from"),
}


async def post(app: App, body: bytes, **headers: str) -> httpx.Response:
    return await app.http.post("/v1/jobs", content=body, headers={**JSON, **headers})


def stored_rows(app: App) -> int:
    def count(conn: Connection) -> int:
        tables = (jobs, outbox, idempotency)
        return sum(conn.execute(select(func.count()).select_from(table)).scalar_one() for table in tables)

    return app.database.read(count)


def problem(answer: httpx.Response) -> Problem:
    """The problem document, whose shape is checked by the way."""
    assert answer.headers["Content-Type"] == "application/problem+json"
    found = Problem.model_validate_json(answer.content)
    assert found.status == answer.status_code
    assert found.request_id == answer.headers["X-Request-Id"]
    return found


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_a_body_that_cannot_be_read_is_a_400(lite: App, body: bytes) -> None:
    answer = await post(lite, body, **{"Idempotency-Key": "k"})

    assert answer.status_code == 400
    assert problem(answer).errors[0].pointer == ""
    assert stored_rows(lite) == 0


@pytest.mark.parametrize(("changes", "pointer"), WRONG.values(), ids=WRONG.keys())
async def test_a_wrong_document_is_a_422_that_points_at_the_fault(
    app: App, changes: dict[str, Any], pointer: str
) -> None:
    document = changed(tiny_lm(), changes)

    answer = await post(app, json.dumps(document).encode(), **{"Idempotency-Key": "k"})

    assert answer.status_code == 422
    assert pointer in [error.pointer for error in problem(answer).errors]
    assert stored_rows(app) == 0


async def test_a_key_that_stands_twice_is_a_422(lite: App) -> None:
    answer = await post(lite, TWICE)

    assert answer.status_code == 422
    assert problem(answer).errors[0].pointer == "/version"


@pytest.mark.parametrize("value", [[], "text", 1, None, True])
async def test_a_body_that_is_no_object_is_a_422(lite: App, value: Any) -> None:
    answer = await post(lite, json.dumps(value).encode())

    assert answer.status_code == 422
    assert problem(answer).errors


async def test_the_answer_never_repeats_what_may_be_secret(lite: App) -> None:
    document = changed(tiny_lm(), {"environment": {"variables": {"TOKEN": ["hunter2"]}}})

    answer = await post(lite, json.dumps(document).encode())

    assert answer.status_code == 422
    assert "hunter2" not in answer.text


async def test_a_script_without_source_names_both_places(lite: App) -> None:
    document = script()
    del document["source"]

    answer = await post(lite, json.dumps(document).encode())

    assert answer.status_code == 422
    assert problem(answer).errors


async def test_an_unknown_provider_is_answered_with_those_that_exist(lite: App) -> None:
    answer = await post(lite, json.dumps(changed(tiny_lm(), {"placement": {"providers": ["mars"]}})).encode())

    assert "cloud, local" in problem(answer).errors[0].detail


@pytest.mark.parametrize(("jurisdiction", "status"), [("EU", 201), ("DE", 201), ("US", 422)])
async def test_a_jurisdiction_that_nobody_offers_is_refused(app: App, jurisdiction: str, status: int) -> None:
    for name in ("local", "cloud"):
        offers = [{"instance_type": "any", "jurisdiction": "DE"}]
        app.database.write(
            lambda conn, name=name, offers=offers: providers.record_health(conn, name, name, True, offers=offers)  # type: ignore[misc]
        )

    document = changed(tiny_lm(), {"placement": {"jurisdictions": [jurisdiction]}})
    answer = await post(app, json.dumps(document).encode())

    assert answer.status_code == status
    assert status == 201 or problem(answer).errors[0].pointer == "/placement/jurisdictions"


async def test_a_jurisdiction_is_left_to_the_planner_while_nobody_knows_the_offers(lite: App) -> None:
    document = changed(tiny_lm(), {"placement": {"jurisdictions": ["US"]}})

    answer = await post(lite, json.dumps(document).encode())

    assert answer.status_code == 201


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_another_content_type_is_a_415(lite: App, content_type: str) -> None:
    answer = await post(lite, json.dumps(tiny_lm()).encode(), **{"Content-Type": content_type})

    assert answer.status_code == 415
    assert "application/json" in (problem(answer).detail or "")
    assert stored_rows(lite) == 0


async def test_json_with_a_charset_is_fine(lite: App) -> None:
    answer = await post(lite, json.dumps(tiny_lm()).encode(), **{"Content-Type": "application/json; charset=utf-8"})

    assert answer.status_code == 201


async def test_a_body_with_a_content_encoding_is_a_415(lite: App) -> None:
    answer = await post(lite, b"\x1f\x8b", **{"Content-Encoding": "gzip"})

    assert answer.status_code == 415


async def test_a_body_over_a_megabyte_is_a_413_before_it_is_parsed(lite: App) -> None:
    answer = await post(lite, BIG)

    assert answer.status_code == 413
    assert problem(answer).type.endswith("/too_large")
    assert stored_rows(lite) == 0


async def test_a_body_without_announced_length_is_cut_off_at_the_limit(lite: App) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b" " * 65536

    answer = await lite.http.post("/v1/jobs", content=pieces(), headers=JSON)

    assert answer.status_code == 413


@pytest.mark.parametrize("key", ["", "k" * 256, "with space"])
async def test_an_unusable_idempotency_key_is_a_422(lite: App, key: str) -> None:
    answer = await post(lite, json.dumps(tiny_lm()).encode(), **{"Idempotency-Key": key})

    assert answer.status_code == 422
    assert problem(answer).errors[0].pointer == "/Idempotency-Key"
    assert stored_rows(lite) == 0


def bad_parameters() -> Iterator[tuple[str, str]]:
    yield "/v1/jobs?limit=0", "/limit"
    yield "/v1/jobs?limit=501", "/limit"
    yield "/v1/jobs?limit=many", "/limit"
    yield "/v1/jobs?limit=99999999999999999999999999", "/limit"
    yield "/v1/jobs?state=sleeping", "/state"
    yield "/v1/jobs?label==nlp", "/label"
    yield "/v1/jobs?label=a%20b", "/label"
    yield "/v1/jobs?commit=HEAD", "/commit"
    yield "/v1/jobs?created_after=now", "/created_after"
    yield "/v1/jobs?label=a=1&label=a=2", "/label"
    yield "/v1/jobs?name=%00", "/name"
    yield "/v1/jobs?cursor=zzz", "/cursor"
    yield "/v1/jobs?cursor=W10", "/cursor"
    yield "/v1/jobs?cursor=WzFlMzA4LCJqb2IiXQ", "/cursor"
    yield "/v1/jobs?limt=5", "/limt"
    yield "/v1/jobs/{id}?wait_s=61", "/wait_s"
    yield "/v1/jobs/{id}?wait_s=nan", "/wait_s"
    yield "/v1/jobs/{id}?after_revision=-1", "/after_revision"
    yield "/v1/jobs/{id}/events?after=-1", "/after"
    yield "/v1/jobs/{id}/events?after=9223372036854775808", "/after"
    yield "/v1/jobs/{id}/logs?rank=-2", "/rank"
    yield "/v1/jobs/{id}/logs?stream=stdin", "/stream"
    yield "/v1/jobs/{id}/logs?tail=-1", "/tail"
    yield "/v1/jobs/{id}/logs?line=0", "/line"
    yield "/v1/jobs/{id}/metrics?max_points=0", "/max_points"
    yield "/v1/jobs/{id}/artifacts?cursor=WzFd", "/cursor"
    yield "/v1/me?verbose=1", "/verbose"
    yield "/readyz?verbose=1", "/verbose"


@pytest.mark.parametrize(("path", "pointer"), list(bad_parameters()))
async def test_a_wrong_query_parameter_is_a_422_that_names_it(app: App, path: str, pointer: str) -> None:
    job = await app.submit()

    answer = await app.http.get(path.replace("{id}", job["id"]))

    assert answer.status_code == 422
    assert problem(answer).type == "/v1/problems/invalid_parameters"
    assert [error.pointer for error in problem(answer).errors] == [pointer]


async def test_a_value_that_is_none_of_a_few_is_told_all_of_them(lite: App) -> None:
    answer = await lite.http.get("/v1/jobs?state=runing&state=failed")

    assert answer.status_code == 422
    assert "`state`: must be one of queued, provisioning, starting, running, " in problem(answer).errors[0].detail


@pytest.mark.parametrize("value", ["NaN", "abc", "-5", "1e3", "9" * 30])
async def test_a_last_event_id_that_is_no_number_is_ignored_or_refused(lite: App, value: str) -> None:
    job = await lite.submit()

    answer = await lite.http.get(f"/v1/jobs/{job['id']}/events", headers={"Last-Event-ID": value})

    assert answer.status_code in (200, 422)


@pytest.mark.parametrize("path", ["/nope", "/v1", "/v1/jobs/a/b/c/d", "/v1/bundles/bun_x", "/v1/problems/none", "/%00"])
async def test_what_does_not_exist_is_a_404_problem(lite: App, path: str) -> None:
    answer = await lite.http.get(path)

    assert answer.status_code == 404
    assert problem(answer).type == "/v1/problems/not_found"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/jobs", {"GET", "HEAD", "POST", "OPTIONS"}),
        ("PUT", "/v1/bundles", {"POST", "OPTIONS"}),
        ("POST", "/healthz", {"GET", "HEAD", "OPTIONS"}),
    ],
)
async def test_another_method_is_a_405_that_says_which_are_allowed(
    lite: App, method: str, path: str, allowed: set[str]
) -> None:
    answer = await lite.http.request(method, path)
    options = await lite.http.options(path)

    assert answer.status_code == 405
    assert problem(answer).type == "/v1/problems/method_not_allowed"
    assert set(answer.headers["Allow"].split(", ")) == allowed
    assert set(options.headers["Allow"].split(", ")) == allowed


@pytest.mark.parametrize(
    ("options", "pointer", "words"),
    [
        ({"mars": {"a": 1}}, "/placement/options/mars", "no provider `mars` is configured"),
        ({"cloud": {"dsk_gib": 1}}, "/placement/options/cloud/dsk_gib", "it takes: disk_gib"),
        ({"local": {"a": 1}}, "/placement/options/local/a", "it takes none"),
    ],
)
async def test_an_option_that_no_plugin_knows_is_refused_by_its_place(
    lite: App, options: dict[str, Any], pointer: str, words: str
) -> None:
    for name, known in (("cloud", ["disk_gib"]), ("local", [])):
        capabilities = {"bills": True, "options": known}
        lite.database.write(
            lambda conn, name=name, capabilities=capabilities: providers.record_health(  # type: ignore[misc]
                conn, name, name, True, capabilities=capabilities
            )
        )
    document = changed(tiny_lm(), {"placement": {"options": options}})

    answer = await post(lite, json.dumps(document).encode())

    (fault,) = problem(answer).errors
    assert (answer.status_code, fault.pointer) == (422, pointer)
    assert words in fault.detail


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        (["cloud"], "nodes of cloud run no container images; of the configured ones local would"),
        (["local"], ""),
        ([], ""),
    ],
)
async def test_an_image_that_no_node_would_run_is_refused_at_once(lite: App, placement: list[str], words: str) -> None:
    for name in ("cloud", "local"):
        declared = {"bills": True, "runs_images": name == "local"}
        lite.database.write(
            lambda conn, name=name, declared=declared: providers.record_health(  # type: ignore[misc]
                conn, name, name, True, capabilities=declared
            )
        )
    wishes = {"environment": {"image": "ghcr.io/acme/train:1"}, "placement": {"providers": placement}}

    answer = await post(lite, json.dumps(changed(tiny_lm(), wishes)).encode())

    if not words:
        assert answer.status_code == 201, answer.text
        return
    (fault,) = problem(answer).errors
    assert (answer.status_code, fault.pointer) == (422, "/environment/image")
    assert words in fault.detail


async def test_an_image_may_go_to_an_instance_that_nobody_has_read_yet(lite: App) -> None:
    document = changed(tiny_lm(), {"environment": {"image": "ghcr.io/acme/train:1"}})

    answer = await post(lite, json.dumps(document).encode())

    assert answer.status_code == 201, answer.text


async def test_an_option_that_the_plugin_knows_is_taken(lite: App) -> None:
    capabilities = {"bills": True, "options": ["disk_gib"]}
    lite.database.write(lambda conn: providers.record_health(conn, "cloud", "cloud", True, capabilities=capabilities))
    document = changed(tiny_lm(), {"placement": {"options": {"cloud": {"disk_gib": 7}}}})

    answer = await post(lite, json.dumps(document).encode())

    assert answer.status_code == 201, answer.text
