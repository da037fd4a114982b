"""Retries, time-outs and errors of one request, against a small service that fails as it is told."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from shunter import Client, errors
from shunter.transport import Retries
from support.both_clients import Kind, client_of

Answer = httpx.Response | Exception

QUICK = Retries(first_pause_s=0.0)


class FailingService:
    """Answers each request with the next of its answers; the last one stays."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.bodies: list[bytes] = []

    def answer_with(self, *answers: Answer) -> None:
        self.answers = list(answers)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.bodies.append(request.read())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def problem(status: int, slug: str = "some_slug", **more: object) -> httpx.Response:
    body = {"type": f"/v1/problems/{slug}", "title": "A title", "status": status, **more}
    return httpx.Response(status, json=body, headers={"Content-Type": "application/problem+json"})


PROVIDERS = {"items": [{"name": "local", "plugin": "local", "status": "ok"}]}
BUNDLE = {"id": "bun_1", "size_bytes": 6}
JOB = {
    "id": "job_1",
    "name": "a",
    "state": "queued",
    "created_at": "2026-11-30T04:53:15Z",
    "updated_at": "2026-11-30T04:53:15Z",
    "revision": 1,
    "spec": {},
}
REFUSED = httpx.ConnectError("connection refused")


@pytest.fixture
def service() -> FailingService:
    return FailingService()


@pytest.fixture
def client(kind: Kind, service: FailingService) -> Iterator[Client]:
    with client_of(kind, "http://service.test", "shk_key", handler=service, retries=QUICK) as client:
        yield client


def ok(body: object) -> httpx.Response:
    return httpx.Response(200, json=body)


def test_a_get_is_tried_again_until_it_is_answered(client: Client, service: FailingService) -> None:
    service.answer_with(REFUSED, problem(503), problem(502), ok(PROVIDERS))

    (provider,) = client.providers()

    assert provider.name == "local"
    assert len(service.requests) == 4


def test_a_post_keeps_its_idempotency_key_and_its_body_over_all_tries(client: Client, service: FailingService) -> None:
    service.answer_with(httpx.ReadTimeout("slow"), problem(503), ok(JOB))

    client.submit({"a": 1})
    client.submit({"a": 1})

    keys = [request.headers["Idempotency-Key"] for request in service.requests]
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]
    assert service.bodies == [b'{"a": 1}'] * 4


def test_a_streamed_body_is_opened_anew_for_each_try(client: Client, service: FailingService, tmp_path: Path) -> None:
    (folder := tmp_path / "code").mkdir()
    (folder / "train.py").write_text("print()")
    service.answer_with(problem(404), REFUSED, httpx.Response(201, json=BUNDLE))

    client.upload_bundle(folder)

    assert service.bodies[1] == service.bodies[2]
    assert [request.headers["Content-Length"] for request in service.requests[1:]] == [str(len(service.bodies[1]))] * 2


def test_an_idempotency_key_of_the_caller_is_used(client: Client, service: FailingService) -> None:
    service.answer_with(ok(JOB))

    client.submit({}, idempotency_key="mine")

    assert service.requests[0].headers["Idempotency-Key"] == "mine"


def test_a_change_is_sent_once_since_a_second_one_would_be_refused(client: Client, service: FailingService) -> None:
    service.answer_with(ok(JOB), httpx.ReadTimeout("slow"), ok(JOB))

    with pytest.raises(errors.Unreachable):
        client.update("job_1", priority="high")

    assert [request.method for request in service.requests] == ["GET", "PATCH"]


def test_the_key_goes_along_and_parameters_without_a_value_stay_out(client: Client, service: FailingService) -> None:
    service.answer_with(ok({"items": []}))

    assert list(client.list(page_size=3, states=["queued", "running"])) == []

    (request,) = service.requests
    assert request.headers["Authorization"] == "Bearer shk_key"
    assert str(request.url) == "http://service.test/v1/jobs?state=queued&state=running&limit=3"


