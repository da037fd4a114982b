"""Which jobs are due, and who works on them: wake, claim, and the fence that guards a claim."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Update, and_, bindparam, case, func, or_, select, update

from shunter_store.errors import StaleStep
from shunter_store.job import outbox
from shunter_store.sql.sqltypes import db_now, seconds
from shunter_store.tables import job_due


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to apply one step to a job, valid until somebody else claims it."""

    job_id: str
    fence: int
    claimed_at: datetime


URGENCIES: Final = (0, 1, 2, 3)
"""0: stop requested or stopping; then the priorities high, normal, low."""

_SOONER: Final = case(
    (or_(job_due.c.next_at.is_(None), job_due.c.next_at > db_now()), db_now()), else_=job_due.c.next_at
)


def _waking(**more: Any) -> Update:
    return (
        update(job_due)
        .where(job_due.c.job_id.in_(bindparam("ids", expanding=True)))
        .values(wake=job_due.c.wake + 1, next_at=_SOONER, **more)
    )


_WAKE = _waking()
_WAKE_ALL = update(job_due).where(job_due.c.next_at > db_now()).values(wake=job_due.c.wake + 1, next_at=db_now())
_WAKE_AT_URGENCY = _waking(urgency=bindparam("level"))


def _due(lease_s: ColumnElement[float]) -> tuple[ColumnElement[bool], ...]:
    """A lease further away than any worker would set is one that a jump of the clock left behind."""
    return (
        # Naming every urgency lets the index jump to what is due within each.
        job_due.c.urgency.in_(URGENCIES),
        job_due.c.next_at <= db_now(),
        or_(
            job_due.c.lease_until.is_(None),
            job_due.c.lease_until < db_now(),
            job_due.c.lease_until > db_now() + 2 * lease_s,
        ),
    )


_PICKED = (
    select(job_due.c.job_id)
    .where(*_due(seconds("lease_s")))
    .order_by(job_due.c.urgency, job_due.c.next_at)
    .limit(bindparam("limit"))
    .with_for_update(skip_locked=True, key_share=True)
    .cte("picked")
)
_CLAIM = (
    update(job_due)
    .where(job_due.c.job_id.in_(select(_PICKED.c.job_id)))
    .values(
        fence=job_due.c.fence + 1,
        seen_wake=job_due.c.wake,
        lease_owner=bindparam("owner"),
        lease_until=db_now() + seconds("lease_s"),
    )
    .returning(job_due.c.job_id, job_due.c.fence, job_due.c.lease_until, job_due.c.urgency, job_due.c.next_at)
)
_CLAIM_AGAIN = (
    update(job_due)
    .where(job_due.c.job_id == bindparam("job"), job_due.c.lease_owner.is_(None), job_due.c.next_at <= db_now())
    .values(
        fence=job_due.c.fence + 1,
        seen_wake=job_due.c.wake,
        lease_owner=bindparam("owner"),
        lease_until=db_now() + seconds("lease_s"),
    )
    .returning(job_due.c.fence, job_due.c.lease_until)
)
_COUNT = select(func.count()).select_from(job_due).where(*_due(seconds("lease_s")))


def still_held(job: str, fence: str) -> ColumnElement[bool]:
    """Whether the claim with these parameters holds: nobody claimed since, and it was not applied yet.

    A lease that ran out holds on until somebody takes the job: the fence is what counts, not the clock.
    """
    return and_(
        job_due.c.job_id == bindparam(job), job_due.c.fence == bindparam(fence), job_due.c.lease_owner.is_not(None)
    )


_HOLDS = select(job_due.c.fence).where(still_held("job", "at")).with_for_update(key_share=True)


def wake(conn: Connection, job_ids: Iterable[str], *, urgency: int | None = None) -> None:
    """Make jobs due now, also when a step of theirs runs at this moment. Jobs that ended are left alone."""
    ids = sorted(set(job_ids))
    if not ids:
        return
    if urgency is None:
        woken = conn.execute(_WAKE, {"ids": ids}).rowcount
    else:
        woken = conn.execute(_WAKE_AT_URGENCY, {"ids": ids, "level": urgency}).rowcount
    if woken:
        outbox.put(conn)


def claim(conn: Connection, *, owner: str, limit: int = 1, lease_s: float = 30.0) -> list[Claim]:
    """Take up to `limit` jobs that are due and free: stops first, then by priority, then the longest due."""
    rows = conn.execute(_CLAIM, {"owner": owner, "limit": limit, "lease_s": lease_s}).all()
    claimed = sorted(rows, key=lambda row: (row.urgency, row.next_at))
    return [Claim(row.job_id, row.fence, row.lease_until - timedelta(seconds=lease_s)) for row in claimed]


def claim_again(conn: Connection, job_id: str, *, owner: str, lease_s: float) -> Claim | None:
    """Take this one job, in the transaction that let go of it, if it is due at once. None: it is not, or it ended.

    It is what `claim` would do a moment later, without a hint, a message and a transaction in between.
    """
    row = conn.execute(_CLAIM_AGAIN, {"job": job_id, "owner": owner, "lease_s": lease_s}).one_or_none()
    return None if row is None else Claim(job_id, row.fence, row.lease_until - timedelta(seconds=lease_s))


def wake_all(conn: Connection) -> int:
    """Make every job due that waits for a moment, and say how many did: the clock that their moments were counted by
    was set back."""
    woken = conn.execute(_WAKE_ALL).rowcount
    if woken:
        outbox.put(conn)
    return woken


def count_due(conn: Connection, *, lease_s: float = 30.0) -> int:
    """How many jobs a claim could take now."""
    return conn.execute(_COUNT, {"lease_s": lease_s}).scalar_one()


def require(conn: Connection, claim: Claim) -> None:
    """Prove that the claim still holds, until this transaction ends.

    Raises:
        StaleStep: another worker has the job, or it ended.
    """
    if conn.execute(_HOLDS, {"job": claim.job_id, "at": claim.fence}).scalar() is None:
        raise StaleStep(claim.job_id, claim.fence)
