"""Finds running jobs of which it changed whether their cap comes before their end, and wakes them to say so.

All of it is one statement over the nodes that bill: jobs without a cap, and jobs of which nothing new is to be told,
cost no step. The step itself judges again (`states.foretelling`); this must only miss nothing.
"""

from __future__ import annotations

from typing import Any, Final

from shunter_planner.forecasts import CLEARLY, FIRST_STEPS, STOP_TAKES_S
from shunter_schemas.states import NodeState, State
from shunter_store.job import due
from shunter_store.node.ledger_rows import COST_USD
from shunter_store.sql.database import Database
from shunter_store.tables import jobs, nodes, progress
from sqlalchemy import Connection, and_, case, func, or_, select

from shunter_workers.view import MEMORY

EVERY_S: Final = 10.0
AT_ONCE: Final = 100

_BILLING: Final = case(
    (nodes.c.handle.is_not(None) & (nodes.c.state != NodeState.GONE), nodes.c.billed_usd_per_hour), else_=0.0
)
_SPENT: Final = (
    select(nodes.c.job_id, COST_USD.label("usd"), func.sum(_BILLING).label("usd_per_hour"))
    .join(jobs, jobs.c.id == nodes.c.job_id)
    .where(jobs.c.state == State.RUNNING)
    .group_by(nodes.c.job_id)
    .having(func.sum(_BILLING) > 0)
    .subquery()
)
_CAP: Final[Any] = jobs.c.spec["limits"]["max_cost_usd"].as_float()
_TOLD: Final[Any] = func.coalesce(jobs.c.facts[MEMORY]["cap_ahead"].as_boolean(), False)
_NEEDED: Final = _SPENT.c.usd + _SPENT.c.usd_per_hour * (progress.c.eta_s + STOP_TAKES_S) / 3600
_TOLD_ENOUGH: Final = or_(progress.c.step >= FIRST_STEPS, _SPENT.c.usd > _CAP / 2)
_CHANGED: Final = (
    select(jobs.c.id)
    .join(_SPENT, _SPENT.c.job_id == jobs.c.id)
    .join(progress, and_(progress.c.job_id == jobs.c.id, progress.c.generation == jobs.c.generation))
    .where(
        jobs.c.state == State.RUNNING,
        progress.c.eta_s.is_not(None),
        progress.c.step < progress.c.total_steps,
        or_(
            and_(~_TOLD, _NEEDED > CLEARLY * _CAP, _TOLD_ENOUGH),
            and_(_TOLD, or_(_CAP.is_(None), _NEEDED <= _CAP)),
        ),
    )
    .limit(AT_ONCE)
)


class Forecaster:
    """Looks over all jobs that bill."""

    def __init__(self, database: Database, *, every_s: float = EVERY_S) -> None:
        self._database = database
        self._every_s = every_s

    async def work(self) -> float:
        """One round."""
        changed = await self._database.aread(changed_verdicts)
        if changed:
            await self._database.awrite(lambda conn: due.wake(conn, changed))
        return self._every_s


def changed_verdicts(conn: Connection) -> list[str]:
    """Jobs of which something is to be told."""
    return list(conn.execute(_CHANGED).scalars())
