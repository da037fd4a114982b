"""A job taken up again with its checkpoint, and the deletion of records: no byte goes that somebody still needs."""

import itertools
import threading
from typing import Any

import pytest
from shunter_schemas.job import JobSpec, load_job
from shunter_schemas.node_sync import CheckpointUploaded
from shunter_schemas.states import NodeState, Reason, State
from shunter_store.errors import Conflict, NotFound
from shunter_store.job import deletion, events, retries, steps
from shunter_store.job.jobs import JobRow
from shunter_store.job.lifecycle import Trigger
from shunter_store.node import ledger
from shunter_store.report import artifacts, checkpoints
from shunter_store.report.checkpoints import CheckpointRow
from shunter_store.sql.database import Database
from shunter_store.storage import garbage
from shunter_store.storage.garbage import GarbageRow
from shunter_store.tables import jobs as jobs_table
from shunter_store.tables.columns import metadata
from sqlalchemy import Connection, func, select, update
from support.documents import tiny_lm
from support.node_messages import file_entry
from support.store_rows import advance, claim_job, intend, new_job, new_node, reread

ON_POSTGRESQL = pytest.mark.parametrize(
    "database_url", [pytest.param("postgresql", marks=pytest.mark.postgres)], indirect=True
)
"""SQLite has one writer at a time."""

NEW = (f"job_new{number}" for number in itertools.count())


# --- retry -------------------------------------------------------------------------------------------------------


def test_a_retry_is_a_new_job_that_begins_with_the_last_checkpoint(database: Database) -> None:
    old = ended(database, steps_saved=(10, 20))

    new = retry(database, old)

    assert (new.state, new.generation, new.retry_of, new.resumes_from_step) == (State.QUEUED, 1, old.id, 20)
    assert (new.spec, new.name, new.labels) == (old.spec, old.name, old.labels)
    first = latest(database, new.id)
    assert first is not None
    assert (first.generation, first.step, first.origin) == (0, 20, (old.id, 1))
    assert first.objects == [f"{old.id}/1/checkpoints/step-20/w"]
    assert told(database, new.id) == ["job.created", "job.retry_of"]
    assert reread(database, old.id) == old


def test_its_own_checkpoints_come_before_the_one_that_it_began_with(database: Database) -> None:
    new = retry(database, ended(database, steps_saved=(20,)))

    save(database, new.id, 25)

    found = latest(database, new.id)
    assert found is not None
    assert (found.generation, found.step) == (1, 25)


def test_a_retry_from_a_checkpoint_keeps_the_commit_of_the_source_and_one_from_the_start_does_not(
    database: Database,
) -> None:
    old = ended(database, steps_saved=(20,), facts={"source_commit": "5f70bf18", "steps": {"started": True}})

    again, anew = retry(database, old), retry(database, old, start="start")

    assert again.facts == {"source_commit": "5f70bf18"}
    assert (anew.facts, anew.resumes_from_step, latest(database, anew.id)) == ({}, None, None)


def test_a_retry_begins_at_the_start_where_there_is_no_checkpoint_unless_one_was_asked_for(database: Database) -> None:
    old = ended(database)

    new = retry(database, old)

    assert new.resumes_from_step is None
    with pytest.raises(Conflict) as refused:
        retry(database, old, start="checkpoint")
    assert refused.value.slug == "no_checkpoint"


@pytest.mark.parametrize("path", [(), (Trigger.PLANNED,), (Trigger.PLANNED, Trigger.NODES_READY, Trigger.TRAINER_UP)])
def test_a_job_that_lives_is_not_taken_up(database: Database, path: tuple[Trigger, ...]) -> None:
    job = trained(database)
    advance(database, job.id, *path)

    with pytest.raises(Conflict) as refused:
        retry(database, job)

    assert refused.value.slug == "job_not_ended"


def test_a_retry_of_a_retry_goes_back_to_the_bytes_of_the_first(database: Database) -> None:
    old = ended(database, steps_saved=(20,))
    second = retry(database, old)
    end(database, second.id)

    third = retry(database, second)

    first = latest(database, third.id)
    assert first is not None
    assert first.origin == (old.id, 1)
    assert third.retry_of == second.id


# --- what is pruned and deleted ----------------------------------------------------------------------------------


def test_a_pruned_checkpoint_is_garbage(database: Database) -> None:
    old = ended(database, steps_saved=(20,))

    prune(database, old.id)

    assert swept(database) == [([f"{old.id}/1/checkpoints/step-20/w"], None, [])]
    assert latest(database, old.id) is None


