"""What users ask of jobs: cancel, pause, resume, checkpoint, retry, one by one and many at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from shunter_schemas.node_sync import CheckpointUploaded
from shunter_schemas.states import Reason
from shunter_store.job import events
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change
from shunter_store.report import checkpoints
from shunter_store.sql.database import Database
from support.documents import changed, script, tiny_lm
from support.node_messages import file_entry
from support.service_app import App
from support.store_rows import new_job

WISHES = ("cancel", "pause", "resume", "checkpoint", "retry")


async def ask(app: App, job_id: str, wish: str, **more: Any) -> Any:
    return await app.http.post(f"/v1/jobs/{job_id}/{wish}", **more)


def save(database: Database, job_id: str, step: int) -> None:
    """A committed checkpoint."""
    part = CheckpointUploaded.model_validate({"step": step, "node_rank": 0, "files": [file_entry(job_id, f"w-{step}")]})
    assert database.write(lambda conn: checkpoints.add_part(conn, job_id, 1, part, num_nodes=1))


def told(app: App, job_id: str) -> list[str]:
    return [event.type for event in app.database.read(lambda conn: events.page(conn, job_id))]


# --- pause, resume, checkpoint -----------------------------------------------------------------------------------


async def test_a_pause_and_a_resume_are_kept_as_wishes(app: App) -> None:
    job = await app.submit()

    paused = await ask(app, job["id"], "pause")
    again = await ask(app, job["id"], "pause")
    listed = (await app.http.get("/v1/jobs")).json()["items"]
    resumed = await ask(app, job["id"], "resume")

    assert (paused.status_code, again.status_code, resumed.status_code) == (202, 202, 202)
    assert paused.json()["pause_requested_at"]
    assert paused.json()["revision"] == again.json()["revision"] == job["revision"] + 1
    assert paused.headers["ETag"] == again.headers["ETag"]
    assert listed[0]["paused"] is True
    assert "pause_requested_at" not in resumed.json()
    assert told(app, job["id"]) == ["job.created", "job.pause_requested", "job.resume_requested"]


async def test_a_job_at_rest_says_why_it_waits(app: App) -> None:
    job = await app.submit()
    await ask(app, job["id"], "pause")
    app.worker_part(job["id"]).apply(Change(set={"waiting": {"reason": "paused", "detail": "…", "tried": []}}))

    shown = (await app.http.get(f"/v1/jobs/{job['id']}")).json()

    assert (shown["state"], shown["waiting"]["reason"]) == ("queued", "paused")


async def test_a_checkpoint_is_asked_of_a_training_that_runs(app: App) -> None:
    job = await app.submit()
    early = await ask(app, job["id"], "checkpoint")
    app.worker_part(job["id"]).run()

    asked = await ask(app, job["id"], "checkpoint")

    assert (early.status_code, early.json()["type"]) == (409, "/v1/problems/not_running")
    assert "queued" in early.json()["detail"]
    assert asked.status_code == 202
    assert told(app, job["id"])[-1] == "job.checkpoint_requested"


async def test_a_script_cannot_be_asked_for_a_checkpoint(lite: App) -> None:
    job = new_job(lite.database, spec=script())
    lite.worker_part(job.id).run()

    answer = await ask(lite, job.id, "checkpoint")

    assert (answer.status_code, answer.json()["type"]) == (409, "/v1/problems/checkpoint_not_supported")
    assert "a script decides itself" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("checkpoint", "runs", "status"),
    [
        (None, True, 409),
        (None, False, 202),
        ({"complete_file": "done"}, True, 202),
    ],
)
async def test_a_script_is_paused_where_that_loses_nothing(
    lite: App, checkpoint: dict[str, Any] | None, runs: bool, status: int
) -> None:
    spec = changed(script(), {"workload.checkpoint": checkpoint})
    job = new_job(lite.database, spec=spec)
    if runs:
        lite.worker_part(job.id).run()

    answer = await ask(lite, job.id, "pause")

    assert answer.status_code == status
    assert status == 202 or answer.json()["type"] == "/v1/problems/not_resumable"


@pytest.mark.parametrize("wish", ["cancel", "pause"])
@pytest.mark.parametrize("path", [(), (Trigger.PLANNED,), (Trigger.PLANNED, Trigger.NODES_READY)])
async def test_every_live_state_takes_a_cancel_and_a_pause(lite: App, wish: str, path: tuple[Trigger, ...]) -> None:
    job = await lite.submit()
    for trigger in path:
        lite.worker_part(job["id"]).apply(Change(trigger))

    answer = await ask(lite, job["id"], wish)

    assert answer.status_code == 202


async def test_a_paused_job_is_cancelled(app: App) -> None:
    job = await app.submit()
    await ask(app, job["id"], "pause")

    answer = await ask(app, job["id"], "cancel")
    resumed = await ask(app, job["id"], "resume")

    assert answer.status_code == 202
    assert answer.json()["cancel_requested_at"]
    assert (resumed.status_code, resumed.json()["type"]) == (409, "/v1/problems/job_stopping")


@pytest.mark.parametrize("wish", ["pause", "resume", "checkpoint"])
async def test_a_job_that_ended_takes_no_wish(app: App, wish: str) -> None:
    job = await app.submit()
    app.worker_part(job["id"]).end(Reason.DONE)

    answer = await ask(app, job["id"], wish)

    assert (answer.status_code, answer.json()["type"]) == (409, "/v1/problems/job_ended")


@pytest.mark.parametrize("wish", WISHES)
async def test_a_wish_of_another_project_or_without_the_scope_does_nothing(lite: App, wish: str) -> None:
    job = await lite.submit()

    foreign = await ask(lite, job["id"], wish, headers=lite.add_key(project="theirs"))
    reader = await ask(lite, job["id"], wish, headers=lite.add_key(scopes=("jobs:read",)))
    unknown = await ask(lite, "job_01kb9m4t8zq3v5x7y9a1c3e5g7", wish)

    assert (foreign.status_code, reader.status_code, unknown.status_code) == (404, 403, 404)
    assert told(lite, job["id"]) == ["job.created"]


# --- repetitions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", ["cancel", "pause", "checkpoint"])
async def test_a_wish_with_a_key_is_answered_once(app: App, wish: str) -> None:
    job = await app.submit()
    app.worker_part(job["id"]).run()

    first = await ask(app, job["id"], wish, headers={"Idempotency-Key": "k1"})
    app.worker_part(job["id"]).report(1, 10, loss=1.0)
    second = await ask(app, job["id"], wish, headers={"Idempotency-Key": "k1"})

    assert (first.status_code, second.status_code) == (202, 202)
    assert second.content == first.content
    assert second.headers["Idempotent-Replayed"] == "true"
    assert len(told(app, job["id"])) == 5


async def test_one_key_serves_each_path_by_itself(lite: App) -> None:
    job, other = await lite.submit(), await lite.submit()

    answers = [
        await ask(lite, job_id, wish, headers={"Idempotency-Key": "k1"})
        for job_id, wish in ((job["id"], "pause"), (job["id"], "resume"), (other["id"], "pause"))
    ]

    assert [answer.status_code for answer in answers] == [202, 202, 202]
    assert all("Idempotent-Replayed" not in answer.headers for answer in answers)


async def test_a_refused_wish_leaves_its_key_free(lite: App) -> None:
    job = await lite.submit()
    await ask(lite, job["id"], "resume", headers={"Idempotency-Key": "k1"})
    await ask(lite, job["id"], "pause")

    answer = await ask(lite, job["id"], "resume", headers={"Idempotency-Key": "k1"})

    assert answer.status_code == 202


async def test_checkpoints_asked_at_once_with_one_key_are_one_wish(app: App) -> None:
    job = await app.submit()
    app.worker_part(job["id"]).run()

    answers = await asyncio.gather(
        *(ask(app, job["id"], "checkpoint", headers={"Idempotency-Key": "k1"}) for _ in range(8))
    )

    assert {answer.status_code for answer in answers} == {202}
    assert told(app, job["id"]).count("job.checkpoint_requested") == 1


# --- retry -------------------------------------------------------------------------------------------------------


async def ended(app: App, *steps: int, document: dict[str, Any] | None = None) -> dict[str, Any]:
    job = await app.submit(document)
    app.worker_part(job["id"]).run()
    for step in steps:
        save(app.database, job["id"], step)
    app.worker_part(job["id"]).end(Reason.DURATION_EXCEEDED)
    return job


async def test_an_ended_job_is_taken_up_again_as_a_new_one(app: App) -> None:
    old = await ended(app, 10, 20)

    answer = await ask(app, old["id"], "retry")

    new = answer.json()
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"/v1/jobs/{new['id']}"
    assert new["id"] != old["id"]
    assert (new["retry_of"], new["resumes_from_step"], new["state"]) == (old["id"], 20, "queued")
    assert new["spec"] == old["spec"]
    assert (await app.http.get(answer.headers["Location"])).json() == new
    saved = (await app.http.get(f"/v1/jobs/{new['id']}/checkpoints")).json()["items"]
    assert [(row["step"], row["generation"], row["from_job"]) for row in saved] == [(20, 0, old["id"])]


async def test_a_retry_may_begin_at_the_start_and_change_what_a_patch_may(app: App) -> None:
    old = await ended(app, 20, document=changed(tiny_lm(), {"limits": {"max_duration_s": 60}}))
    wanted = {"from": "start", "limits": {"max_duration_s": 600}, "labels": {"try": "2"}, "priority": "high"}

    new = (await ask(app, old["id"], "retry", json=wanted)).json()

    assert "resumes_from_step" not in new
    assert new["spec"]["limits"]["max_duration_s"] == 600
    assert (new["labels"]["try"], new["priority"]) == ("2", "high")


async def test_a_retry_with_a_key_makes_one_job(app: App) -> None:
    old = await ended(app)

    answers = await asyncio.gather(*(ask(app, old["id"], "retry", headers={"Idempotency-Key": "k1"}) for _ in range(6)))
    other = await ask(app, old["id"], "retry", json={"from": "start"}, headers={"Idempotency-Key": "k1"})

    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert (other.status_code, other.json()["type"]) == (422, "/v1/problems/idempotency_key_reused")


async def test_what_cannot_be_taken_up_is_a_conflict(app: App) -> None:
    live = await app.submit()
    bare = await ended(app)

    early = await ask(app, live["id"], "retry")
    without = await ask(app, bare["id"], "retry", json={"from": "checkpoint"})

    assert (early.status_code, early.json()["type"]) == (409, "/v1/problems/job_not_ended")
    assert (without.status_code, without.json()["type"]) == (409, "/v1/problems/no_checkpoint")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 422, "must be an object"),
        (b'{"from": "midle"}', 422, "/from: must be 'checkpoint' or 'start'"),
        (b'{"form": "start"}', 422, "did you mean `from`"),
        (b'{"limits": {"max_gpu_idle_s": 5}}', 422, "watching for idle GPUs"),
    ],
)
async def test_a_retry_that_is_wrong_says_where(lite: App, body: bytes, status: int, words: str) -> None:
    old = await ended(lite)

    answer = await ask(lite, old["id"], "retry", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code == status
    assert words in str(answer.json())


async def test_a_retry_needs_what_its_document_names_to_be_there_still(lite: App) -> None:
    job = new_job(lite.database, spec=script(), name="a script")
    lite.worker_part(job.id).end(Reason.USER_ERROR)

    answer = await ask(lite, job.id, "retry")

    assert answer.status_code == 422
    assert [fault["pointer"] for fault in answer.json()["errors"]] == ["/source/id", "/inputs/train/from"]


# --- many at once ------------------------------------------------------------------------------------------------


async def test_many_are_cancelled_by_label_and_state(app: App) -> None:
    mine = [await app.submit(changed(tiny_lm(), {"labels": {"sweep": "42"}})) for _ in range(3)]
    await app.submit()
    app.worker_part(mine[0]["id"]).run()

    answer = await app.http.post("/v1/jobs/cancel", json={"label": ["sweep=42"], "state": ["queued"]})

    assert answer.status_code == 202
    assert answer.json() == {"ids": [mine[2]["id"], mine[1]["id"]], "more": False}
    asked = [job["id"] for job in mine if "job.cancel_requested" in told(app, job["id"])]
    assert asked == [mine[1]["id"], mine[2]["id"]]


async def test_a_bulk_cancel_with_a_key_is_answered_once(app: App) -> None:
    await app.submit()
    headers = {"Idempotency-Key": "k1"}

    first = await app.http.post("/v1/jobs/cancel", json={"name": "tiny-lm-ddp"}, headers=headers)
    await app.submit()
    second = await app.http.post("/v1/jobs/cancel", json={"name": "tiny-lm-ddp"}, headers=headers)

    assert second.content == first.content
    assert len(first.json()["ids"]) == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "at least one filter"),
        ({"state": []}, "at least one filter"),
        ({"state": ["runing"]}, "did you mean `running`"),
        ({"labels": ["a"]}, "did you mean `label`"),
        ({"created_before": "tomorrow"}, "must be a moment"),
        ({"name": "\u0000"}, "NUL"),
    ],
)
async def test_a_bulk_cancel_that_is_wrong_cancels_nothing(lite: App, body: dict[str, Any], words: str) -> None:
    job = await lite.submit()

    answer = await lite.http.post("/v1/jobs/cancel", json=body)

    assert answer.status_code == 422
    assert words in answer.text
    assert told(lite, job["id"]) == ["job.created"]


async def test_a_bulk_cancel_stays_in_its_project(lite: App) -> None:
    job = await lite.submit()

    answer = await lite.http.post("/v1/jobs/cancel", json={"state": ["queued"]}, headers=lite.add_key(project="theirs"))

    assert answer.json()["ids"] == []
    assert told(lite, job["id"]) == ["job.created"]
