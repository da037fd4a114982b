"""Pairs of predicted and measured, read from jobs that succeeded: by these the planner's priors can be corrected."""

from __future__ import annotations

import time
from typing import Any, Final

from shunter_planner import History
from shunter_planner.corrections import Pair, corrections_of, pair_of
from shunter_schemas.states import State
from sqlalchemy import Connection, and_, select

from shunter_store.sql.database import Database
from shunter_store.tables import jobs, progress

NEWEST: Final = 500
"""Runs that are looked at; older ones were on other machines and releases."""
GOOD_FOR_S: Final = 60.0

_PLAN: Final[Any] = jobs.c.plan
_MODEL: Final[Any] = jobs.c.spec["workload"]["model"]["kind"].as_string()
_RUNS: Final = (
    select(
        _MODEL,
        _PLAN["strategy"],
        _PLAN["prediction"],
        _PLAN["slot_kind"].as_string(),
        _PLAN["offer"]["gpu_model"].as_string(),
        _PLAN["offer"]["gpu_memory_gib"].as_float(),
        _PLAN["micro_size"].as_integer(),
        progress.c.step,
        progress.c["values"],
    )
    .join(progress, and_(progress.c.job_id == jobs.c.id, progress.c.generation == jobs.c.generation))
    .where(jobs.c.state == State.SUCCEEDED, _MODEL.is_not(None))
    .order_by(jobs.c.id.desc())
    .limit(NEWEST)
)


def newest(conn: Connection) -> list[Pair]:
    """Of the newest runs, those of which something was measured."""
    found = []
    for model, strategy, prediction, slot_kind, gpu_model, gpu_memory_gib, micro_size, step, values in conn.execute(
        _RUNS
    ):
        plan = {
            "strategy": strategy,
            "prediction": prediction,
            "slot_kind": slot_kind,
            "gpu_model": gpu_model,
            "gpu_memory_gib": gpu_memory_gib,
            "micro_size": micro_size,
        }
        pair = pair_of(plan, model, step, values)
        if pair is not None:
            found.append(pair)
    return found


class Past:
    """What past runs say, read again now and then."""

    def __init__(self, database: Database, *, wanted: bool) -> None:
        """`wanted`: otherwise nothing is read, and nothing is corrected."""
        self._database, self._wanted = database, wanted
        self._known, self._read_at = History(), -GOOD_FOR_S

    async def history(self) -> History:
        """For a plan."""
        now = time.monotonic()
        if self._wanted and now - self._read_at >= GOOD_FOR_S:
            self._known, self._read_at = History(corrections_of(await self._database.aread(newest))), now
        return self._known
