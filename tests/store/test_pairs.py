"""Pairs of predicted and measured, as the store reads them from jobs that succeeded."""

from __future__ import annotations

from typing import Any

from shunter_planner import History
from shunter_planner.corrections import Correction, Kind, Pair
from shunter_schemas.node_sync import Progress
from shunter_schemas.states import State
from shunter_store.report import metrics, pairs
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import clock_of
from shunter_store.tables import jobs
from sqlalchemy import update
from support.store_rows import new_job

PLAN = {
    "strategy": {"kind": "fsdp"},
    "prediction": {
        "micro_size": 4,
        "tokens_per_s": 1000.0,
        "memory_gib": {"parameters": 40.0, "fragmentation": 3.0, "runtime": 1.0},
        "speed_correction": 1.0,
    },
    "slot_kind": "gpu",
    "micro_size": 4,
    "offer": {"gpu_model": "H100", "gpu_memory_gib": 80.0},
}
SPEC = {"version": "1", "workload": {"kind": "training", "model": {"kind": "transformer"}}}
KIND = Kind("H100", "fsdp", "transformer")


def ran(database: Database, *, state: State = State.SUCCEEDED, generation: int = 1, **changes: Any) -> None:
    """A job that measured 1,200 tokens a second and 44 GiB."""
    job = new_job(database, spec=changes.pop("spec", SPEC))
    columns = {"state": state, "plan": {**PLAN, **changes}, "generation": 1}
    report = Progress(step=100, total_steps=100, values={"tokens_per_s": 1200.0, "peak_memory_gib": 44.0})

    def write(conn: Any) -> None:
        conn.execute(update(jobs).where(jobs.c.id == job.id).values(columns))
        metrics.set_progress(conn, job.id, generation, clock_of(conn), report)

    database.write(write)


def test_only_the_last_start_of_trainings_that_succeeded_is_compared(database: Database) -> None:
    ran(database)
    ran(database, state=State.FAILED)
    ran(database, generation=0)
    ran(database, prediction=None)
    ran(database, spec={"version": "1", "workload": {"kind": "script", "command": ["true"]}})

    found = database.read(pairs.newest)

    assert found == [Pair(KIND, 1.2, 1.1)]


async def test_nothing_is_read_and_nothing_corrected_unless_it_is_wanted(database: Database) -> None:
    for _ in range(4):
        ran(database)

    off = await pairs.Past(database, wanted=False).history()
    past = pairs.Past(database, wanted=True)
    on = await past.history()
    ran(database)

    assert off == History()
    assert on.corrections[KIND] == Correction(4, 1.1098, 1.056)
    assert await past.history() is on, "read once a minute"
