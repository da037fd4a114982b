"""Many jobs at once: pages by filter, newest first, and counts. A page costs the same at any depth.

One filter finds the jobs, along an index in the order of the page; the others are checked on what it finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from shunter_schemas.states import LIVE_STATES, Reason, State
from sqlalchemy import ColumnElement, Connection, Select, bindparam, exists, func, select, tuple_, union_all

from shunter_store.rows import all_of, columns_of
from shunter_store.tables import job_due, job_labels, jobs

FULL_COMMIT: Final = (40, 64)
"""Digits of a whole commit."""
FEW: Final = 2000
"""So many jobs are sorted as quickly as the newest are looked through."""
_AFTER_ANY_TEXT: Final = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What a job must be to be chosen; everything that is given must hold."""

    states: Sequence[State] = ()
    labels: Sequence[tuple[str, str | None]] = ()
    """Labels that it carries: with this value, or with None any."""
    name: str | None = None
    name_prefix: str | None = None
    created_by: str | None = None
    provider: str | None = None
    commit: str | None = None
    """Of the source; its first digits are enough."""
    created_after: datetime | None = None
    created_before: datetime | None = None


EVERY_JOB: Final = JobFilter()


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job in a list: without the document and what else is long, which would cost more than all the rest."""

    id: str
    name: str
    labels: dict[str, str]
    state: State
    reason: Reason | None
    created_at: datetime
    finished_at: datetime | None
    pause_requested_at: datetime | None


LINE_COLUMNS: Final = columns_of(JobLine, jobs)

_COUNTS = (
    select(jobs.c.state, func.count(), func.count(jobs.c.pause_requested_at))
    .where(jobs.c.project == bindparam("of_project"))
    .group_by(jobs.c.state)
)


def page(
    conn: Connection,
    *,
    project: str,
    where: JobFilter = EVERY_JOB,
    before: tuple[datetime, str] | None = None,
    limit: int = 50,
) -> list[JobLine]:
    """Jobs of a project, newest first, that are older than the pair `(created_at, id)` of the last one seen."""
    if len(where.states) > 1 and not _finds(where):
        return _merged_states(conn, project, where, before, limit)
    return all_of(JobLine, conn.execute(_page(conn, project, where, before, limit)))


def to_cancel(conn: Connection, *, project: str, where: JobFilter, limit: int) -> list[str]:
    """Ids of jobs that fit, may still be asked to end, and were not; newest first."""
    if where.states and not LIVE_STATES.intersection(where.states):
        return []
    chosen = _page(conn, project, where, None, limit).with_only_columns(jobs.c.id)
    # Through the due rows: there are as many as jobs that live, whatever the number of jobs that ended.
    chosen = chosen.where(
        jobs.c.id.in_(select(job_due.c.job_id)), jobs.c.cancel_requested_at.is_(None), jobs.c.outcome.is_(None)
    )
    return list(conn.execute(chosen).scalars())


def counts(conn: Connection, project: str) -> tuple[dict[State, int], int]:
    """How many jobs of a project are in each state, and how many queued ones are paused."""
    found = {state: (number, paused) for state, number, paused in conn.execute(_COUNTS, {"of_project": project})}
    return {state: found.get(state, (0, 0))[0] for state in State}, found.get(State.QUEUED, (0, 0))[1]


def _finds(where: JobFilter) -> bool:
    """Whether a filter other than the state leads to the jobs."""
    return bool(where.labels or where.name or where.created_by or where.provider or where.commit or where.name_prefix)


def _merged_states(
    conn: Connection, project: str, where: JobFilter, before: tuple[datetime, str] | None, limit: int
) -> list[JobLine]:
    """Each state's newest, merged: an index holds each state's jobs in order, but not those of several."""
    parts = [_page(conn, project, replace(where, states=(state,)), before, limit) for state in set(where.states)]
    all_ = union_all(*(select(part.subquery()) for part in parts)).subquery()
    merged = select(*(all_.c[column.name] for column in LINE_COLUMNS))
    merged = merged.order_by(all_.c.created_at.desc(), all_.c.id.desc()).limit(limit)
    return all_of(JobLine, conn.execute(merged))


def _page(
    conn: Connection, project: str, where: JobFilter, before: tuple[datetime, str] | None, limit: int
) -> Select[Any]:
    query: Select[Any]
    if where.labels:
        query = select(*LINE_COLUMNS).join_from(job_labels, jobs, jobs.c.id == job_labels.c.job_id)
        query = query.where(job_labels.c.project == project, *_label_is(job_labels, *where.labels[0]))
        at, id_ = job_labels.c.created_at, job_labels.c.job_id
    else:
        query = select(*LINE_COLUMNS).where(jobs.c.project == project)
        at, id_ = jobs.c.created_at, jobs.c.id
    if before is not None:
        query = query.where(tuple_(at, id_) < before)
    if where.created_after is not None:
        query = query.where(at > where.created_after)
    if where.created_before is not None:
        query = query.where(at < where.created_before)
    query = query.where(*_conditions(conn, project, where))
    return query.order_by(at.desc(), id_.desc()).limit(limit)


def _conditions(conn: Connection, project: str, where: JobFilter) -> list[ColumnElement[bool]]:
    chosen: list[ColumnElement[bool]] = []
    if where.states:
        chosen.append(jobs.c.state.in_(where.states) if len(where.states) > 1 else jobs.c.state == where.states[0])
    for column, value in ((jobs.c.name, where.name), (jobs.c.created_by, where.created_by)):
        if value is not None:
            chosen.append(column == value)
    if where.provider is not None:
        chosen.append(jobs.c.provider == where.provider)
    if where.commit is not None:
        whole = len(where.commit) in FULL_COMMIT
        by_commit = jobs.c.source_commit
        chosen.append(by_commit == where.commit if whole else _begins(conn, by_commit, where.commit))
    if where.name_prefix is not None:
        chosen.append(_name_begins(conn, project, where.name_prefix))
    for key, value in where.labels[1:]:
        other = job_labels.alias()
        chosen.append(exists().where(other.c.job_id == jobs.c.id, *_label_is(other, key, value)))
    return chosen


def _label_is(labels: Any, key: str, value: str | None) -> list[ColumnElement[bool]]:
    return [labels.c.key == key, *([] if value is None else [labels.c.value == value])]


def _name_begins(conn: Connection, project: str, prefix: str) -> ColumnElement[bool]:
    """Few such names are found by the index and sorted; of many, the newest jobs soon show enough."""
    indexed = _begins(conn, jobs.c.name, prefix)
    some = select(jobs.c.id).where(jobs.c.project == project, indexed).limit(FEW).subquery()
    if conn.execute(select(func.count()).select_from(some)).scalar_one() < FEW:
        return indexed
    return _begins(conn, jobs.c.name.op("||")(""), prefix)


def _begins(conn: Connection, column: ColumnElement[Any], prefix: str) -> ColumnElement[bool]:
    if conn.dialect.name == "postgresql":
        return column.startswith(prefix, autoescape=True)
    return (column >= prefix) & (column < prefix + _AFTER_ANY_TEXT)
