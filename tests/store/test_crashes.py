"""A crash between any two statements is a rollback: nothing of the change is seen, and trying again succeeds."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from shunter_schemas.api import JobPatch
from shunter_schemas.ids import new_id
from shunter_schemas.job import load_job
from shunter_schemas.node_sync import CheckpointUploaded
from shunter_schemas.states import Reason
from shunter_store.job import deletion, intake, jobs, retries, steps, wishes
from shunter_store.job.job_lists import JobFilter
from shunter_store.job.lifecycle import Trigger
from shunter_store.node import ledger, sync
from shunter_store.report import checkpoints
from shunter_store.sql.database import Database
from shunter_store.tables.columns import metadata
from sqlalchemy import Connection, event
from support.documents import tiny_lm
from support.node_messages import boot, file_entry, log, points, sync_request
from support.store_rows import advance, claim_job, new_job, new_node, offer, run_gang

Operation = Callable[[Connection], Any]


class Crash(BaseException):
    """The process is gone."""


def insert(database: Database) -> Operation:
    job_id = new_id("job")
    values: dict[str, Any] = {"project": "p", "created_by": "t", "spec": {}, "spec_text": "{}", "name": "n"}
    return lambda conn: jobs.insert(conn, job_id=job_id, labels={}, priority=2, **values)


def accept_two(database: Database) -> Operation:
    offers = [offer(key="a", labels={"team": "nlp"}), offer(key="b")]
    return lambda conn: intake.accept_in(conn, offers)


def apply(database: Database) -> Operation:
    claim = claim_job(database, new_job(database).id)
    change = steps.Change(Trigger.STOP, Reason.INVALID, set={"facts": {"a": 1}}, events=[("x", {}), ("y", {})])
    return lambda conn: steps.apply(conn, claim, change)


def end(database: Database) -> Operation:
    job = new_job(database)
    claim = claim_job(database, job.id)
    database.write(lambda conn: steps.apply(conn, claim, steps.Change(Trigger.STOP, Reason.INVALID)))
    last = claim_job(database, job.id)
    return lambda conn: steps.apply(conn, last, steps.Change(Trigger.NODES_GONE))


def cancel(database: Database) -> Operation:
    job = new_job(database)
    return lambda conn: wishes.request_cancel(conn, job.id, by="tester")


def intend(database: Database) -> Operation:
    job = new_job(database)
    claim = claim_job(database, job.id)
    nodes = [new_node(rank, slot_kind="cpu", slot_indices=[rank]) for rank in range(2)]
    return lambda conn: ledger.intend(conn, claim, job_id=job.id, generation=1, nodes=nodes)


def ingest(database: Database) -> Operation:
    [node] = run_gang(database, new_job(database).id, 1)
    request = sync_request(node, boot(1), points(2, [1, 2]), log(3, node), ("done", 4, {}))
    return lambda conn: sync.ingest(conn, node, request, now=datetime(2027, 1, 1, tzinfo=UTC))


def cancel_many(database: Database) -> Operation:
    for _ in range(3):
        new_job(database)
    where = JobFilter(name="a job")
    return lambda conn: wishes.cancel_many(conn, project="default", where=where, by="tester")


def change(database: Database) -> Operation:
    job = trained(database, labels={"team": "nlp"})
    patch = JobPatch(labels={"team": "vision"}, priority="high")
    return lambda conn: wishes.patch(conn, job.id, patch, by="tester", revisions=None)


def retry(database: Database) -> Operation:
    job, new_id_ = ended(database), new_id("job")
    return lambda conn: retries.retry(conn, job.id, load_job(job.spec), new_id=new_id_, by="tester", start=None)


def delete(database: Database) -> Operation:
    job = ended(database)
    retries_id = new_id("job")
    database.write(
        lambda conn: retries.retry(conn, job.id, load_job(job.spec), new_id=retries_id, by="tester", start=None)
    )
    return lambda conn: deletion.delete(conn, job.id)


def prune(database: Database) -> Operation:
    job = ended(database)
    row = database.read(lambda conn: checkpoints.latest(conn, job.id))
    assert row is not None
    return lambda conn: checkpoints.prune(conn, row)


def trained(database: Database, **given: Any) -> jobs.JobRow:
    return new_job(database, spec=load_job(tiny_lm()).model_dump(mode="json"), **given)


def ended(database: Database) -> jobs.JobRow:
    """A job that failed after it saved a checkpoint."""
    job = trained(database)
    part = CheckpointUploaded.model_validate({"step": 7, "node_rank": 0, "files": [file_entry(job.id, "w")]})
    database.write(lambda conn: checkpoints.add_part(conn, job.id, 1, part, num_nodes=1))
    claim = claim_job(database, job.id)
    database.write(lambda conn: steps.apply(conn, claim, steps.Change(Trigger.STOP, Reason.USER_ERROR)))
    return advance(database, job.id, Trigger.NODES_GONE)


@pytest.mark.parametrize(
    "prepare", [insert, accept_two, apply, end, cancel, intend, ingest, cancel_many, change, retry, delete, prune]
)
def test_a_crash_after_any_statement_leaves_everything_as_it_was(
    database: Database, prepare: Callable[[Database], Operation]
) -> None:
    operation = prepare(database)
    before = rows(database)
    statements = 0

    while crashes(database, operation, after=statements + 1):
        statements += 1
        assert rows(database) == before

    assert statements >= 2
    assert rows(database) != before


def crashes(database: Database, operation: Operation, *, after: int) -> bool:
    """Run the operation in a process that ends after so many statements; false: it came to its end before."""
    try:
        database.write(lambda conn: operation(doomed(conn, after)))
    except Crash:
        return True
    return False


def doomed(conn: Connection, after: int) -> Connection:
    left = [after]

    def count_down(*_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Crash

    event.listen(conn, "after_cursor_execute", count_down)
    return conn


def rows(database: Database) -> dict[str, list[Any]]:
    return database.read(
        lambda conn: {table.name: sorted(map(repr, conn.execute(table.select()))) for table in metadata.sorted_tables}
    )
