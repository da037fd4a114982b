"""Jobs as they stand, for any number of them: each with its own nodes, moves, ends, progress and cost."""

from datetime import UTC, datetime

from shunter_schemas.ids import new_id
from shunter_schemas.node_sync import Progress
from shunter_schemas.states import Reason
from shunter_store.job import events, standings, steps
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.standings import Standing
from shunter_store.node import gang, ledger, sync
from shunter_store.report import metrics
from shunter_store.sql.database import Database
from shunter_store.tables import nodes
from sqlalchemy import update
from support.node_messages import boot, sync_request
from support.store_rows import claim_job, new_job, reread, run_gang


def test_each_job_stands_with_what_is_its_own(database: Database) -> None:
    waiting, one, two, stopped = (new_job(database, name=name) for name in ("waiting", "one", "two", "stopped"))
    for job, size in ((one, 1), (two, 2)):
        for node in run_gang(database, job.id, size):
            request = sync_request(node, boot(1), ("done", 2, {}))
            database.write(lambda conn, node=node, request=request: sync.ingest(conn, node, request, now=NOW))  # type: ignore[misc]
    for generation, step in ((1, 7), (2, 5)):
        report = Progress(step=step, total_steps=9)
        database.write(
            lambda conn, generation=generation, report=report: metrics.set_progress(
                conn, one.id, generation, NOW, report
            )  # type: ignore[misc]
        )
    bill(database, two.id, 2.5)
    claim = claim_job(database, stopped.id)
    database.write(lambda conn: steps.apply(conn, claim, steps.Change(Trigger.STOP, Reason.INVALID)))

    ids = [job.id for job in (waiting, one, two, stopped)]
    found = database.read(lambda conn: standings.of_jobs(conn, [*ids, new_id("job")]))

    assert set(found) == set(ids)
    for id_ in ids:
        assert found[id_] == by_itself(database, id_)
    assert [row.step for row in found[one.id].progress] == [7, 5]
    assert [len(found[id_].nodes) for id_ in ids] == [0, 1, 2, 0]
    assert [len(found[id_].ends) for id_ in ids] == [0, 1, 2, 0]
    assert [found[id_].cost_usd for id_ in ids] == [0.0, 0.0, 5.0, 0.0]
    assert found[stopped.id].moves[-1].reason is Reason.INVALID


def test_nothing_asked_is_nothing_found(database: Database) -> None:
    assert database.read(lambda conn: standings.of_jobs(conn, [])) == {}


NOW = datetime(2027, 1, 1, tzinfo=UTC)


def by_itself(database: Database, job_id: str) -> Standing:
    """The same by the questions that concern one job."""
    row = reread(database, job_id)
    standing = Standing(
        row,
        progress=database.read(lambda conn: metrics.progress_by_generation(conn, job_id)),
        nodes=database.read(lambda conn: ledger.of_job(conn, job_id)),
        moves=database.read(lambda conn: events.transitions(conn, job_id)),
        ends=database.read(lambda conn: gang.ends(conn, job_id)),
        cost_usd=database.read(lambda conn: ledger.ledger_cost(conn, job_id)),
    )
    alone = database.read(lambda conn: standings.of_row(conn, row))
    fields = (alone.progress, alone.nodes, alone.moves, alone.ends)
    assert tuple(map(list, fields)) == (standing.progress, standing.nodes, standing.moves, standing.ends)
    return alone


def bill(database: Database, job_id: str, usd: float) -> None:
    """So much for each node of the job."""
    database.write(lambda conn: conn.execute(update(nodes).where(nodes.c.job_id == job_id).values(accrued_usd=usd)))
