"""Retries, time-outs and errors of one request, against a small service that fails as it is told."""

from collections.abc import Callable

import httpx
import pytest
from shunter import errors
from shunter.connection import Connection
from shunter.transport import Retries, Transport

Answer = httpx.Response | Exception


class FailingService:
    """Answers each request with the next of its answers; the last one stays."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.bodies: list[bytes] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.bodies.append(request.read())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def transport_to(service: FailingService, pauses: list[float] | None = None, tries: int = 4) -> Transport:
    sleep: Callable[[float], None] = (pauses if pauses is not None else []).append
    return Transport(
        Connection("http://service.test", "shk_key"),
        retries=Retries(tries=tries, sleep=sleep),
        transport=httpx.MockTransport(service),
    )


def problem(status: int, slug: str = "some_slug", **more: object) -> httpx.Response:
    body = {"type": f"/v1/problems/{slug}", "title": "A title", "status": status, **more}
    return httpx.Response(status, json=body, headers={"Content-Type": "application/problem+json"})


OK = httpx.Response(200, json={"fine": True})
REFUSED = httpx.ConnectError("connection refused")


def test_a_get_is_tried_again_until_it_is_answered() -> None:
    pauses: list[float] = []
    service = FailingService(REFUSED, problem(503), problem(502), OK)

    answer = transport_to(service, pauses).get("/v1/jobs")

    assert answer.json() == {"fine": True}
    assert len(service.requests) == 4
    assert all(0 <= pause <= bound for pause, bound in zip(pauses, (0.25, 0.5, 1.0), strict=True))


def test_a_post_keeps_its_idempotency_key_and_its_body_over_all_tries() -> None:
    service = FailingService(httpx.ReadTimeout("slow"), problem(503), OK)

    transport_to(service).post("/v1/jobs", content=b"{}")
    transport_to(service).post("/v1/jobs", content=b"{}")

    keys = [request.headers["Idempotency-Key"] for request in service.requests]
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]
    assert service.bodies == [b"{}"] * 4


def test_a_streamed_body_is_opened_anew_for_each_try() -> None:
    service = FailingService(REFUSED, OK)

    transport_to(service).post("/v1/bundles", content=lambda: iter([b"one", b"two"]), headers={"Content-Length": "6"})

    assert service.bodies == [b"onetwo", b"onetwo"]


def test_an_idempotency_key_of_the_caller_is_used() -> None:
    service = FailingService(OK)

    transport_to(service).post("/v1/jobs", content=b"{}", idempotency_key="mine")

    assert service.requests[0].headers["Idempotency-Key"] == "mine"


def test_the_key_goes_along_with_every_request() -> None:
    service = FailingService(OK)

    transport_to(service).get("/v1/jobs", params={"limit": 3, "name": None})

    (request,) = service.requests
    assert request.headers["Authorization"] == "Bearer shk_key"
    assert str(request.url) == "http://service.test/v1/jobs?limit=3"


def test_after_the_last_try_a_silent_service_is_unreachable() -> None:
    service = FailingService(REFUSED)

    with pytest.raises(errors.Unreachable, match=r"http://service\.test does not answer: connection refused") as raised:
        transport_to(service, tries=3).get("/v1/jobs")

    assert len(service.requests) == 3
    assert "shunter up" in raised.value.hint


def test_what_the_service_asks_to_wait_is_waited_up_to_a_bound() -> None:
    pauses: list[float] = []
    patient = problem(429)
    patient.headers["Retry-After"] = "7"
    endless = problem(503)
    endless.headers["Retry-After"] = "86400"
    service = FailingService(patient, endless, OK)

    transport_to(service, pauses).get("/v1/jobs")

    assert 7 <= pauses[0] <= 20
    assert pauses[1] == 20


@pytest.mark.parametrize(
    ("status", "kind"),
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
def test_a_refusal_is_not_tried_again_and_has_its_own_class(status: int, kind: type[errors.ApiError]) -> None:
    service = FailingService(problem(status, "the_slug", detail="what happened", request_id="req_1"))

    with pytest.raises(kind, match="what happened") as raised:
        transport_to(service).get("/v1/jobs")

    assert type(raised.value) is kind
    assert (raised.value.status, raised.value.slug, raised.value.request_id) == (status, "the_slug", "req_1")
    assert len(service.requests) == 1


def test_a_refused_document_carries_its_faults_and_is_an_invalid_document() -> None:
    faults = [{"pointer": "/name", "detail": "too long"}, {"pointer": "/resources/gpus", "detail": "not a number"}]
    service = FailingService(problem(422, "invalid_document", errors=faults))

    with pytest.raises(errors.InvalidDocument) as raised:
        transport_to(service).post("/v1/jobs", content=b"{}")

    assert [tuple(fault) for fault in raised.value.faults] == [
        ("/name", "too long"),
        ("/resources/gpus", "not a number"),
    ]


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"", b"[1]", b'"text"', b'{"errors": "x", "type": 3}'])
def test_an_answer_that_is_no_problem_document_still_makes_an_error(body: bytes) -> None:
    service = FailingService(httpx.Response(500, content=body))

    with pytest.raises(errors.ServerError, match="the service answered 500"):
        transport_to(service).get("/v1/jobs")


def test_a_stream_that_breaks_in_the_middle_is_unreachable() -> None:
    def broken() -> object:
        yield b"data: 1\n\n"
        raise httpx.RemoteProtocolError("peer closed connection")

    service = FailingService(httpx.Response(200, content=broken()))  # type: ignore[arg-type]  # an iterator of bytes

    with (
        pytest.raises(errors.Unreachable, match="peer closed connection"),
        transport_to(service).stream("/v1/x") as response,
    ):
        list(response.iter_lines())


def test_existence_is_asked_without_a_body() -> None:
    assert transport_to(FailingService(OK)).exists("/v1/bundles/bun_1")
    assert not transport_to(FailingService(problem(404))).exists("/v1/bundles/bun_1")
    with pytest.raises(errors.Unauthorized):
        transport_to(FailingService(problem(401))).exists("/v1/bundles/bun_1")