def test_a_checkpoint_is_garbage_only_when_the_last_job_that_holds_it_lets_go(database: Database) -> None:
    old = ended(database, steps_saved=(20,))
    new = retry(database, old)

    prune(database, old.id)
    still_held = swept(database)
    kept = latest(database, new.id)
    prune(database, new.id)

    assert still_held == []
    assert kept is not None
    assert swept(database) == [([f"{old.id}/1/checkpoints/step-20/w"], None, [])]


def test_pruning_twice_makes_garbage_once(database: Database) -> None:
    old = ended(database, steps_saved=(20,))
    row = latest(database, old.id)
    assert row is not None

    for _ in range(2):
        database.write(lambda conn: checkpoints.prune(conn, row))

    assert len(swept(database)) == 1


def test_deleting_a_job_forgets_its_record_and_leaves_the_ledger(database: Database) -> None:
    job = trained(database, labels={"team": "nlp"})
    [node] = intend(database, job.id, new_node())
    database.write(lambda conn: ledger.close_absent(conn, node.id, {"kind": "never_begun"}))
    save(database, job.id, 10)
    database.write(
        lambda conn: artifacts.put(conn, job.id, "m", generation=1, size=1, sha256="0" * 64, object=f"{job.id}/1/a/m")
    )
    end(database, job.id)

    database.write(lambda conn: deletion.delete(conn, job.id))

    assert rows_of(database, job.id) == {"nodes": 1, "payers": 1}
    assert database.read(lambda conn: ledger.of_job(conn, job.id))[0].state is NodeState.GONE
    assert swept(database) == [([], f"{job.id}/", [])]


def test_a_deleted_job_leaves_the_checkpoint_that_its_retry_goes_on_from(database: Database) -> None:
    old = ended(database, steps_saved=(10, 20))
    new = retry(database, old)

    database.write(lambda conn: deletion.delete(conn, old.id))

    assert swept(database) == [([], f"{old.id}/", [f"{old.id}/1/checkpoints/step-20/w"])]
    first = latest(database, new.id)
    assert first is not None
    assert first.objects == [f"{old.id}/1/checkpoints/step-20/w"]
    assert reread(database, new.id).retry_of == old.id


def test_the_last_of_a_line_of_retries_takes_the_checkpoint_with_it(database: Database) -> None:
    old = ended(database, steps_saved=(20,))
    second = retry(database, old)
    end(database, second.id)
    third = retry(database, second)
    end(database, third.id)

    for job in (second, old, third):
        database.write(lambda conn, job=job: deletion.delete(conn, job.id))  # type: ignore[misc]

    shared = f"{old.id}/1/checkpoints/step-20/w"
    assert swept(database) == [
        ([], f"{second.id}/", []),
        ([], f"{old.id}/", [shared]),
        ([shared], None, []),
        ([], f"{third.id}/", []),
    ]


def test_a_checkpoint_that_its_own_job_pruned_stays_for_the_retry_when_the_job_is_deleted(database: Database) -> None:
    old = ended(database, steps_saved=(20,))
    retry(database, old)
    prune(database, old.id)

    database.write(lambda conn: deletion.delete(conn, old.id))

    assert swept(database)[0][2] == [f"{old.id}/1/checkpoints/step-20/w"]


@pytest.mark.parametrize("path", [(), (Trigger.PLANNED, Trigger.NODES_READY, Trigger.TRAINER_UP)])
def test_the_record_of_a_job_that_lives_is_not_deleted(database: Database, path: tuple[Trigger, ...]) -> None:
    job = trained(database)
    advance(database, job.id, *path)

    with pytest.raises(Conflict) as refused:
        database.write(lambda conn: deletion.delete(conn, job.id))

    assert refused.value.slug == "job_not_ended"
    assert swept(database) == []


def test_what_does_not_exist_is_neither_taken_up_nor_deleted(database: Database) -> None:
    job = trained(database)

    with pytest.raises(NotFound):
        database.write(lambda conn: deletion.delete(conn, "job_nothing"))
    with pytest.raises(NotFound):
        retry(database, job, of="job_nothing")


