"""Checkpoints exist once they are committed, and are pruned by what SQL says."""

import pytest
from shunter_schemas.node_sync import CheckpointUploaded
from shunter_store.report import checkpoints
from shunter_store.report.checkpoints import CheckpointRow
from shunter_store.sql.database import Database
from shunter_store.tables import jobs as jobs_table
from sqlalchemy import Connection, update
from support.node_messages import file_entry
from support.store_rows import new_job


def test_a_checkpoint_of_one_node_is_committed_by_its_part(database: Database) -> None:
    job = new_job(database).id

    committed = add(database, job, 10, loss=1.5)

    latest = database.read(lambda conn: checkpoints.latest(conn, job))
    assert committed
    assert latest is not None
    assert (latest.generation, latest.step, latest.values, latest.size) == (1, 10, {"loss": 1.5}, 3)


def test_a_part_that_comes_twice_commits_once(database: Database) -> None:
    job = new_job(database).id

    results = [
        add(database, job, 10, node_rank=0, num_nodes=2),
        add(database, job, 10, node_rank=0, num_nodes=2),
        add(database, job, 10, node_rank=1, num_nodes=2),
        add(database, job, 10, node_rank=1, num_nodes=2),
    ]

    assert results == [False, False, True, False]


def test_only_the_jobs_current_generation_commits(database: Database) -> None:
    job = new_job(database).id
    add(database, job, 10)
    set_job(database, job, generation=2)

    late = add(database, job, 20, generation=1)
    early = add(database, job, 30, generation=3)

    assert (late, early) == (False, False)
    assert steps(database, job) == [(1, 10)]


def test_nothing_is_committed_after_the_end(database: Database) -> None:
    job = new_job(database).id
    set_job(database, job, released_at=new_job(database).created_at)

    assert not add(database, job, 10)


def test_the_latest_is_of_the_newest_generation_and_not_pruned(database: Database) -> None:
    job = new_job(database).id
    add(database, job, 50)
    set_job(database, job, generation=2)
    add(database, job, 20, generation=2)
    add(database, job, 30, generation=2)

    database.write(lambda conn: checkpoints.prune(conn, of_step(conn, job, 2, 30)))

    latest = database.read(lambda conn: checkpoints.latest(conn, job))
    assert latest is not None
    assert (latest.generation, latest.step) == (2, 20)
    assert steps(database, job) == [(2, 30), (2, 20), (1, 50)]


@pytest.mark.parametrize(
    ("keep", "best", "pruned"),
    [(2, None, [20, 10]), (1, None, [30, 20, 10]), (0, None, [30, 20, 10]), (9, None, []), (1, "val_loss", [30, 10])],
)
def test_pruning_keeps_the_newest_and_the_best(
    database: Database, keep: int, best: str | None, pruned: list[int]
) -> None:
    job = new_job(database).id
    for step, val_loss in [(10, 3.0), (20, 1.0), (30, 2.0), (40, 2.5)]:
        add(database, job, step, val_loss=val_loss)

    found = database.read(lambda conn: checkpoints.to_prune(conn, job, keep, best=best))

    assert [one.step for one in found] == pruned


def test_what_was_pruned_is_not_pruned_again(database: Database) -> None:
    job = new_job(database).id
    for step in (10, 20, 30):
        add(database, job, step)
    database.write(lambda conn: checkpoints.prune(conn, of_step(conn, job, 1, 10)))

    found = database.read(lambda conn: checkpoints.to_prune(conn, job, 1))

    assert [one.step for one in found] == [20]


def add(
    database: Database,
    job_id: str,
    step: int,
    *,
    generation: int = 1,
    node_rank: int = 0,
    num_nodes: int = 1,
    **values: float,
) -> bool:
    files = [file_entry(job_id, f"part-{node_rank}", generation=generation)]
    part = CheckpointUploaded.model_validate({"step": step, "node_rank": node_rank, "files": files, "values": values})
    return database.write(lambda conn: checkpoints.add_part(conn, job_id, generation, part, num_nodes=num_nodes))


def of_step(conn: Connection, job_id: str, generation: int, step: int) -> CheckpointRow:
    [row] = [row for row in checkpoints.page(conn, job_id) if (row.generation, row.step) == (generation, step)]
    return row


def steps(database: Database, job_id: str) -> list[tuple[int, int]]:
    return [(one.generation, one.step) for one in database.read(lambda conn: checkpoints.page(conn, job_id))]


def set_job(database: Database, job_id: str, **values: object) -> None:
    its = jobs_table.c.id == job_id
    database.write(lambda conn: conn.execute(update(jobs_table).where(its).values(**values)))
