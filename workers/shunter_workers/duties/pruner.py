"""Gives up checkpoints that the document does not ask to keep; the collector deletes their bytes."""

from __future__ import annotations

import logging
from typing import Final

from shunter_schemas.job import JobSpec, load_job
from shunter_schemas.training import TrainingWorkload
from shunter_store.report import checkpoints
from shunter_store.report.checkpoints import CheckpointRow
from shunter_store.sql.database import Database
from shunter_store.tables import checkpoints as checkpoints_table
from shunter_store.tables import jobs
from sqlalchemy import Connection, func, select

EVERY_S: Final = 30.0

# Only jobs that have more than one checkpoint left can have one too many.
_CANDIDATES = (
    select(jobs.c.id, jobs.c.spec)
    .join(checkpoints_table, checkpoints_table.c.job_id == jobs.c.id)
    .where(checkpoints_table.c.pruned_at.is_(None))
    .group_by(jobs.c.id)
    .having(func.count() > 1)
)
_log = logging.getLogger(__name__)


class Pruner:
    """Looks at every job with spare checkpoints."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def work(self) -> float:
        """One round."""
        for row in await self._database.aread(_spare):
            await self._prune(row)
        return EVERY_S

    async def _prune(self, row: CheckpointRow) -> None:
        await self._database.awrite(lambda conn: checkpoints.prune(conn, row))
        _log.info("pruned checkpoint %d of %s", row.step, row.job_id)


def kept_by(document: JobSpec) -> tuple[int, str | None]:
    """How many of the newest the document keeps, and by which metric the best one too."""
    workload = document.workload
    if isinstance(workload, TrainingWorkload):
        return workload.checkpoint.keep, workload.checkpoint.keep_best
    return (workload.checkpoint.keep, None) if workload.checkpoint is not None else (1, None)


def _spare(conn: Connection) -> list[CheckpointRow]:
    found: list[CheckpointRow] = []
    for job_id, spec in conn.execute(_CANDIDATES).all():
        keep, best = kept_by(load_job(spec))
        found += checkpoints.to_prune(conn, job_id, keep, best=best)
    return found
