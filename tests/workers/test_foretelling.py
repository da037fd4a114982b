"""That a cap will be reached before the end is told once, and taken back once it is raised."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from shunter_planner.values import as_json
from shunter_schemas.node_sync import Progress
from shunter_schemas.states import NodeState, State
from shunter_store.job.lifecycle import Trigger
from shunter_store.report import metrics
from shunter_store.report.metrics import ProgressRow
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import now_as_time
from shunter_store.tables import job_due, jobs
from shunter_workers.deciding import decide
from shunter_workers.decisions import Settle
from shunter_workers.duties.forecaster import Forecaster, changed_verdicts
from shunter_workers.view import MEMORY, Memory, View
from sqlalchemy import select, update
from support.node_rows import intended
from support.store_rows import advance, new_job
from support.views import CLOUD_OFFER, NOW, job, on_cloud, on_cloud_node, plan_on, view

GANG = (on_cloud_node(rank=0), on_cloud_node(rank=1))
"""12 USD an hour."""


def seen(*, cap: float | None, told: bool = False, step: int = 4000, eta_s: float | None = 21_600.0) -> View:
    """4,000 of 10,000 steps are done for 100 USD, and 6 hours (72 USD) are to go."""
    spec = on_cloud(limits={"max_cost_usd": cap} if cap is not None else {})
    memory = Memory(ordered_generation=1, started=True, cap_ahead=told)
    row = job(State.RUNNING, spec, memory=memory, plan=as_json(plan_on(CLOUD_OFFER, num_nodes=2)), started_at=NOW)
    progress = ProgressRow("job_1", 1, NOW, step, 10_000, {}, eta_s)
    return view(row, *GANG, cost_usd=100.0, progress=progress, up=2)


def forecast_of(decision: Any) -> list[dict[str, Any]]:
    assert isinstance(decision, Settle)
    return [dict(data) for type_, data in decision.change.events if type_ == "job.cap_forecast"]


def test_a_cap_that_comes_first_is_told_with_its_step_what_more_finishes_and_the_way_out() -> None:
    decision = decide(seen(cap=131.0), NOW)

    (told,) = forecast_of(decision)
    assert told["cap_comes_first"] is True
    assert (told["cap_at_step"], told["total_steps"]) == (6566, 10_000)
    assert told["usd_above_cap"] == pytest.approx(41.2, abs=0.02)
    assert told["message"].startswith("limits.max_cost_usd 131.00 will be reached at about step 6,566 of 10,000; 41.2")
    assert "PATCH /v1/jobs/job_1" in told["message"]
    assert isinstance(decision, Settle)
    assert decision.memory is not None
    assert decision.memory["cap_ahead"] is True


@pytest.mark.parametrize(
    "quiet",
    [
        pytest.param(seen(cap=131.0, told=True), id="it was told"),
        pytest.param(seen(cap=173.0), id="it suffices"),
        pytest.param(seen(cap=None), id="there is none"),
        pytest.param(seen(cap=131.0, eta_s=None), id="the pace is not known"),
        pytest.param(seen(cap=131.0, step=10_000), id="it is done"),
    ],
)
def test_where_the_verdict_is_the_same_nothing_is_told(quiet: View) -> None:
    assert forecast_of(decide(quiet, NOW)) == []


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (180.0, "limits.max_cost_usd 180.00 suffices now: 172.00 USD in all are expected"),
        (None, "there is no limits.max_cost_usd any more"),
    ],
)
def test_a_cap_that_was_raised_enough_is_told_too(raised: float | None, words: str) -> None:
    decision = decide(seen(cap=raised, told=True), NOW)

    (told,) = forecast_of(decision)
    assert told["message"] == words
    assert isinstance(decision, Settle)
    assert decision.memory is not None
    assert decision.memory["cap_ahead"] is False


# --- who is woken ------------------------------------------------------------------------------------------------


def running(database: Database, cap: float | None, *, told: bool = False, eta_s: float | None = 3600.0) -> str:
    """A job that bills 12 USD an hour, has spent about 6, and has an hour to go."""
    now: datetime = database.read(lambda conn: conn.execute(select(now_as_time())).scalar_one())
    made = new_job(database, spec=on_cloud(limits={"max_cost_usd": cap}))
    bills: dict[str, Any] = {"state": NodeState.READY, "handle": "h", "billed_usd_per_hour": 12.0, "accrued_usd": 6.0}
    intended(database, made.id, **bills, accrued_at=now)
    advance(database, made.id, Trigger.PLANNED, Trigger.NODES_READY, Trigger.TRAINER_UP)
    report = Progress(step=50, total_steps=100, eta_s=eta_s)
    facts = {MEMORY: Memory(cap_ahead=told).as_json()}
    database.write(lambda conn: conn.execute(update(jobs).where(jobs.c.id == made.id).values(facts=facts)))
    database.write(lambda conn: metrics.set_progress(conn, made.id, 1, now, report))
    database.write(lambda conn: conn.execute(update(job_due).values(next_at=None, lease_until=None)))
    return made.id


async def test_only_jobs_of_which_something_is_to_be_told_are_woken(database: Database) -> None:
    short = running(database, 12.0)
    raised = running(database, 30.0, told=True)
    uncapped = running(database, None, told=True)
    running(database, 30.0)
    running(database, 12.0, told=True)
    running(database, None)
    running(database, 12.0, eta_s=None)

    changed = database.read(changed_verdicts)
    await Forecaster(database).work()

    woken = select(job_due.c.job_id).where(job_due.c.next_at.is_not(None))
    assert set(changed) == {short, raised, uncapped}
    assert set(database.read(lambda conn: conn.execute(woken)).scalars()) == set(changed)
