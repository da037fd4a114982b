import asyncio
import json
from datetime import UTC, datetime

import pytest
from shunter_schemas.states import Reason
from shunter_store.job import due, events, outbox
from support.documents import changed, tiny_lm
from support.exchanges import set_node
from support.service_app import App
from support.store_rows import intend, new_job, new_node


async def test_an_accepted_job_is_durable_due_and_announced_when_the_answer_comes(app: App) -> None:
    answer = await app.http.post("/v1/jobs", json=tiny_lm())

    job = answer.json()
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert (job["state"], job["name"], job["revision"]) == ("queued", "tiny-lm-ddp", 1)
    assert app.database.read(lambda conn: due.count_due(conn)) == 1
    assert len(app.database.read(lambda conn: outbox.take(conn, 10))) == 1
    assert [event.type for event in app.database.read(lambda conn: events.page(conn, job["id"]))] == ["job.created"]


async def test_the_answer_to_a_post_is_the_answer_to_a_get(app: App) -> None:
    posted = await app.http.post("/v1/jobs", json=tiny_lm())

    got = await app.http.get(posted.headers["Location"])

    assert got.json() == posted.json()
    assert got.headers["ETag"] == posted.headers["ETag"]


async def test_times_are_utc_and_end_with_z(lite: App) -> None:
    job = await lite.submit()

    assert job["created_at"].endswith("Z")
    assert datetime.fromisoformat(job["created_at"]).utcoffset() is not None


async def test_the_job_shows_the_document_with_its_defaults(lite: App) -> None:
    job = await lite.submit(changed(tiny_lm(), {"labels": {"team": "nlp"}, "priority": "high"}))

    assert job["spec"]["recovery"]["node_recoveries"] == 10
    assert job["labels"] == {"team": "nlp"}
    assert job["priority"] == "high"


async def test_the_same_key_and_body_give_the_same_answer_and_one_job(app: App) -> None:
    first = await app.http.post("/v1/jobs", json=tiny_lm(), headers={"Idempotency-Key": "k1"})
    second = await app.http.post("/v1/jobs", json=tiny_lm(), headers={"Idempotency-Key": "k1"})

    assert second.status_code == 201
    assert second.content == first.content
    assert (second.headers["Location"], second.headers["ETag"]) == (first.headers["Location"], first.headers["ETag"])
    assert "Idempotent-Replayed" not in first.headers
    assert second.headers["Idempotent-Replayed"] == "true"
    assert len((await app.http.get("/v1/jobs")).json()["items"]) == 1


async def test_the_same_key_with_another_body_is_refused(app: App) -> None:
    await app.submit(headers={"Idempotency-Key": "k1"})

    other = await app.http.post(
        "/v1/jobs", json=changed(tiny_lm(), {"name": "other"}), headers={"Idempotency-Key": "k1"}
    )

    assert other.status_code == 422
    assert other.json()["type"].endswith("/idempotency_key_reused")
    assert len((await app.http.get("/v1/jobs")).json()["items"]) == 1


async def test_a_refused_document_leaves_its_key_free(lite: App) -> None:
    await lite.http.post("/v1/jobs", json={"version": "1"}, headers={"Idempotency-Key": "k1"})

    again = await lite.http.post("/v1/jobs", json=tiny_lm(), headers={"Idempotency-Key": "k1"})

    assert again.status_code == 201


async def test_requests_at_once_with_one_key_make_one_job(app: App) -> None:
    answers = await asyncio.gather(
        *(app.http.post("/v1/jobs", json=tiny_lm(), headers={"Idempotency-Key": "k1"}) for _ in range(12))
    )

    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len((await app.http.get("/v1/jobs")).json()["items"]) == 1


async def test_keys_of_two_projects_do_not_meet(lite: App) -> None:
    theirs = lite.add_key(project="theirs")

    first = await lite.submit(headers={"Idempotency-Key": "k1"})
    second = await lite.submit(headers={"Idempotency-Key": "k1", **theirs})

    assert first["id"] != second["id"]


async def test_pages_go_through_all_jobs_once_newest_first(app: App) -> None:
    made = [new_job(app.database, name=f"job {number}") for number in range(7)]

    seen, cursor = [], None
    while True:
        page = (await app.http.get("/v1/jobs", params={"limit": 3, **({"cursor": cursor} if cursor else {})})).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page.get("next_cursor")
        if cursor is None:
            break

    newest_first = sorted(made, key=lambda job: (job.created_at, job.id), reverse=True)
    assert seen == [job.id for job in newest_first]


