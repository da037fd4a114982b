"""The history of a job: append-only, numbered without a gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shunter_schemas.states import Reason, State
from sqlalchemy import Connection, bindparam, insert, select, update

from shunter_store.errors import NotFound
from shunter_store.job.lifecycle import Trigger
from shunter_store.sql.bulk import BulkInsert
from shunter_store.sql.rows import all_of, columns_of
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import events, jobs
from shunter_store.tables import transitions as transitions_table


@dataclass(frozen=True, slots=True)
class EventRow:
    """Something that happened to a job."""

    job_id: str
    seq: int
    at: datetime
    type: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TransitionRow:
    """One move of the state machine; `seq` is that of its event `job.state`."""

    job_id: str
    seq: int
    at: datetime
    trigger: Trigger
    from_state: State
    to_state: State
    reason: Reason | None
    generation: int


_TAKE_NUMBERS = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(event_seq=jobs.c.event_seq + bindparam("count"))
    .returning(jobs.c.event_seq)
)
_INSERT = insert(events).values(at=db_now())
INSERT_FIRST: Final = BulkInsert(events, ("job_id", "type", "data", "at"), seq=1)
"""The first events of new jobs."""
_PAGE = (
    select(*columns_of(EventRow, events))
    .where(events.c.job_id == bindparam("job"), events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
    .limit(bindparam("limit"))
)
_TRANSITIONS = (
    select(*columns_of(TransitionRow, transitions_table))
    .where(transitions_table.c.job_id == bindparam("job"))
    .order_by(transitions_table.c.seq)
)


def append(conn: Connection, job_id: str, type_: str, data: Mapping[str, Any]) -> int:
    """Add one event and return its number.

    Raises:
        NotFound: there is no such job.
    """
    return append_all(conn, job_id, [(type_, data)])


def append_all(conn: Connection, job_id: str, new: Sequence[tuple[str, Mapping[str, Any]]]) -> int:
    """Add several events in their order and return the number of the last one.

    The number comes from the job's row, which this locks until the transaction ends: that is what leaves no gap.
    """
    last = conn.execute(_TAKE_NUMBERS, {"job": job_id, "count": len(new)}).scalar()
    if last is None:
        raise NotFound("job", job_id)
    write_numbered(conn, job_id, int(last) - len(new) + 1, new)
    return int(last)


def write_numbered(conn: Connection, job_id: str, first_seq: int, new: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Write events whose numbers the caller took from the job's row in this same transaction."""
    if new:
        conn.execute(
            _INSERT,
            [
                {"job_id": job_id, "seq": seq, "type": type_, "data": data}
                for seq, (type_, data) in enumerate(new, first_seq)
            ],
        )


def write_each(conn: Connection, numbered: Sequence[tuple[str, int]], type_: str, data: Mapping[str, Any]) -> None:
    """The same event for several jobs, by id and number; the caller took the numbers in this same transaction."""
    if numbered:
        conn.execute(_INSERT, [{"job_id": job_id, "seq": seq, "type": type_, "data": data} for job_id, seq in numbered])


def page(conn: Connection, job_id: str, after: int = 0, limit: int = 100) -> list[EventRow]:
    """Events with a number above `after`, oldest first."""
    return all_of(EventRow, conn.execute(_PAGE, {"job": job_id, "after": after, "limit": limit}))


def transitions(conn: Connection, job_id: str) -> list[TransitionRow]:
    """Every move of the job, oldest first."""
    return all_of(TransitionRow, conn.execute(_TRANSITIONS, {"job": job_id}))
