"""Who comes first when slots of a shared host are free."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from shunter_planner.values import as_json
from shunter_schemas.api import JobPatch
from shunter_schemas.ids import new_node_token
from shunter_schemas.job import load_job
from shunter_schemas.states import State
from shunter_store.job import jobs, wishes
from shunter_store.job.jobs import JobRow
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change
from shunter_store.job.steps import apply as apply_step
from shunter_store.node import ledger
from shunter_store.node.ledger import NewNode
from shunter_store.sql.database import Database
from shunter_store.tables import jobs as jobs_table
from shunter_store.tables import nodes
from shunter_workers import line
from sqlalchemy import update
from support.store_rows import claim_job, new_job
from support.views import OFFER, document, plan_on


def waiting(database: Database, age_s: float, resource: str = "local/cpu", **given: Any) -> str:
    """A queued job that has waited for so long."""
    row = new_job(database, **given)
    claim = claim_job(database, row.id)
    change = Change(set={"waiting": {"reason": "slots_taken", "resource": resource}})
    database.write(lambda conn: apply_step(conn, claim, change))
    older = (
        update(jobs_table).where(jobs_table.c.id == row.id).values(created_at=row.created_at - timedelta(seconds=age_s))
    )
    database.write(lambda conn: conn.execute(older))
    return row.id


def recovering(database: Database) -> str:
    """A job that ran and has no node any more."""
    row = new_job(database)
    for trigger in (Trigger.PLANNED, Trigger.NODES_READY, Trigger.TRAINER_UP, Trigger.NODE_LOST):
        claim = claim_job(database, row.id)
        change = Change(trigger, set={"plan": as_json(plan_on(OFFER)), "provider": "local"})
        database.write(lambda conn, claim=claim, change=change: apply_step(conn, claim, change))  # type: ignore[misc]
    return row.id


def reread(database: Database, job_id: str) -> JobRow:
    row = database.read(lambda conn: jobs.get(conn, job_id))
    assert row is not None
    return row


def first(database: Database, most: int, kind: str = "cpu") -> list[str]:
    return database.read(lambda conn: line.first_in_line(conn, "local", kind, most))


def ahead(database: Database, job_id: str) -> list[str]:
    return database.read(lambda conn: line.ahead_of(conn, reread(database, job_id), "local", "cpu"))


def test_the_longest_waiting_goes_first(database: Database) -> None:
    young, old = waiting(database, 1), waiting(database, 9)

    assert first(database, 2) == [old, young]
    assert ahead(database, young) == [old]
    assert ahead(database, old) == []


def test_priority_goes_before_age(database: Database) -> None:
    old, high, low = waiting(database, 9), waiting(database, 1, priority=1), waiting(database, 99, priority=3)

    assert first(database, 3) == [high, old, low]


def test_no_more_jobs_are_woken_than_slots_are_free(database: Database) -> None:
    old, *_ = waiting(database, 9), waiting(database, 8), waiting(database, 7)

    assert first(database, 1) == [old]


def test_jobs_that_wait_for_something_else_stand_in_another_line(database: Database) -> None:
    waiting(database, 9, "local/gpu")
    waiting(database, 9, "other/cpu")
    mine = waiting(database, 1)

    assert first(database, 5) == [mine]
    assert ahead(database, mine) == []


def test_a_cancelled_job_holds_nobody_up(database: Database) -> None:
    gone, mine = waiting(database, 9), waiting(database, 1)
    database.write(lambda conn: wishes.request_cancel(conn, gone, by="me"))

    assert first(database, 5) == [mine]


def test_a_paused_job_holds_nobody_up_whether_it_waits_or_lets_its_nodes_go(database: Database) -> None:
    resting, leaving, mine = waiting(database, 9), recovering(database), waiting(database, 1)
    for job_id in (resting, leaving):
        database.write(lambda conn, job_id=job_id: wishes.request_pause(conn, job_id, by="me"))  # type: ignore[misc]

    assert first(database, 5) == [mine]
    assert ahead(database, mine) == []


def test_a_new_priority_moves_a_job_to_its_place_in_the_line(database: Database) -> None:
    spec = load_job(document()).model_dump(mode="json")
    old, mine = waiting(database, 9), waiting(database, 1, spec=spec)

    database.write(lambda conn: wishes.patch(conn, mine, JobPatch(priority="high"), by="me", revisions=None))

    assert first(database, 2) == [mine, old]
    assert ahead(database, old) == [mine]


def test_a_job_that_lost_its_node_goes_before_those_that_never_ran(database: Database) -> None:
    old, lost = waiting(database, 9, priority=1), recovering(database)

    assert reread(database, lost).state is State.RECOVERING
    assert first(database, 5) == [lost, old]
    assert ahead(database, old) == [lost]
    assert ahead(database, lost) == []


def test_a_recovering_job_that_kept_its_node_waits_for_no_slot(database: Database) -> None:
    kept = recovering(database)
    claim = claim_job(database, kept)
    node = NewNode(0, new_node_token("abcdef"), "hash", "local", "me", asdict(OFFER), 0.0, "cpu", [0])
    (row,) = database.write(lambda conn: ledger.intend(conn, claim, job_id=kept, generation=1, nodes=[node]))
    ready = update(nodes).where(nodes.c.id == row.id).values(state="ready")
    database.write(lambda conn: conn.execute(ready))

    assert first(database, 5) == []


def test_holders_are_those_with_slots_of_this_kind(database: Database) -> None:
    holder, mine = new_job(database), waiting(database, 1)
    claim = claim_job(database, holder.id)
    node = NewNode(0, new_node_token("abcdef"), "hash", "local", "me", asdict(OFFER), 0.0, "cpu", [0])
    database.write(lambda conn: ledger.intend(conn, claim, job_id=holder.id, generation=1, nodes=[node]))

    of_cpu = database.read(lambda conn: line.holders_of(conn, reread(database, mine), "local", "cpu"))
    of_gpu = database.read(lambda conn: line.holders_of(conn, reread(database, mine), "local", "gpu"))

    assert (of_cpu, of_gpu) == ([holder.id], [])
