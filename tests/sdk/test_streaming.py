"""`client.stream`: typed messages over one connection that breaks, and a service that is killed under it."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from shunter import Client, errors
from shunter.flows.streaming import TopicMessage
from shunter.retries import Retries
from shunter_schemas.states import Reason, State
from support.api_process import ApiProcess, running_api
from support.both_clients import Kind, client_of
from support.documents import tiny_lm
from support.waiting import wait_until

QUICK = Retries(first_pause_s=0.0)
JOB = "job_01kb9m4t8zq3v5x7y9a1c3e5g7"
TOPICS = [f"job:{JOB}:events", f"job:{JOB}:logs@4"]


def event(seq: int) -> dict[str, object]:
    return {"topic": TOPICS[0], "event": {"seq": seq, "at": "2026-11-30T04:53:15.123Z", "type": "tick", "data": {}}}


def end(topic: str) -> dict[str, object]:
    return {"topic": topic, "end": "ended"}


def wire(*messages: tuple[str, object]) -> bytes:
    return b"".join(f"id: {id_}\ndata: {json.dumps(data)}\n\n".encode() for id_, data in messages)


class Answers:
    """Answers to each connection in turn; a part that is an error breaks it."""

    def __init__(self, *connections: list[bytes | Exception] | httpx.Response) -> None:
        self._connections = list(connections)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._connections.pop(0)
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, content=self._parts(answer))

    def _parts(self, parts: list[bytes | Exception]) -> Iterator[bytes]:
        for part in parts:
            if isinstance(part, Exception):
                raise part
            yield part


def read(kind: Kind, answers: Answers, topics: list[str] = TOPICS, **options: str) -> list[TopicMessage]:
    with client_of(kind, "http://service.test", "shk_key", handler=answers, retries=QUICK) as client:
        return list(client.stream(topics, **options))  # type: ignore[arg-type]  # a cursor


def places(answers: Answers) -> list[str | None]:
    return [request.headers.get("Last-Event-ID") for request in answers.requests]


def test_a_stream_that_breaks_is_taken_up_at_its_last_place_even_one_without_a_message(kind: Kind) -> None:
    broken = httpx.RemoteProtocolError("peer closed connection")
    answers = Answers(
        [b"id: a\n\n", broken],
        [wire(("b", event(1)), ("c", event(2))) + b"id: z\ndata: {half a", broken],
        [wire(("d", event(3)), ("e", end(TOPICS[0])), ("f", end(TOPICS[1].partition("@")[0])))],
    )

    told = read(kind, answers)

    assert [(one.cursor, one.event.seq if one.event else one.end) for one in told] == [
        ("b", 1),
        ("c", 2),
        ("d", 3),
        ("e", "ended"),
        ("f", "ended"),
    ]
    assert places(answers) == [None, "a", "c"]
    assert {request.url.params["topics"] for request in answers.requests} == {",".join(TOPICS)}


def test_an_end_in_good_order_is_believed_only_when_every_topic_has_ended(kind: Kind) -> None:
    answers = Answers(
        [wire(("b", event(1)), ("c", end(TOPICS[0])))],
        [wire(("c", end(TOPICS[0])), ("f", end(TOPICS[1].partition("@")[0])))],
    )

    told = read(kind, answers, cursor="a")

    assert [one.cursor for one in told] == ["b", "c", "f"]
    assert places(answers) == ["a", "c"]


def test_a_job_that_is_told_again_as_it_was_is_left_out(kind: Kind) -> None:
    def job(revision: int) -> dict[str, object]:
        at = "2026-11-30T04:53:15.123Z"
        return {
            "topic": "jobs",
            "job": {"id": JOB, "name": "a", "state": "running", "created_at": at, "revision": revision},
        }

    last = wire(("e", end(f"job:{JOB}:events")))
    answers = Answers(
        [wire(("b", job(1)), ("c", job(1)), ("d", job(2)), ("d", job(1))) + last, *[]], httpx.Response(404)
    )

    with client_of(kind, "http://service.test", "shk_key", handler=answers, retries=QUICK) as client:
        told = client.stream(["jobs", f"job:{JOB}:events"])
        revisions = [one.job.revision for one in (next(told) for _ in range(3)) if one.job]

    assert revisions == [1, 2, 1]


def test_a_deletion_that_is_told_again_is_left_out(kind: Kind) -> None:
    def deleted(cursor: str) -> tuple[str, object]:
        return cursor, {"topic": "jobs", "deleted": JOB}

    answers = Answers([wire(deleted("b"), deleted("c"), ("d", event(1)))], httpx.Response(404))

    with client_of(kind, "http://service.test", "shk_key", handler=answers, retries=QUICK) as client:
        told = client.stream(["jobs", f"job:{JOB}:events"])
        found = [next(told) for _ in range(2)]

    assert [(one.cursor, one.deleted) for one in found] == [("b", JOB), ("d", None)]


def test_a_cursor_that_is_refused_is_an_error_and_not_tried_again(kind: Kind) -> None:
    answers = Answers(httpx.Response(400, json={"type": "/v1/problems/bad_cursor", "detail": "open it without one"}))

    with pytest.raises(errors.ApiError, match="open it without one"):
        read(kind, answers, cursor="nonsense")

    assert len(answers.requests) == 1


def test_everything_of_a_job_comes_typed_over_one_connection(client: Client, api: ApiProcess) -> None:
    job = client.submit(tiny_lm())
    part = api.worker_part(job.id)
    part.run()
    part.report(1, 2, loss=0.5)
    part.print("hello\n")
    part.end(Reason.DONE)

    told = list(client.stream([f"job:{job.id}:{kind}" for kind in ("events", "logs", "metrics")]))

    assert [one.event.seq for one in told if one.event] == list(range(1, 8))
    assert [one.line.text for one in told if one.line] == ["hello"]
    assert [one.metrics.series[0].values for one in told if one.metrics] == [(0.5,)]
    assert sum(one.end == "ended" for one in told) == 3
    again = list(client.stream([f"job:{job.id}:events"], cursor=told[0].cursor))
    assert {one.topic for one in again} == {f"job:{job.id}:events"}


def test_metric_points_are_followed_to_their_end(client: Client, api: ApiProcess) -> None:
    job = client.submit(tiny_lm())
    part = api.worker_part(job.id)
    part.run()
    for step in range(1, 4):
        part.report(step, 3, loss=1 / step)
    part.end(Reason.DONE)

    steps = [step for update in client.follow_metrics(job.id) for step in update.series[0].steps]

    assert steps == [1, 2, 3]


@pytest.mark.slow
def test_an_api_that_is_killed_under_a_stream_and_started_again_costs_nothing(tmp_path: Path) -> None:
    with running_api(tmp_path) as first:
        url, key = first.url, first.key
        with Client(url, key) as client:
            job = client.submit(tiny_lm())
            told: list[TopicMessage] = []
            topics = ["jobs", *(f"job:{job.id}:{kind}" for kind in ("events", "logs", "metrics"))]
            following = threading.Thread(target=_until_done, args=(client, topics, told))
            part = first.worker_part(job.id)
            part.run()
            part.print("before\n")
            part.report(1, 2, loss=1.0)
            following.start()
            wait_until(lambda: _texts(told) == ["before"], description="the line before is told")
            first.kill()
            part.print("while it was away\n")
            part.report(2, 2, loss=0.5)
            first.start_again()
            wait_until(lambda: len(_texts(told)) == 2, timeout_s=30, description="the line is told")
            part.print("after\n")
            part.end(Reason.DONE)
            following.join(30)

    assert not following.is_alive()
    assert [one.event.seq for one in told if one.event] == list(range(1, 8))
    assert _texts(told) == ["before", "while it was away", "after"]
    assert [step for one in told if one.metrics for step in one.metrics.series[0].steps] == [1, 2]
    assert [one.job.state for one in told if one.job][-1] == State.SUCCEEDED


def _until_done(client: Client, topics: list[str], told: list[TopicMessage]) -> None:
    for one in client.stream(topics):
        told.append(one)
        ended = {each.topic for each in told if each.end}
        if len(ended) == 3 and any(each.job and each.job.state is State.SUCCEEDED for each in told):
            return


def _texts(told: list[TopicMessage]) -> list[str]:
    return [one.line.text for one in told if one.line]
