"""Jobs that changed or were deleted, page by page in the order of time."""

from __future__ import annotations

from shunter_schemas.states import State
from shunter_store.job import deletion, job_changes
from shunter_store.job.job_changes import DeletedJob, Moment
from shunter_store.sql.database import Database
from shunter_store.tables import jobs
from sqlalchemy import update
from support.store_rows import new_job

WEEK_S = 7 * 86400.0


def end(database: Database, job_id: str, at_s: float) -> None:
    """As if it had ended then."""
    row = update(jobs).where(jobs.c.id == job_id)
    database.write(lambda conn: conn.execute(row.values(state=State.SUCCEEDED)))
    database.write(lambda conn: conn.exec_driver_sql(f"UPDATE jobs SET updated_at = {at_s} WHERE id = '{job_id}'"))


def delete(database: Database, job_id: str, at_s: float) -> None:
    database.write(lambda conn: deletion.delete(conn, job_id))
    database.write(
        lambda conn: conn.exec_driver_sql(f"UPDATE deleted_jobs SET deleted_at = {at_s} WHERE id = '{job_id}'")
    )


def told(database: Database, limit: int, after: Moment = (0.0, "")) -> list[tuple[str, bool]]:
    """Every page: ids, and whether each was deleted."""
    found: list[tuple[str, bool]] = []
    while True:
        place = after
        rows, _ = database.read(lambda conn, place=place: job_changes.changed(conn, "default", place, limit))  # type: ignore[misc]
        found += [(row.id, isinstance(row, DeletedJob)) for row in rows]
        if len(rows) < limit:
            return found
        after = (rows[-1].updated_at.timestamp(), rows[-1].id)


def test_changes_and_deletions_come_in_the_order_of_time_on_pages_of_any_size(database: Database) -> None:
    made = [new_job(database).id for _ in range(9)]
    for at, job_id in enumerate(made):
        end(database, job_id, 1000.0 + at)
    gone = {made[0]: 1000.5, made[2]: 1003.5, made[3]: 1007.5, made[8]: 1100.0}
    for job_id, at_s in gone.items():
        delete(database, job_id, at_s)
    foreign = new_job(database, project="another").id
    end(database, foreign, 1001.0)
    delete(database, foreign, 1001.0)
    moments = [(gone.get(job_id, 1000.0 + at), job_id) for at, job_id in enumerate(made)]

    pages = [told(database, limit) for limit in (1, 2, 3, 5, 100)]

    assert pages == [[(job_id, job_id in gone) for _, job_id in sorted(moments)]] * 5


def test_deletions_are_forgotten_after_a_week_some_at_a_time(database: Database) -> None:
    made = [new_job(database).id for _ in range(4)]
    now = database.read(job_changes.now)
    for job_id, older_s in zip(made, (60, 60, 60, -60), strict=True):
        end(database, job_id, now)
        delete(database, job_id, now - WEEK_S - older_s)

    forgotten = [database.write(lambda conn: deletion.expire(conn, 2)) for _ in range(3)]

    assert forgotten == [2, 1, 0]
    assert told(database, 100) == [(made[3], True)]
