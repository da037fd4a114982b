"""What directed tests look at, and how they get to where they begin."""

from __future__ import annotations

from typing import Any

from shunter_schemas.states import NodeState, State
from shunter_store.job import events, jobs
from shunter_store.job.jobs import JobRow
from shunter_store.node import ledger
from shunter_store.node.ledger import NodeRow

from model.world import World


def running(world: World, kind: str) -> str:
    """A job whose ranks are up."""
    job_id = world.submit(kind)
    live_until(world, job_id, State.RUNNING)
    return job_id


def live_until(world: World, job_id: str, state: State, rounds: int = 60) -> None:
    for _ in range(rounds):
        if job(world, job_id).state is state:
            return
        world.live(1)
    raise AssertionError(f"{job(world, job_id)} is not {state}")


def halt_after_a_look(world: World) -> None:
    """A worker has seen what there is to see of a job, and decides."""
    worker = world.workers[0]
    world.nudge()
    worker.begin_step()
    worker.process.go_on(5)
    assert worker.claimed is not None
    assert worker.process.busy


def job(world: World, job_id: str) -> JobRow:
    row = world.database.read(lambda conn: jobs.get(conn, job_id))
    assert row is not None
    return row


def rows(world: World, job_id: str) -> list[NodeRow]:
    return world.database.read(lambda conn: ledger.of_job(conn, job_id))


def intents(world: World) -> list[NodeRow]:
    """Rows whose create call has begun, as far as anybody knows."""
    return [row for job_id in world.jobs for row in rows(world, job_id) if row.state is NodeState.CREATING]


def history(world: World, job_id: str) -> list[Any]:
    return list(world.database.read(lambda conn: events.page(conn, job_id, limit=1000)))


def cost(world: World, job_id: str) -> float:
    return world.database.read(lambda conn: ledger.ledger_cost(conn, job_id))
