"""PATCH with If-Match, DELETE of ended jobs, filters of lists, counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from shunter_schemas.states import Reason, State
from shunter_store.node import ledger
from shunter_store.storage import garbage
from shunter_store.tables import jobs as jobs_table
from sqlalchemy import update
from support.documents import changed, tiny_lm
from support.service_app import App
from support.store_rows import intend, new_job, new_node


async def change(app: App, job: dict[str, Any], body: Any, tag: str | None = "*", **more: Any) -> Any:
    headers = {} if tag is None else {"If-Match": tag}
    return await app.http.patch(f"/v1/jobs/{job['id']}", json=body, headers=headers, **more)


async def tag_of(app: App, job: dict[str, Any]) -> str:
    tag: str = (await app.http.get(f"/v1/jobs/{job['id']}")).headers["ETag"]
    return tag


# --- PATCH -------------------------------------------------------------------------------------------------------


async def test_labels_priority_and_limits_are_changed_and_shown(app: App) -> None:
    job = await app.submit(changed(tiny_lm(), {"labels": {"team": "nlp", "draft": "yes"}}))
    body = {"labels": {"draft": None, "run": "7"}, "priority": "high", "limits": {"max_duration_s": 90}}

    answer = await change(app, job, body, await tag_of(app, job))

    shown = answer.json()
    assert answer.status_code == 200
    assert (shown["labels"], shown["priority"]) == ({"team": "nlp", "run": "7"}, "high")
    assert (shown["spec"]["limits"]["max_duration_s"], shown["spec"]["priority"]) == (90, "high")
    assert shown["revision"] == job["revision"] + 1
    assert answer.headers["ETag"] == await tag_of(app, job)
    assert shown == (await app.http.get(f"/v1/jobs/{job['id']}")).json()
    last = (await app.http.get(f"/v1/jobs/{job['id']}/events")).json()["items"][-1]
    assert (last["type"], last["data"]["limits"]) == ("job.changed", {"max_duration_s": 90})


async def test_a_change_needs_to_say_which_state_it_changes(lite: App) -> None:
    job = await lite.submit()

    answer = await change(lite, job, {"priority": "high"}, tag=None)

    assert (answer.status_code, answer.json()["type"]) == (428, "/v1/problems/if_match_required")


async def test_a_change_of_a_state_that_is_past_is_refused(app: App) -> None:
    job = await app.submit()
    seen = await tag_of(app, job)
    await change(app, job, {"priority": "low"}, seen)

    stale = await change(app, job, {"priority": "high"}, seen)

    assert (stale.status_code, stale.json()["type"]) == (412, "/v1/problems/revision_changed")
    assert (await app.http.get(f"/v1/jobs/{job['id']}")).json()["priority"] == "low"


async def test_progress_does_not_outdate_a_tag(app: App) -> None:
    job = await app.submit()
    app.worker_part(job["id"]).run()
    seen = await tag_of(app, job)
    app.worker_part(job["id"]).report(5, 10, loss=1.0)

    answer = await change(app, job, {"limits": {"max_duration_s": 60}}, seen)

    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("tag", "status"),
    [('"1"', 200), ('W/"1-abc"', 200), ('"9", "1-0a"', 200), ("*", 200), ('"2"', 412), ("1", 412), ("no tag", 412)],
)
async def test_tags_are_read_by_their_revision(lite: App, tag: str, status: int) -> None:
    job = await lite.submit()

    assert (await change(lite, job, {"priority": "high"}, tag)).status_code == status


async def test_of_changes_at_once_from_one_state_one_is_taken(app: App) -> None:
    job = await app.submit()
    seen = await tag_of(app, job)

    answers = await asyncio.gather(*(change(app, job, {"labels": {"who": str(n)}}, seen) for n in range(6)))

    assert sorted(answer.status_code for answer in answers) == [200, 412, 412, 412, 412, 412]


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ({"limits": {"max_duration": 5}}, "/limits/max_duration", "did you mean `max_duration_s`"),
        ({"limits": {"max_cost_usd": 0}}, "/limits/max_cost_usd", "greater than 0"),
        ({"name": "x"}, "/name", "unknown field"),
        ({"labels": {"a": 1}}, "/labels/a", "must be a text"),
        ({"labels": {"a": "\u0000"}}, "/labels/a", "NUL"),
    ],
)
async def test_a_change_that_is_wrong_says_where(lite: App, body: Any, pointer: str, words: str) -> None:
    job = await lite.submit()

    answer = await change(lite, job, body)

    assert (answer.status_code, answer.json()["type"]) == (422, "/v1/problems/invalid_request")
    [fault] = answer.json()["errors"]
    assert fault["pointer"] == pointer
    assert words in fault["detail"]


async def test_a_merge_patch_may_say_that_it_is_one(lite: App) -> None:
    job = await lite.submit()
    kinds = ("application/merge-patch+json", "application/json", "text/plain")

    answers = [
        await lite.http.patch(
            f"/v1/jobs/{job['id']}", content=b'{"priority": "high"}', headers={"If-Match": "*", "Content-Type": kind}
        )
        for kind in kinds
    ]

    assert [answer.status_code for answer in answers] == [200, 200, 415]


async def test_an_ended_job_takes_labels_and_nothing_else(app: App) -> None:
    job = await app.submit()
    app.worker_part(job["id"]).end(Reason.DONE)

    labels = await change(app, job, {"labels": {"keep": "yes"}})
    limits = await change(app, job, {"limits": {"max_cost_usd": 5}})
    history = (await app.http.get(f"/v1/jobs/{job['id']}/events")).json()

    assert (labels.status_code, labels.json()["labels"]["keep"]) == (200, "yes")
    assert (limits.status_code, limits.json()["type"]) == (409, "/v1/problems/job_ended")
    assert history["items"][-1]["data"]["to"] == "succeeded"


async def test_a_change_from_another_project_does_nothing(lite: App) -> None:
    job = await lite.submit()

    answer = await lite.http.patch(
        f"/v1/jobs/{job['id']}", json={"priority": "high"}, headers={"If-Match": "*", **lite.add_key(project="theirs")}
    )

    assert answer.status_code == 404
    assert (await lite.http.get(f"/v1/jobs/{job['id']}")).json()["priority"] == "normal"


# --- DELETE ------------------------------------------------------------------------------------------------------


async def test_an_ended_job_is_deleted_with_all_that_belongs_to_it_and_its_ledger_stays(app: App) -> None:
    job = await app.submit()
    [node] = intend(app.database, job["id"], new_node())
    app.database.write(lambda conn: ledger.close_absent(conn, node.id, {"kind": "never_begun"}))
    part = app.worker_part(job["id"])
    part.run()
    part.report(3, 10, loss=1.5)
    part.print("hello\n")
    part.leave("model.bin", b"abc")
    part.end(Reason.DONE)

    answer = await app.http.delete(f"/v1/jobs/{job['id']}")
    again = await app.http.delete(f"/v1/jobs/{job['id']}")

    paths = ("", "/events", "/logs", "/metrics", "/artifacts", "/artifacts/model.bin", "/checkpoints")
    after = [(await app.http.get(f"/v1/jobs/{job['id']}{path}")).status_code for path in paths]
    assert (answer.status_code, answer.content, again.status_code) == (204, b"", 404)
    assert set(after) == {404}
    assert (await app.http.get("/v1/jobs")).json()["items"] == []
    assert len(app.database.read(lambda conn: ledger.of_job(conn, job["id"]))) == 1
    [row] = app.database.read(lambda conn: garbage.take(conn, 10))
    assert (row.below, row.kept) == (f"{job['id']}/", [])


async def test_a_job_that_lives_is_not_deleted(app: App) -> None:
    job = await app.submit()

    answer = await app.http.delete(f"/v1/jobs/{job['id']}")

    assert (answer.status_code, answer.json()["type"]) == (409, "/v1/problems/job_not_ended")
    assert (await app.http.get(f"/v1/jobs/{job['id']}")).status_code == 200


async def test_a_job_of_another_project_is_not_deleted(lite: App) -> None:
    job = await lite.submit()
    lite.worker_part(job["id"]).end(Reason.DONE)

    foreign = await lite.http.delete(f"/v1/jobs/{job['id']}", headers=lite.add_key(project="theirs"))
    reader = await lite.http.delete(f"/v1/jobs/{job['id']}", headers=lite.add_key(scopes=("jobs:read",)))

    assert (foreign.status_code, reader.status_code) == (404, 403)
    assert (await lite.http.get(f"/v1/jobs/{job['id']}")).status_code == 200


async def test_a_stream_of_a_job_ends_when_its_record_goes(lite: App) -> None:
    job = await lite.submit()
    waiting = asyncio.create_task(lite.http.get(f"/v1/jobs/{job['id']}", params={"wait_s": 20, "after_revision": 100}))
    await asyncio.to_thread(lite.worker_part(job["id"]).end, Reason.DONE)

    await lite.http.delete(f"/v1/jobs/{job['id']}")
    answer = await asyncio.wait_for(waiting, 10)

    assert answer.status_code == 404


# --- lists and counts --------------------------------------------------------------------------------------------


async def test_a_list_takes_every_filter(app: App) -> None:
    first = new_job(app.database, name="sweep-1", labels={"team": "nlp", "empty": ""}, created_by="ann")
    second = new_job(app.database, name="sweep-2", labels={"team": "vision"})
    other = new_job(app.database, name="other")
    known = {"provider": "local", "source_commit": "5f70bf18a086007016e948b04aed3b82103a36be"}
    its = jobs_table.c.id == second.id
    app.database.write(lambda conn: conn.execute(update(jobs_table).where(its).values(**known)))
    at = first.created_at.isoformat()

    async def names(**params: Any) -> list[str]:
        answer = await app.http.get("/v1/jobs", params=params)
        assert answer.status_code == 200, answer.text
        return [item["name"] for item in answer.json()["items"]]

    assert await names(label="team") == ["sweep-2", "sweep-1"]
    assert await names(label=["team", "empty="]) == ["sweep-1"]
    assert await names(name_prefix="sweep-") == ["sweep-2", "sweep-1"]
    assert await names(created_by="ann") == ["sweep-1"]
    assert await names(provider="local") == ["sweep-2"]
    assert await names(commit="5f70bf1") == ["sweep-2"]
    assert await names(created_before=at) == []
    assert await names(created_after="2020-01-01T00:00:00Z", name="other") == [other.name]


@pytest.mark.parametrize(
    ("params", "pointer", "words"),
    [
        ({"label": "=x"}, "/label", "must be `key=value`, or a key alone"),
        ({"commit": "HEAD"}, "/commit", "hexadecimal digits"),
        ({"created_after": "yesterday"}, "/created_after", "must be a moment"),
        ({"created_after": "1796014395"}, "/created_after", "must be a moment"),
        ({"name": "a\x00b"}, "/name", "must be a text"),
        ({"name_prefix": "x" * 300}, "/name_prefix", "must be a text"),
        ({"labels": "a"}, "/labels", "did you mean `label`"),
    ],
)
async def test_a_filter_that_is_wrong_says_so(lite: App, params: dict[str, str], pointer: str, words: str) -> None:
    answer = await lite.http.get("/v1/jobs", params=params)

    assert (answer.status_code, answer.json()["type"]) == (422, "/v1/problems/invalid_parameters")
    [fault] = answer.json()["errors"]
    assert fault["pointer"] == pointer
    assert words in fault["detail"]


async def test_pages_of_a_filtered_list_go_through_all_of_it(app: App) -> None:
    made = [new_job(app.database, name=f"job {n}", labels={"odd": str(n % 2)}) for n in range(9)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params: dict[str, Any] = {
            "limit": 2,
            "label": "odd=1",
            "state": ["queued", "running"],
            **({"cursor": cursor} if cursor else {}),
        }
        page = (await app.http.get("/v1/jobs", params=params)).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page.get("next_cursor")
        if cursor is None:
            break

    odd = sorted((job for job in made if job.labels["odd"] == "1"), key=lambda job: (job.created_at, job.id))
    assert seen == [job.id for job in reversed(odd)]


async def test_jobs_are_counted_by_state(app: App) -> None:
    await app.submit()
    paused = await app.submit()
    await app.http.post(f"/v1/jobs/{paused['id']}/pause")
    done = await app.submit()
    app.worker_part(done["id"]).end(Reason.DONE)

    counts = (await app.http.get("/v1/jobs/counts")).json()
    theirs = (await app.http.get("/v1/jobs/counts", headers=app.add_key(project="theirs"))).json()

    assert set(counts["states"]) == set(State)
    assert {state: number for state, number in counts["states"].items() if number} == {"queued": 2, "succeeded": 1}
    assert (counts["paused"], counts["total"]) == (1, 3)
    assert theirs["total"] == 0