async def test_a_list_can_be_filtered_by_state_name_and_labels(app: App) -> None:
    ran = new_job(app.database, name="ran", labels={"team": "nlp", "run": "1"})
    waits = new_job(app.database, name="waits", labels={"team": "nlp"})
    app.worker_part(ran.id).run()

    async def ids(**params: str | list[str]) -> list[str]:
        return [item["id"] for item in (await app.http.get("/v1/jobs", params=params)).json()["items"]]

    assert await ids(state="running") == [ran.id]
    assert await ids(state=["running", "queued"]) == [waits.id, ran.id]
    assert await ids(name="waits") == [waits.id]
    assert await ids(label="team=nlp") == [waits.id, ran.id]
    assert await ids(label=["team=nlp", "run=1"]) == [ran.id]
    assert await ids(label="team=other") == []


async def test_a_summary_is_small_and_shows_progress(app: App) -> None:
    job = new_job(app.database, name="n" * 60)
    part = app.worker_part(job.id)
    part.run()
    part.report(120_000, 300_000, loss=2.5)
    part.end(Reason.USER_ERROR)

    [item] = (await app.http.get("/v1/jobs")).json()["items"]

    assert (item["step"], item["total_steps"], item["state"], item["reason"]) == (
        120_000,
        300_000,
        "failed",
        "user_error",
    )
    assert len(json.dumps(item, separators=(",", ":"))) <= 300


async def test_a_job_shows_progress_transitions_and_outcome(app: App) -> None:
    job = await app.submit()
    part = app.worker_part(job["id"])
    part.run()
    part.report(10, 300, loss=2.5, tokens_per_s=5000.0)

    running = (await app.http.get(f"/v1/jobs/{job['id']}")).json()
    part.end(Reason.DONE)
    ended = (await app.http.get(f"/v1/jobs/{job['id']}")).json()

    progress = running["progress"]
    left_s = (
        datetime.fromisoformat(progress["eta_at"]) - datetime.fromisoformat(progress["updated_at"])
    ).total_seconds()
    assert left_s == 290.0
    assert "eta_at" not in ended["progress"]
    assert progress | {"updated_at": "", "eta_at": ""} == {
        "step": 10,
        "total_steps": 300,
        "loss": 2.5,
        "tokens_per_s": 5000.0,
        "eta_s": 290.0,
        "values": {"loss": 2.5, "tokens_per_s": 5000.0},
        "updated_at": "",
        "eta_at": "",
    }
    assert "outcome" not in running
    assert [move["to"] for move in ended["transitions"]] == [
        "queued",
        "provisioning",
        "starting",
        "running",
        "stopping",
        "succeeded",
    ]
    assert (ended["outcome"], ended["reason"], ended["attempt"]) == ("succeeded", "done", 1)
    assert ended["finished_at"] <= ended["released_at"]


async def test_an_unchanged_job_is_not_sent_again(app: App) -> None:
    job = await app.submit()
    first = await app.http.get(f"/v1/jobs/{job['id']}")

    same = await app.http.get(f"/v1/jobs/{job['id']}", headers={"If-None-Match": first.headers["ETag"]})
    app.worker_part(job["id"]).run()
    other = await app.http.get(f"/v1/jobs/{job['id']}", headers={"If-None-Match": first.headers["ETag"]})

    assert (same.status_code, same.content) == (304, b"")
    assert same.headers["ETag"] == first.headers["ETag"]
    assert other.status_code == 200


async def test_progress_makes_a_new_state_of_the_job_and_a_heartbeat_does_not(app: App) -> None:
    job = await app.submit()
    part = app.worker_part(job["id"])
    part.run()
    [node] = intend(app.database, job["id"], new_node())
    first = await app.http.get(f"/v1/jobs/{job['id']}")

    set_node(app.database, node, last_sync_at=datetime.now(UTC))
    beaten = await app.http.get(f"/v1/jobs/{job['id']}", headers={"If-None-Match": first.headers["ETag"]})
    part.report(1, 10, loss=3.0)
    moved = await app.http.get(f"/v1/jobs/{job['id']}", headers={"If-None-Match": first.headers["ETag"]})

    assert (beaten.status_code, moved.status_code) == (304, 200)
    assert moved.json()["revision"] == first.json()["revision"]
    assert moved.headers["ETag"].partition("-")[0] == first.headers["ETag"].partition("-")[0]


async def test_a_long_poll_by_tag_answers_at_progress_too(app: App) -> None:
    job = await app.submit()
    part = app.worker_part(job["id"])
    part.run()
    first = await app.http.get(f"/v1/jobs/{job['id']}")
    waiting = asyncio.create_task(
        app.http.get(f"/v1/jobs/{job['id']}", params={"wait_s": 20}, headers={"If-None-Match": first.headers["ETag"]})
    )
    done, _ = await asyncio.wait([waiting], timeout=0.3)

    await asyncio.to_thread(part.report, 7, 10, loss=3.0)
    answer = await asyncio.wait_for(waiting, 15)

    assert not done
    assert (answer.status_code, answer.json()["progress"]["step"]) == (200, 7)