def test_after_the_last_try_a_silent_service_is_unreachable(client: Client, service: FailingService) -> None:
    service.answer_with(REFUSED)

    with pytest.raises(errors.Unreachable, match=r"http://service\.test does not answer: connection refused") as raised:
        client.get("job_1")

    assert len(service.requests) == 4
    assert "shunter up" in raised.value.hint


def test_what_the_service_asks_to_wait_is_waited_up_to_a_bound() -> None:
    pauses: list[float] = []
    patient = problem(429)
    patient.headers["Retry-After"] = "7"
    endless = problem(503)
    endless.headers["Retry-After"] = "86400"
    service = FailingService(patient, endless, ok(PROVIDERS))

    with client_of("blocking", "http://service.test", "k", handler=service, retries=Retries(sleep=pauses.append)) as it:
        it.providers()

    assert 7 <= pauses[0] <= 20
    assert pauses[1] == 20


def test_a_pause_that_lasts_is_told_before_it_begins() -> None:
    told: list[tuple[str, float]] = []
    full = problem(503, detail="the disk is full")
    full.headers["Retry-After"] = "20"
    retries = Retries(sleep=lambda _: None, tell=lambda error, pause_s: told.append((str(error), pause_s)))
    service = FailingService(REFUSED, full, ok(PROVIDERS))

    with client_of("blocking", "http://service.test", "k", handler=service, retries=retries) as it:
        it.providers()

    assert told == [("the disk is full", 20)]


def test_pauses_grow_with_the_failures() -> None:
    pauses: list[float] = []
    service = FailingService(REFUSED, REFUSED, REFUSED, ok(PROVIDERS))

    with client_of("blocking", "http://service.test", "k", handler=service, retries=Retries(sleep=pauses.append)) as it:
        it.providers()

    assert all(0 <= pause <= bound for pause, bound in zip(pauses, (0.25, 0.5, 1.0), strict=True))


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, errors.BadRequest),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (412, errors.RevisionMismatch),
        (413, errors.TooLarge),
        (415, errors.ApiError),
        (422, errors.Unprocessable),
        (428, errors.RevisionMismatch),
        (500, errors.ServerError),
    ],
)
def test_a_refusal_is_not_tried_again_and_has_its_own_class(
    client: Client, service: FailingService, status: int, error: type[errors.ApiError]
) -> None:
    service.answer_with(problem(status, "the_slug", detail="what happened", request_id="req_1"))

    with pytest.raises(error, match="what happened") as raised:
        client.get("job_1")

    assert type(raised.value) is error
    assert (raised.value.status, raised.value.slug, raised.value.request_id) == (status, "the_slug", "req_1")
    assert len(service.requests) == 1


def test_a_refused_document_carries_its_faults_and_is_an_invalid_document(
    client: Client, service: FailingService
) -> None:
    faults = [{"pointer": "/name", "detail": "too long"}, {"pointer": "/resources/gpus", "detail": "not a number"}]
    service.answer_with(problem(422, "invalid_document", errors=faults))

    with pytest.raises(errors.InvalidDocument) as raised:
        client.submit({})

    assert [tuple(fault) for fault in raised.value.faults] == [
        ("/name", "too long"),
        ("/resources/gpus", "not a number"),
    ]


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"", b"[1]", b'"text"', b'{"errors": "x", "type": 3}'])
def test_an_answer_that_is_no_problem_document_still_makes_an_error(
    client: Client, service: FailingService, body: bytes
) -> None:
    service.answer_with(httpx.Response(500, content=body))

    with pytest.raises(errors.ServerError, match="the service answered 500"):
        client.get("job_1")


def test_something_else_that_answers_is_said_plainly(client: Client, service: FailingService) -> None:
    service.answer_with(httpx.Response(200, text="<html>It works!</html>"))

    with pytest.raises(errors.ShunterError, match="did not answer a Job") as raised:
        client.get("job_1")

    assert "is it a Shunter service" in raised.value.hint


def test_whether_a_bundle_is_there_is_asked_without_a_body(
    client: Client, service: FailingService, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print()")
    service.answer_with(httpx.Response(200))

    client.upload_bundle(str(tmp_path))

    assert [request.method for request in service.requests] == ["HEAD"]
