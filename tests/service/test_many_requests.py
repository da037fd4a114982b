"""Requests that share a transaction: each gets its own answer, and the lines of lists are what models say."""

import asyncio
import json
from typing import Any

import pytest
from shunter_schemas.api import JobPage
from shunter_schemas.ids import new_id
from shunter_schemas.states import Reason
from shunter_service.web.answers import encode
from shunter_store.job import events, wishes
from shunter_store.storage import bundles
from shunter_store.tables import bundles as bundles_table
from sqlalchemy import delete
from support.documents import changed, tiny_lm
from support.service_app import App
from support.store_rows import new_job

DIGEST = "ab" * 32
WITH_BUNDLE = changed(tiny_lm(), {"source": {"kind": "bundle", "id": f"bun_{DIGEST}"}})


async def test_documents_that_come_at_once_are_accepted_or_refused_each_by_itself(app: App) -> None:
    good = [changed(tiny_lm(), {"name": f"job-{number}"}) for number in range(40)]
    bad: list[Any] = [WITH_BUNDLE, {"version": "1"}, changed(tiny_lm(), {"placement": {"providers": ["nowhere"]}})]
    mixed = [document for place, one in enumerate(good) for document in ([one, bad[place % 3]] if place < 9 else [one])]

    answers = await asyncio.gather(
        *(app.http.post("/v1/jobs", json=document, headers={"Idempotency-Key": new_id("key")}) for document in mixed)
    )

    for document, answer in zip(mixed, answers, strict=True):
        assert answer.status_code == (422 if document in bad else 201), answer.text
        if answer.status_code == 201:
            job = answer.json()
            assert job["name"] == document["name"]
            assert (await app.http.get(f"/v1/jobs/{job['id']}")).json() == job
            seqs = [row.seq for row in app.database.read(lambda conn, id_=job["id"]: events.page(conn, id_))]  # type: ignore[misc]
            assert seqs == [1]
    assert len((await app.http.get("/v1/jobs", params={"limit": 500})).json()["items"]) == 40


async def test_jobs_that_are_read_at_once_are_each_given_to_who_asked(app: App) -> None:
    made = [new_job(app.database, name=f"job-{number}") for number in range(20)]
    app.worker_part(made[3].id).run()
    foreign, unknown = new_job(app.database, project="theirs"), new_id("job")
    ids = [*(job.id for job in made), foreign.id, unknown, made[0].id]

    answers = await asyncio.gather(*(app.http.get(f"/v1/jobs/{id_}") for id_ in ids))

    alone = [await app.http.get(f"/v1/jobs/{id_}") for id_ in ids]
    assert [answer.status_code for answer in answers] == [*([200] * 20), 404, 404, 200]
    assert [answer.json()["id"] for answer in answers if answer.status_code == 200] == [*ids[:20], made[0].id]
    assert [told(answer) for answer in answers] == [told(answer) for answer in alone]


async def test_what_was_accepted_under_a_key_is_answered_again_though_it_would_be_refused_today(app: App) -> None:
    app.database.write(lambda conn: bundles.put(conn, DIGEST, 1, 1))
    first = await app.http.post("/v1/jobs", json=WITH_BUNDLE, headers={"Idempotency-Key": "k1"})
    app.database.write(lambda conn: conn.execute(delete(bundles_table)))

    again = await app.http.post("/v1/jobs", json=WITH_BUNDLE, headers={"Idempotency-Key": "k1"})
    new = await app.http.post("/v1/jobs", json=WITH_BUNDLE, headers={"Idempotency-Key": "k2"})

    assert (first.status_code, again.status_code, new.status_code) == (201, 201, 422)
    assert again.content == first.content
    assert again.headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("body", ["{", '{"version": "1"}'])
async def test_a_key_that_has_a_job_is_named_even_if_the_new_body_is_none(lite: App, body: str) -> None:
    await lite.submit(headers={"Idempotency-Key": "k1"})

    headers = {"Idempotency-Key": "k1", "Content-Type": "application/json"}
    other = await lite.http.post("/v1/jobs", content=body, headers=headers)

    assert (other.status_code, other.json()["type"]) == (422, "/v1/problems/idempotency_key_reused")


async def test_a_page_is_written_as_its_model_writes_it(app: App) -> None:
    ended, runs, paused, waits = (new_job(app.database, name=name) for name in ("ended", "runs", "paused", 'a "ü"\n'))
    part = app.worker_part(ended.id)
    part.run()
    part.report(10, 300, loss=2.5)
    part.end(Reason.USER_ERROR)
    app.worker_part(runs.id).run()
    app.database.write(lambda conn: wishes.request_pause(conn, paused.id, by="me"))

    pages = [await app.http.get("/v1/jobs", params=params) for params in ({}, {"limit": 2}, {"name": "nothing"})]

    for page in pages:
        assert encode(JobPage.model_validate_json(page.content)) == page.content
    assert {item["id"] for item in pages[0].json()["items"]} == {ended.id, runs.id, paused.id, waits.id}


def told(answer: Any) -> Any:
    """What does not differ between two answers that say the same."""
    return {name: value for name, value in json.loads(answer.content).items() if name != "request_id"}
