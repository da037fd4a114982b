"""Whoever looks at a job makes its nodes report more often: a note of it is written, where there is any use in it."""

from __future__ import annotations

from shunter_schemas.states import Reason
from shunter_store.job import watch
from support.service_app import App
from support.store_rows import new_job


def is_watched(app: App, job_id: str) -> bool:
    return app.database.read(lambda conn: watch.is_watched(conn, job_id))


async def test_reading_a_job_that_lives_counts_as_a_look(app: App) -> None:
    job = new_job(app.database)

    await app.http.get(f"/v1/jobs/{job.id}")
    await app.service.lookers.close()

    assert is_watched(app, job.id)


async def test_reading_jobs_that_have_ended_writes_nothing(app: App) -> None:
    ended = [new_job(app.database).id for _ in range(3)]
    for job_id in ended:
        app.worker_part(job_id).end(Reason.CANCELLED_BY_USER)
    before = app.database.transactions

    for job_id in ended:
        assert (await app.http.get(f"/v1/jobs/{job_id}")).status_code == 200
    await app.service.lookers.close()

    reads = app.database.transactions - before
    assert reads <= len(ended) + 1, "one for each job, and one for the key"
    assert not any(is_watched(app, job_id) for job_id in ended)


async def test_a_look_at_the_metrics_of_a_job_that_has_ended_is_not_kept(app: App) -> None:
    job = new_job(app.database)
    app.worker_part(job.id).end(Reason.CANCELLED_BY_USER)

    assert (await app.http.get(f"/v1/jobs/{job.id}/metrics")).status_code == 200
    await app.service.lookers.close()

    assert not is_watched(app, job.id)


async def test_a_job_of_another_project_is_not_watched_by_who_may_not_read_it(app: App) -> None:
    job, stranger = new_job(app.database), app.add_key(project="another")

    answer = await app.http.get(f"/v1/jobs/{job.id}", headers=stranger)
    await app.service.lookers.close()

    assert answer.status_code == 404
    assert not is_watched(app, job.id)


async def test_looks_of_one_moment_share_a_transaction(app: App) -> None:
    jobs = [new_job(app.database).id for _ in range(20)]
    before = app.database.transactions

    for job_id in jobs:
        app.service.lookers.note(job_id)
    await app.service.lookers.close()

    assert app.database.transactions - before <= 4
    assert all(is_watched(app, job_id) for job_id in jobs)