async def test_a_long_poll_by_tag_that_saw_nothing_answers_304(lite: App) -> None:
    job = await lite.submit()
    first = await lite.http.get(f"/v1/jobs/{job['id']}")

    answer = await lite.http.get(
        f"/v1/jobs/{job['id']}", params={"wait_s": 0.1}, headers={"If-None-Match": first.headers["ETag"]}
    )

    assert answer.status_code == 304


async def test_a_long_poll_by_revision_is_not_woken_by_progress(lite: App) -> None:
    job = await lite.submit()
    part = lite.worker_part(job["id"])
    part.run()
    revision = (await lite.http.get(f"/v1/jobs/{job['id']}")).json()["revision"]
    waiting = asyncio.create_task(
        lite.http.get(f"/v1/jobs/{job['id']}", params={"wait_s": 20, "after_revision": revision})
    )

    await asyncio.to_thread(part.report, 7, 10, loss=3.0)
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    await asyncio.to_thread(part.end, Reason.DONE)
    answer = await asyncio.wait_for(waiting, 15)

    assert not done
    assert answer.json()["revision"] > revision


async def test_a_long_poll_answers_at_the_change(app: App) -> None:
    job = await app.submit()
    waiting = asyncio.create_task(
        app.http.get(f"/v1/jobs/{job['id']}", params={"wait_s": 20, "after_revision": job["revision"]})
    )
    done, _ = await asyncio.wait([waiting], timeout=0.3)

    await asyncio.to_thread(app.worker_part(job["id"]).run)
    answer = await asyncio.wait_for(waiting, 15)

    assert not done
    assert answer.json()["revision"] > job["revision"]


async def test_a_long_poll_that_saw_no_change_answers_with_what_is(lite: App) -> None:
    job = await lite.submit()

    answer = await lite.http.get(f"/v1/jobs/{job['id']}", params={"wait_s": 0.1, "after_revision": job["revision"]})

    assert (answer.status_code, answer.json()["revision"]) == (200, job["revision"])


async def test_a_long_poll_for_a_revision_that_is_past_answers_at_once(lite: App) -> None:
    job = await lite.submit()

    answer = await asyncio.wait_for(
        lite.http.get(f"/v1/jobs/{job['id']}", params={"wait_s": 60, "after_revision": 0}), 30
    )

    assert answer.json()["id"] == job["id"]


async def test_a_cancel_is_kept_as_a_wish_and_repeating_it_changes_nothing(app: App) -> None:
    job = await app.submit()

    first = await app.http.post(f"/v1/jobs/{job['id']}/cancel")
    second = await app.http.post(f"/v1/jobs/{job['id']}/cancel")

    history = [event.type for event in app.database.read(lambda conn: events.page(conn, job["id"]))]
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["revision"] == second.json()["revision"]
    assert history == ["job.created", "job.cancel_requested"]


@pytest.mark.parametrize(
    ("reason", "status"), [(Reason.DONE, 409), (Reason.USER_ERROR, 409), (Reason.CANCELLED_BY_USER, 202)]
)
async def test_a_cancel_of_an_ended_job_conflicts_unless_it_was_cancelled(
    app: App, reason: Reason, status: int
) -> None:
    job = await app.submit()
    app.worker_part(job["id"]).run()
    app.worker_part(job["id"]).end(reason)

    answer = await app.http.post(f"/v1/jobs/{job['id']}/cancel")

    assert answer.status_code == status
    assert status == 202 or answer.json()["type"].endswith("/job_ended")


@pytest.mark.parametrize("path", ["", "/events", "/logs", "/metrics", "/artifacts", "/artifacts/x", "/checkpoints"])
async def test_a_job_of_another_project_does_not_exist(app: App, path: str) -> None:
    job = await app.submit()
    theirs = app.add_key(project="theirs")

    foreign = await app.http.get(f"/v1/jobs/{job['id']}{path}", headers=theirs)
    unknown = await app.http.get(f"/v1/jobs/job_01kb9m4t8zq3v5x7y9a1c3e5g7{path}")
    malformed = await app.http.get(f"/v1/jobs/no-id{path}")

    assert [answer.status_code for answer in (foreign, unknown, malformed)] == [404, 404, 404]
    assert {answer.json()["type"] for answer in (foreign, unknown, malformed)} == {"/v1/problems/not_found"}


async def test_a_cancel_from_another_project_does_nothing(app: App) -> None:
    job = await app.submit()

    answer = await app.http.post(f"/v1/jobs/{job['id']}/cancel", headers=app.add_key(project="theirs"))

    assert answer.status_code == 404
    assert (await app.http.get(f"/v1/jobs/{job['id']}")).json()["revision"] == job["revision"]
    assert (await app.http.get("/v1/jobs", headers=app.add_key(project="theirs"))).json()["items"] == []
