"""`POST /v1/jobs/{id}/move`: what may change, what cannot work, and what stays to be seen of what ran before."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from shunter_providers.contract import Offer, Price
from shunter_schemas.states import Reason
from shunter_store.accounts import providers
from shunter_store.job import events
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change, Moved
from shunter_store.sql.database import Database
from support.documents import changed, tiny_lm
from support.service_app import App
from support.store_rows import new_job

FSDP = {"strategy": {"kind": "fsdp"}}


async def move(app: App, job_id: str, body: Any, **more: Any) -> Any:
    return await app.http.post(f"/v1/jobs/{job_id}/move", json=body, **more)


def told(app: App, job_id: str) -> list[str]:
    return [event.type for event in app.database.read(lambda conn: events.page(conn, job_id))]


async def documents(app: App, job_id: str) -> list[dict[str, Any]]:
    answer = await app.http.get(f"/v1/jobs/{job_id}/documents")
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


async def test_a_move_is_kept_as_a_wish_and_told(app: App) -> None:
    job = await app.submit()
    app.worker_part(job["id"]).run()

    asked = await move(app, job["id"], {**FSDP, "resources": {"cpu_processes": 4}})
    again = await move(app, job["id"], FSDP)

    assert (asked.status_code, again.status_code) == (202, 202)
    shown = asked.json()
    assert (shown["state"], shown["document"], shown["spec"]["strategy"]["kind"]) == ("running", 1, "ddp")
    assert shown["move_requested_at"]
    assert shown["move"]["strategy"]["kind"] == "fsdp"
    assert (shown["move"]["resources"]["cpu_processes"], shown["move"].keys()) == (4, {"strategy", "resources"})
    assert again.json()["revision"] == shown["revision"], "what is asked for already changes nothing"
    assert told(app, job["id"]).count("job.move_requested") == 1
    assert again.headers["ETag"] == asked.headers["ETag"]


async def test_the_same_request_is_answered_again_and_another_under_its_key_is_refused(app: App) -> None:
    job = await app.submit()
    key = {"Idempotency-Key": "once"}

    first = await move(app, job["id"], FSDP, headers=key)
    replayed = await move(app, job["id"], FSDP, headers=key)
    other = await move(app, job["id"], {"resources": {"cpu_processes": 1}}, headers=key)

    assert (first.status_code, replayed.status_code, other.status_code) == (202, 202, 422)
    assert replayed.headers["Idempotent-Replayed"] == "true"
    assert replayed.content == first.content
    assert other.json()["type"] == "/v1/problems/idempotency_key_reused"


async def test_a_client_may_move_only_what_it_saw(app: App) -> None:
    job = await app.submit()
    tag = (await app.http.get(f"/v1/jobs/{job['id']}")).headers["ETag"]
    await app.http.post(f"/v1/jobs/{job['id']}/pause")

    stale = await move(app, job["id"], FSDP, headers={"If-Match": tag})
    fine = await move(app, job["id"], FSDP, headers={"If-Match": "*"})

    assert (stale.status_code, stale.json()["type"]) == (412, "/v1/problems/revision_changed")
    assert fine.status_code == 202


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ({"strategy": {"kind": "own"}}, "/strategy", "script"),
        ({"strategy": {"kind": "ddp", "bucket_mb": -1}}, "/strategy/bucket_mb", "greater than 0"),
        ({"strategy": {"bucket_mb": 1}}, "/strategy", "kind"),
        ({"resources": {"cpu_processes": 3}}, "/workload/batch/global_size", "3 ranks"),
        ({"resources": {"gpus": 2}}, "/resources", "cpu_processes"),
        ({"placement": {"providers": ["nowhere"]}}, "/placement/providers/0", "no provider `nowhere`"),
        ({"workload": {}}, "/workload", "unknown"),
    ],
)
async def test_what_cannot_be_is_refused_with_the_field(
    lite: App, body: dict[str, Any], pointer: str, words: str
) -> None:
    job = await lite.submit()

    answer = await move(lite, job["id"], body)

    assert answer.status_code == 422, answer.text
    [fault, *_] = answer.json()["errors"]
    assert fault["pointer"].startswith(pointer), answer.text
    assert words in fault["detail"], answer.text
    assert told(lite, job["id"]) == ["job.created"]


@pytest.mark.parametrize(
    "body", [{}, {"resources": {}}, {"resources": {"cpu_processes": 2}}, {"strategy": {"kind": "ddp"}}]
)
async def test_a_move_that_changes_nothing_is_refused(lite: App, body: dict[str, Any]) -> None:
    job = await lite.submit()

    answer = await move(lite, job["id"], body)

    assert (answer.status_code, answer.json()["type"]) == (422, "/v1/problems/invalid_request")


@pytest.mark.parametrize("sent", [b"", b"{", b"[]", b'{"strategy": {"kind": "fsdp"}, "strategy": {"kind": "ddp"}}'])
async def test_a_body_that_is_none_is_refused(lite: App, sent: bytes) -> None:
    job = await lite.submit()
    headers = {"Content-Type": "application/json"}

    answer = await lite.http.post(f"/v1/jobs/{job['id']}/move", content=sent, headers=headers)

    assert answer.status_code in (400, 422)


async def test_only_the_members_that_are_given_change(lite: App) -> None:
    job = await lite.submit(changed(tiny_lm(), {"placement.providers": ["local"], "resources.disk_gib": 7}))

    answer = await move(lite, job["id"], {"resources": {"cpu_processes": 1}, "placement": {"objective": "time"}})

    wish = answer.json()["move"]
    assert (wish["resources"]["disk_gib"], wish["resources"]["cpu_processes"]) == (7, 1)
    assert (wish["placement"]["providers"], wish["placement"]["objective"]) == (["local"], "time")


async def test_a_second_wish_joins_the_first_and_one_back_withdraws_it(lite: App) -> None:
    job = await lite.submit()
    await move(lite, job["id"], FSDP)

    joined = await move(lite, job["id"], {"resources": {"cpu_processes": 4}})
    await move(lite, job["id"], {"resources": {"cpu_processes": 2}})
    back = await move(lite, job["id"], {"strategy": {"kind": "ddp"}})

    assert joined.json()["move"].keys() == {"strategy", "resources"}
    assert "move" not in back.json()
    assert told(lite, job["id"])[-1] == "job.move_withdrawn"


@pytest.mark.parametrize("checkpoint", [None, {"complete_file": "done"}])
async def test_a_script_that_runs_is_moved_only_where_its_checkpoints_are_known(
    lite: App, checkpoint: dict[str, Any] | None
) -> None:
    workload = {"kind": "script", "launcher": "plain", "command": ["true"], "checkpoint": checkpoint}
    document = {"version": "1", "name": "a program", "workload": workload, "resources": {"cpu_processes": 2}}
    job = new_job(lite.database, spec=document)
    lite.worker_part(job.id).run()

    answer = await move(lite, job.id, {"resources": {"cpu_processes": 1}})

    if checkpoint is None:
        assert (answer.status_code, answer.json()["type"]) == (409, "/v1/problems/not_resumable")
        assert "workload.checkpoint" in answer.json()["detail"]
    else:
        assert answer.status_code == 202, answer.text


async def test_a_job_that_ended_or_ends_is_not_moved(lite: App) -> None:
    ending, ended = await lite.submit(), await lite.submit()
    await lite.http.post(f"/v1/jobs/{ending['id']}/cancel")
    lite.worker_part(ended["id"]).end(Reason.USER_ERROR)

    first, second = await move(lite, ending["id"], FSDP), await move(lite, ended["id"], FSDP)

    assert (first.status_code, first.json()["type"]) == (409, "/v1/problems/job_stopping")
    assert (second.status_code, second.json()["type"]) == (409, "/v1/problems/job_ended")


async def test_a_job_of_another_project_is_not_there(lite: App) -> None:
    job = await lite.submit()

    answer = await move(lite, job["id"], FSDP, headers=lite.add_key(project="elsewhere"))

    assert answer.status_code == 404


def offer(database: Database, instance: str, cpu_slots: int, ok: bool = True) -> None:
    one = Offer("cpu", "here", "", Price(billed=False), cpus=4, cpu_slots=cpu_slots)
    capabilities = {"shared_hosts": True}
    database.write(
        lambda conn: providers.record_health(
            conn, instance, instance, ok, account="me", capabilities=capabilities, offers=[asdict(one)]
        )
    )


async def test_a_job_that_trains_is_not_stopped_for_a_plan_that_can_never_be_made(lite: App) -> None:
    job = await lite.submit()
    lite.worker_part(job["id"]).run()
    offer(lite.database, "local", cpu_slots=4)
    offer(lite.database, "cloud", cpu_slots=0)

    too_many = await move(lite, job["id"], {"resources": {"cpu_processes": 8}})
    fine = await move(lite, job["id"], {"resources": {"cpu_processes": 4}})

    assert (too_many.status_code, too_many.json()["errors"][0]["pointer"]) == (422, "/resources")
    assert "8 CPU ranks" in too_many.json()["errors"][0]["detail"]
    assert fine.status_code == 202


async def test_nothing_is_called_impossible_while_some_provider_cannot_be_read(lite: App) -> None:
    job = await lite.submit()
    offer(lite.database, "local", cpu_slots=4)
    offer(lite.database, "cloud", cpu_slots=0, ok=False)

    answer = await move(lite, job["id"], {"resources": {"cpu_processes": 8}})

    assert answer.status_code == 202


async def test_what_ran_in_each_attempt_stays_to_be_seen(app: App) -> None:
    job = await app.submit()
    part = app.worker_part(job["id"])
    part.run()
    await move(app, job["id"], FSDP)
    wish = (await app.http.get(f"/v1/jobs/{job['id']}")).json()["move"]

    part.apply(Change(Trigger.MOVE))
    part.apply(Change(moved=Moved(wish, 1)))
    part.apply(Change(Trigger.NODES_READY, set={"generation": 2}))

    shown = (await app.http.get(f"/v1/jobs/{job['id']}")).json()
    first, second = shown["attempts"]
    assert (first["how"], first["document"], first["strategy"]) == ("moved", 1, "ddp")
    assert (second["how"], second["document"], second["strategy"]) == ("running", 2, "fsdp")
    assert (shown["document"], shown["spec"]["strategy"]["kind"]) == (2, "fsdp")
    assert "move" not in shown
    old, new = await documents(app, job["id"])
    assert (old["version"], old["first_generation"], old["last_generation"]) == (1, 1, 1)
    assert (new["version"], new["first_generation"], "last_generation" in new) == (2, 2, False)
    assert (old["spec"]["strategy"]["kind"], new["spec"]["strategy"]["kind"]) == ("ddp", "fsdp")


async def test_a_job_that_never_moved_has_one_document(lite: App) -> None:
    job = await lite.submit()

    [only] = await documents(lite, job["id"])

    assert (only["version"], only["spec"]) == (1, job["spec"])