@ON_POSTGRESQL
def test_of_a_retry_and_a_deletion_at_once_no_byte_is_lost(database: Database) -> None:
    """The deletion begins while the retry is open, and waits for what it does."""
    old = ended(database, steps_saved=(20,))
    begun, go_on = threading.Event(), threading.Event()

    def slowly(conn: Connection) -> JobRow:
        row = retries.retry(conn, old.id, load_job(old.spec), new_id="job_new", by="me", start=None)
        begun.set()
        assert go_on.wait(10)
        return row

    retrying = threading.Thread(target=lambda: database.write(slowly))
    retrying.start()
    assert begun.wait(10)
    deleting = threading.Thread(target=lambda: database.write(lambda conn: deletion.delete(conn, old.id)))
    deleting.start()
    go_on.set()
    retrying.join(10)
    deleting.join(10)

    assert swept(database) == [([], f"{old.id}/", [f"{old.id}/1/checkpoints/step-20/w"])]
    assert latest(database, "job_new") is not None


@ON_POSTGRESQL
def test_of_two_that_let_go_at_once_one_makes_it_garbage(database: Database) -> None:
    old = ended(database, steps_saved=(20,))
    new = retry(database, old)
    begun, go_on = threading.Event(), threading.Event()
    mine, theirs = latest(database, old.id), latest(database, new.id)
    assert mine is not None
    assert theirs is not None

    def slowly(conn: Connection) -> None:
        checkpoints.prune(conn, mine)
        begun.set()
        assert go_on.wait(10)

    first = threading.Thread(target=lambda: database.write(slowly))
    first.start()
    assert begun.wait(10)
    second = threading.Thread(target=lambda: database.write(lambda conn: checkpoints.prune(conn, theirs)))
    second.start()
    go_on.set()
    first.join(10)
    second.join(10)

    assert swept(database) == [([f"{old.id}/1/checkpoints/step-20/w"], None, [])]


def trained(database: Database, **given: Any) -> JobRow:
    document = load_job(tiny_lm())
    values = {"spec": document.model_dump(mode="json"), "name": document.name, "labels": document.labels, **given}
    return new_job(database, **values)


def ended(database: Database, *, steps_saved: tuple[int, ...] = (), facts: dict[str, Any] | None = None) -> JobRow:
    """A job that failed after it saved these steps."""
    job = trained(database)
    for step in steps_saved:
        save(database, job.id, step)
    if facts is not None:
        its = jobs_table.c.id == job.id
        database.write(lambda conn: conn.execute(update(jobs_table).where(its).values(facts=facts)))
    return end(database, job.id)


def end(database: Database, job_id: str) -> JobRow:
    claim = claim_job(database, job_id)
    database.write(lambda conn: steps.apply(conn, claim, steps.Change(Trigger.STOP, Reason.USER_ERROR)))
    return advance(database, job_id, Trigger.NODES_GONE)


def save(database: Database, job_id: str, step: int) -> None:
    files = [file_entry(job_id, "w") | {"object": f"{job_id}/1/checkpoints/step-{step}/w"}]
    part = CheckpointUploaded.model_validate({"step": step, "node_rank": 0, "files": files})
    assert database.write(lambda conn: checkpoints.add_part(conn, job_id, 1, part, num_nodes=1))


def retry(database: Database, old: JobRow, *, start: retries.Start | None = None, of: str | None = None) -> JobRow:
    document: JobSpec = load_job(old.spec)
    new_id = next(NEW)
    return database.write(lambda conn: retries.retry(conn, of or old.id, document, new_id=new_id, by="me", start=start))


def prune(database: Database, job_id: str) -> None:
    row = latest(database, job_id)
    assert row is not None
    database.write(lambda conn: checkpoints.prune(conn, row))


def latest(database: Database, job_id: str) -> CheckpointRow | None:
    return database.read(lambda conn: checkpoints.latest(conn, job_id))


def swept(database: Database) -> list[tuple[list[str], str | None, list[str]]]:
    rows: list[GarbageRow] = database.read(lambda conn: garbage.take(conn, 100))
    return [(row.keys, row.below, row.kept) for row in rows]


def told(database: Database, job_id: str) -> list[str]:
    return [event.type for event in database.read(lambda conn: events.page(conn, job_id))]


def rows_of(database: Database, job_id: str) -> dict[str, int]:
    """How many rows of each table speak of the job."""

    def count(conn: Connection) -> dict[str, int]:
        found: dict[str, int] = {}
        for table in metadata.sorted_tables:
            column = table.c.get("job_id", table.c.get("id") if table.name == "jobs" else None)
            if column is not None:
                asked = select(func.count()).select_from(table).where(column == job_id)
                if number := conn.execute(asked).scalar_one():
                    found[table.name] = number
        return found

    return database.read(count)
