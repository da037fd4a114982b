"""Many topics over one stream: told as it happens, taken up at any place, ended topic by topic."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from shunter_schemas.states import Reason
from shunter_service.web import sse
from shunter_store.job import events, wishes
from shunter_store.tables import api_keys
from sqlalchemy import delete
from support.event_streams import Follower, Told, eventually, following, read_whole
from support.service_app import App, served_app
from support.store_rows import new_job

UNKNOWN = "job_01kb9m4t8zq3v5x7y9a1c3e5g7"


@pytest.fixture
async def served(tmp_path: Path, database_url: str) -> AsyncIterator[App]:
    async with served_app(tmp_path, database_url, keep_alive_s=0.2) as running:
        yield running


def stream(*topics: str) -> str:
    return f"/v1/stream?topics={','.join(topics)}"


def all_of(job_id: str) -> list[str]:
    return [f"job:{job_id}:{kind}" for kind in ("events", "logs", "metrics")]


def finished_job(app: App, *, lines: int = 5, steps: int = 5) -> str:
    job_id = new_job(app.database).id
    part = app.worker_part(job_id)
    part.run()
    for step in range(steps):
        part.report(step, steps, loss=float(step))
    for first in range(0, lines, 100):
        part.print("".join(f"line {line + 1}\n" for line in range(first, min(first + 100, lines))))
    part.end(Reason.DONE)
    return job_id


def numbers(follower: Follower, job_id: str) -> dict[str, list[int]]:
    """By kind, the numbers of what was told."""
    events_, logs, metrics = all_of(job_id)
    return {
        "events": [event["seq"] for event in follower.of(events_, "event")],
        "logs": [line["line"] for line in follower.of(logs, "line")],
        "metrics": [step for update in follower.of(metrics, "metrics") for step in update["series"][0]["steps"]],
    }


async def test_one_stream_tells_of_all_topics_and_ends_behind_the_last(served: App) -> None:
    job_id, other = finished_job(served), finished_job(served, lines=2, steps=0)

    found = await asyncio.wait_for(read_whole(served, stream(*all_of(job_id), f"job:{other}:logs")), 30)

    assert numbers(found, job_id) == {"events": list(range(1, 8)), "logs": [1, 2, 3, 4, 5], "metrics": [0, 1, 2, 3, 4]}
    assert [line["text"] for line in found.of(f"job:{other}:logs", "line")] == ["line 1", "line 2"]
    ends = {one.data["topic"]: one.data["end"] for one in found.messages if "end" in one.data}
    assert ends == dict.fromkeys([*all_of(job_id), f"job:{other}:logs"], "ended")


async def test_a_stream_that_broke_anywhere_is_taken_up_without_a_gap_and_without_a_repetition(served: App) -> None:
    job_id = finished_job(served, lines=3, steps=3)
    whole = await read_whole(served, stream(*all_of(job_id)))

    for cut in range(len(whole.found)):
        before, after = Follower(whole.found[: cut + 1]), None
        after = await read_whole(served, stream(*all_of(job_id)), **{"Last-Event-ID": before.place})

        first, second, complete = (numbers(one, job_id) for one in (before, after, whole))
        assert {kind: first[kind] + second[kind] for kind in complete} == complete, cut


async def test_a_cursor_holds_after_a_restart_and_for_other_topics_in_another_order(
    tmp_path: Path, database_url: str
) -> None:
    async with served_app(tmp_path / "a", database_url) as first:
        job = new_job(first.database).id
        part = first.worker_part(job)
        part.run()
        part.report(1, 10, loss=1.0)
        async with following(first, stream(*all_of(job))) as follower:
            await follower.until(lambda: numbers(follower, job)["metrics"] == [1], "the point is told")
            await follower.until(lambda: len(numbers(follower, job)["events"]) == 4, "the events are told")
            place = follower.place

    async with served_app(tmp_path / "a", database_url) as second:
        other = finished_job(second, lines=1)
        part = second.worker_part(job)
        part.report(2, 10, loss=0.5)
        part.end(Reason.DONE)
        found = await read_whole(
            second, stream(f"job:{other}:logs", *reversed(all_of(job))), **{"Last-Event-ID": place}
        )

    assert numbers(found, job) == {"events": [5, 6, 7], "logs": [], "metrics": [2]}
    assert len(found.of(f"job:{other}:logs", "line")) == 1


async def test_a_topic_begins_behind_the_place_that_it_names(served: App) -> None:
    job_id = finished_job(served)

    found = await read_whole(
        served, stream(f"job:{job_id}:events@5", f"job:{job_id}:logs@3", f"job:{job_id}:metrics@4")
    )

    assert numbers(found, job_id) == {"events": [6, 7], "logs": [4, 5], "metrics": [4]}


async def test_jobs_tells_new_jobs_changes_and_progress_and_never_ends(served: App) -> None:
    old = new_job(served.database).id
    async with following(served, stream("jobs", f"job:{UNKNOWN}:events")) as follower:
        new = (await served.submit())["id"]
        await follower.until(lambda: states(follower, new) == ["queued"], "the new job is told")
        part = served.worker_part(old)
        await asyncio.to_thread(part.run)
        await follower.until(lambda: states(follower, old)[-1:] == ["running"], "its change is told")
        await asyncio.to_thread(part.report, 7, 10, loss=1.0)
        await follower.until(lambda: told_of(follower, old)[-1].get("step") == 7, "its progress is told")
        await asyncio.to_thread(part.end, Reason.DONE)
        await follower.until(lambda: states(follower, old)[-1] == "succeeded", "its end is told")

        revisions = [job["revision"] for job in told_of(follower, old)]
        assert revisions == sorted(revisions)
        assert not follower.ended


def told_of(follower: Follower, job_id: str) -> list[dict[str, Any]]:
    return [job for job in follower.of("jobs", "job") if job["id"] == job_id]


def states(follower: Follower, job_id: str) -> list[str]:
    return [job["state"] for job in told_of(follower, job_id)]


async def test_what_jobs_missed_while_nobody_listened_is_told_afterwards(served: App) -> None:
    ends, moves, same = (new_job(served.database).id for _ in range(3))
    served.worker_part(moves).run()
    async with following(served, stream("jobs")) as follower:
        place = follower.place
    served.worker_part(ends).run()
    served.worker_part(ends).end(Reason.DONE)
    served.worker_part(moves).report(3, 9, loss=1.0)
    new = new_job(served.database).id

    async with following(served, stream("jobs"), **{"Last-Event-ID": place}) as again:
        await again.until(lambda: {ends, moves, new} <= {job["id"] for job in again.of("jobs", "job")}, "all are told")

    assert states(again, ends) == ["succeeded"]
    assert told_of(again, moves)[-1]["step"] == 3
    assert len(told_of(again, same)) <= 1


async def test_jobs_tells_which_records_are_deleted_and_what_was_missed_of_it_afterwards(served: App) -> None:
    foreign = served.add_key(project="another")
    now, later = finished_job(served), finished_job(served)
    async with following(served, stream("jobs")) as follower, following(served, stream("jobs"), **foreign) as other:
        await served.http.delete(f"/v1/jobs/{now}")
        await follower.until(lambda: follower.of("jobs", "deleted") == [now], "the deletion is told")
        place = follower.place
        theirs = (await served.submit(headers=foreign))["id"]
        await other.until(lambda: states(other, theirs), "the other project's stream lives")
    begun = (await served.http.get(stream("jobs"))).json()["cursor"]
    await served.http.delete(f"/v1/jobs/{later}")
    new = new_job(served.database).id

    async with following(served, stream("jobs"), **{"Last-Event-ID": place}) as again:
        await again.until(lambda: states(again, new), "what came last is told")
    page = (await served.http.get(f"{stream('jobs')}&cursor={begun}")).json()

    assert other.of("jobs", "deleted") == []
    assert later in again.of("jobs", "deleted")
    assert later in [item["deleted"] for item in page["items"] if "deleted" in item]
    assert now not in [job["id"] for job in again.of("jobs", "job")]


async def test_jobs_of_another_project_are_not_told_and_its_topics_are_not_found(served: App) -> None:
    foreign = served.add_key(project="another")
    job_id = (await served.submit())["id"]

    async with following(served, stream("jobs", f"job:{job_id}:events"), **foreign) as follower:
        mine = (await served.submit(headers=foreign))["id"]
        await served.submit()
        await follower.until(lambda: states(follower, mine), "the own job is told")

    assert {job["id"] for job in follower.of("jobs", "job")} == {mine}
    assert follower.of(f"job:{job_id}:events", "end") == ["not_found"]
    assert follower.of(f"job:{job_id}:events", "event") == []


async def test_a_stream_of_nothing_that_exists_says_so_and_ends(served: App) -> None:
    found = await read_whole(served, stream(f"job:{UNKNOWN}:logs", f"job:{UNKNOWN}:metrics"))

    assert [one.data["end"] for one in found.messages] == ["not_found", "not_found"]


async def test_a_job_that_is_deleted_under_a_stream_ends_its_topics_alone(served: App) -> None:
    doomed, other = finished_job(served), new_job(served.database).id
    async with following(served, stream(f"job:{doomed}:logs@99", "jobs", f"job:{other}:events")) as follower:
        await follower.until(lambda: follower.of(f"job:{other}:events", "event"), "the other job is told")
        await follower.until(lambda: follower.of(f"job:{doomed}:logs", "end") == ["ended"], "its output ended")

    live = new_job(served.database).id
    async with following(served, stream(f"job:{live}:events", f"job:{other}:events")) as follower:
        await follower.until(lambda: follower.of(f"job:{live}:events", "event"), "the job is told")
        part = served.worker_part(live)
        await asyncio.to_thread(part.run)
        # Ended and deleted between two looks of the service.
        await asyncio.to_thread(part.end, Reason.DONE)
        await served.http.delete(f"/v1/jobs/{live}")
        await follower.until(lambda: follower.of(f"job:{live}:events", "end"), "its topic ends")
        assert follower.of(f"job:{live}:events", "end")[0] in ("deleted", "ended")
        assert not follower.ended


async def test_ten_thousand_events_at_once_come_whole_and_in_order(served: App) -> None:
    job_id = new_job(served.database).id
    async with following(served, stream(f"job:{job_id}:events")) as follower:
        new = [("note", {"number": number}) for number in range(10_000)]
        await asyncio.to_thread(served.database.write, lambda conn: events.append_all(conn, job_id, new))
        await follower.until(lambda: len(follower.messages) == 10_001, "all are told")

    assert numbers(follower, job_id)["events"] == list(range(1, 10_002))


async def test_two_processes_tell_the_same(tmp_path: Path, database_url: str) -> None:
    async with (
        served_app(tmp_path, database_url) as one,
        served_app(tmp_path, database_url) as another,
        following(another, stream("jobs")) as follower,
    ):
        job_id = (await one.submit())["id"]
        await follower.until(lambda: states(follower, job_id) == ["queued"], "the other process tells the job")
        await one.http.post(f"/v1/jobs/{job_id}/cancel")
        await follower.until(lambda: len(states(follower, job_id)) > 1, "and its change")


@pytest.mark.parametrize(
    ("topics", "says"),
    [
        ("job", "did you mean `jobs`?"),
        ("jbos", "did you mean `jobs`?"),
        (f"job:{UNKNOWN}:event", f"did you mean `job:{UNKNOWN}:events`?"),
        (f"job:{UNKNOWN}:metric", f"did you mean `job:{UNKNOWN}:metrics`?"),
        (f"job:{UNKNOWN}", "there are `jobs`, `job:ID:events`, `job:ID:logs` and `job:ID:metrics`"),
        (f"job:{UNKNOWN}:logs@end", "the number of the last log that was seen"),
        ("job:job_1:logs", "`job_1` in `job:job_1:logs` is no job's id"),
        ("jobs,jobs", "`jobs` is named twice"),
        (f"job:{UNKNOWN}:logs,job:{UNKNOWN}:logs@4", "is named twice"),
        ("jobs,", "there are `jobs`"),
        (",".join(f"job:{UNKNOWN}:events@{number}" for number in range(33)), "more than the 32"),
    ],
)
async def test_a_topic_that_is_not_understood_is_a_422_that_names_the_way_out(
    lite: App, topics: str, says: str
) -> None:
    answer = await lite.http.get("/v1/stream", params={"topics": topics}, headers={"Accept": "text/event-stream"})

    assert answer.status_code == 422
    assert says in answer.json()["detail"]
    assert answer.json()["errors"][0]["pointer"] == "/topics"


@pytest.mark.parametrize("cursor", ["x", "812", "AUx8s1kVKgAB", "ü", "a" * 600, "YWFhYWFhYWFhYWFh"])
async def test_a_cursor_that_was_not_given_out_is_a_400_that_names_the_way_out(lite: App, cursor: str) -> None:
    by_query = await lite.http.get("/v1/stream", params={"topics": "jobs", "cursor": cursor})
    by_header = await lite.http.get("/v1/stream?topics=jobs", headers={b"Last-Event-ID": cursor.encode()})

    for answer in (by_query, by_header):
        assert (answer.status_code, answer.json()["type"]) == (400, "/v1/problems/bad_cursor")
        assert "open the stream without one" in answer.json()["detail"]


async def test_a_cursor_stays_short_with_as_many_topics_as_may_be(lite: App) -> None:
    topics = ",".join(f"job:{new_job(lite.database).id}:metrics@{2**49}" for _ in range(32))

    page = (await lite.http.get("/v1/stream", params={"topics": topics})).json()

    assert len(page["cursor"]) <= 600


async def test_the_poll_twin_tells_the_same_page_by_page(served: App) -> None:
    job_id = finished_job(served, lines=700)
    whole = await read_whole(served, stream(*all_of(job_id)))

    pages, cursor = Follower(), None
    while True:
        params = {"topics": ",".join(all_of(job_id)), **({"cursor": cursor} if cursor else {})}
        page = (await served.http.get("/v1/stream", params=params)).json()
        pages.found += [Told("", "message", item) for item in page["items"]]
        cursor = page["cursor"]
        if page["ended"]:
            break

    assert numbers(pages, job_id) == numbers(whole, job_id)


async def test_the_poll_twin_of_jobs_begins_now_and_goes_on_by_its_cursor(served: App) -> None:
    new_job(served.database)
    begun = (await served.http.get(stream("jobs"))).json()
    job_id = (await served.submit())["id"]

    page = (await served.http.get(f"{stream('jobs')}&cursor={begun['cursor']}")).json()

    assert begun["items"] == []
    assert job_id in [item["job"]["id"] for item in page["items"]]
    assert not page["ended"]


async def test_a_quiet_stream_sends_comments_and_a_shutdown_ends_it(tmp_path: Path, sqlite_url: str) -> None:
    async with served_app(tmp_path, sqlite_url, keep_alive_s=0.1) as served:
        reading = asyncio.create_task(read_whole(served, stream("jobs", f"job:{new_job(served.database).id}:logs")))
        await eventually(lambda: served.service.tailer._projects, "the stream is open")
        await asyncio.sleep(0.3)

    found = await asyncio.wait_for(reading, 30)

    assert [one.event for one in found.found].count("comment") >= 2


async def test_a_database_that_goes_away_for_a_while_breaks_no_stream(
    served: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = new_job(served.database).id
    async with following(served, stream(f"job:{job_id}:events")) as follower:
        await follower.until(lambda: numbers(follower, job_id)["events"] == [1], "the first event is told")
        with monkeypatch.context() as away:
            away.setattr(served.service.db, "read", unreachable)
            served.database.write(lambda conn: wishes.request_cancel(conn, job_id, by="tests"))
            await follower.until(lambda: follower.found[-1].event == "comment", "the stream is kept alive")
        await follower.until(lambda: len(numbers(follower, job_id)["events"]) > 1, "the next event is told")


def unreachable(_: object) -> object:
    raise ConnectionError("the database is away")


async def test_a_stream_ends_soon_after_its_key_was_revoked(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "_KEY_EVERY_S", 0.1)
    async with served_app(tmp_path, sqlite_url, keep_alive_s=0.1, key_cache_s=0) as served:
        another = served.add_key()
        async with following(served, stream("jobs"), **another) as revoked, following(served, stream("jobs")) as kept:
            served.database.write(lambda conn: conn.execute(delete(api_keys).where(api_keys.c.name == "another")))
            await revoked.until(lambda: revoked.ended, "the stream has ended")

            assert not kept.ended


@pytest.mark.parametrize("topics", [None, ""])
async def test_topics_have_to_be_named(lite: App, topics: str | None) -> None:
    answer = await lite.http.get("/v1/stream", params={"topics": topics} if topics is not None else {})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/topics"


async def test_messages_are_those_of_the_description(served: App) -> None:
    from shunter_schemas.api import StreamMessage

    found = await read_whole(served, stream(*all_of(finished_job(served))))

    for one in found.messages:
        StreamMessage.model_validate_json(json.dumps(one.data))
