"""What `scale.py` reads from the database: how jobs stand, how long things took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from shunter_schemas.states import NodeState, State
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import events, jobs, nodes
from sqlalchemy import Connection, Double, func, select, type_coerce


@dataclass(frozen=True, slots=True)
class Seen:
    """How the running jobs stand at a moment."""

    running: int
    unheard_s: float
    """Since the node was heard that was not heard for longest."""
    all_heard_after: float
    """The earliest of their last exchanges (epoch seconds)."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Of how long something took."""

    took_s: Sequence[float]

    def percentile_s(self, percent: float) -> float:
        ordered = sorted(self.took_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else float("nan")

    def __str__(self) -> str:
        if not self.took_s:
            return "none"
        points = (self.percentile_s(50), self.percentile_s(99), max(self.took_s))
        return "p50 {:.2f} s, p99 {:.2f} s, most {:.2f} s".format(*points) + f" ({len(self.took_s)})"


def states(database: Database) -> Counter[str]:
    """How many jobs are in each state."""
    rows = database.read(lambda conn: conn.execute(select(jobs.c.state, func.count()).group_by(jobs.c.state)).all())
    return Counter({str(state): count for state, count in rows})


def running_ids(database: Database, most: int) -> list[str]:
    """Some that run."""
    asked = select(jobs.c.id).where(jobs.c.state == State.RUNNING).limit(most)
    return database.read(lambda conn: list(conn.execute(asked).scalars()))


def seen(database: Database) -> Seen:
    """The running jobs."""
    heard = type_coerce(nodes.c.last_sync_at, Double)
    asked = (
        select(func.count(), func.coalesce(func.max(db_now() - heard), 0.0), func.coalesce(func.min(heard), 0.0))
        .select_from(nodes.join(jobs, jobs.c.id == nodes.c.job_id))
        .where(nodes.c.state == NodeState.READY, jobs.c.state == State.RUNNING)
    )
    return Seen(*database.read(lambda conn: conn.execute(asked).one()))


def cancel_to_released(database: Database, since: float) -> Spread:
    """From the request to cancel until no node was left."""
    taken = type_coerce(jobs.c.released_at, Double) - type_coerce(jobs.c.cancel_requested_at, Double)
    asked = select(taken).where(jobs.c.cancel_requested_at >= _moment(since), jobs.c.released_at.is_not(None))
    return Spread(database.read(lambda conn: list(conn.execute(asked).scalars())))


def done_to_outcome(database: Database, since: float) -> Spread:
    """From the moment at which a node's ranks were done until the job's outcome was there."""
    return Spread(database.read(lambda conn: _lags(conn, "node.done", jobs.c.finished_at, since)))


def up_to_running(database: Database, since: float) -> Spread:
    """From the moment at which the last rank was up until the job was `running`."""
    return Spread(database.read(lambda conn: _lags(conn, "node.rank_up", jobs.c.started_at, since)))


def disturbed(database: Database) -> int:
    """Jobs that were started more than once, or recovered."""
    asked = select(func.count()).where((jobs.c.node_recoveries > 0) | (jobs.c.user_restarts > 0))
    return database.read(lambda conn: conn.execute(asked).scalar_one())


def generations(database: Database) -> dict[str, int]:
    """Of the jobs that run, and were not asked to end."""
    asked = select(jobs.c.id, jobs.c.generation).where(
        jobs.c.state == State.RUNNING, jobs.c.cancel_requested_at.is_(None)
    )
    return database.read(lambda conn: dict(conn.execute(asked).tuples().all()))


def _lags(conn: Connection, type_: str, then: object, since: float) -> list[float]:
    told = func.max(events.c.data["node_at"].as_float()).label("told_at")
    of_job = (
        select(events.c.job_id, told)
        .where(events.c.type == type_, events.c.at >= _moment(since))
        .group_by(events.c.job_id)
        .subquery()
    )
    moment = type_coerce(then, Double)
    asked = select(moment - of_job.c.told_at).select_from(jobs.join(of_job, of_job.c.job_id == jobs.c.id))
    return list(conn.execute(asked.where(moment >= since)).scalars())


def _moment(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(epoch_s, UTC)
