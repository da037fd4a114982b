"""Many jobs at once: pages by filter, newest first, and counts. A page costs the same at any depth.

One filter finds the jobs, along an index in the order of the page; the others are checked on what it finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from shunter_schemas.states import LIVE_STATES, Reason, State
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    exists,
    func,
    literal_column,
    select,
    tuple_,
    union_all,
)

from shunter_store.sql.bulk import ByKeys
from shunter_store.sql.sqltypes import UtcTime
from shunter_store.tables import job_due, job_labels, jobs, progress

FULL_COMMIT: Final = (40, 64)
"""Digits of a whole commit."""
FEW: Final = 2000
"""So many jobs are sorted as quickly as the newest are looked through."""
_AFTER_ANY_TEXT: Final = "\U0010ffff"

Label = tuple[str, str | None]
"""A key, and the value that it has; None: any."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What a job must be to be chosen; everything that is given must hold."""

    states: Sequence[State] = ()
    labels: Sequence[Label] = ()
    name: str | None = None
    name_prefix: str | None = None
    created_by: str | None = None
    provider: str | None = None
    commit: str | None = None
    """Of the source; its first digits are enough."""
    created_after: datetime | None = None
    created_before: datetime | None = None


EVERY_JOB: Final = JobFilter()


class JobLine(NamedTuple):
    """A job in a list: without the document and what else is long, which would cost more than all the rest."""

    id: str
    name: str
    state: State
    reason: Reason | None
    created_at: datetime
    finished_at: datetime | None
    pause_requested_at: datetime | None


class Steps(NamedTuple):
    """How far a job's newest generation came."""

    step: int
    total_steps: int | None


Counts = tuple[dict[State, int], int]
"""How many jobs are in each state, and how many queued ones are paused."""
LINE_COLUMNS: Final = [jobs.c[name] for name in JobLine._fields]

_COUNTS = select(jobs.c.state, func.count()).where(jobs.c.project == bindparam("of_project")).group_by(jobs.c.state)
_PAUSED = (
    select(func.count())
    .select_from(jobs)
    .where(
        jobs.c.project == bindparam("of_project"),
        jobs.c.state == State.QUEUED,
        jobs.c.pause_requested_at.is_not(None),
    )
)


_STEPS = ByKeys(
    lambda asked: (
        select(progress.c.job_id, progress.c.step, progress.c.total_steps)
        .where(asked(progress.c.job_id))
        .order_by(progress.c.job_id, progress.c.generation)
    )
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
    return list(map(JobLine._make, conn.execute(_page(conn, project, where, before, limit))))


def steps_of(conn: Connection, job_ids: Sequence[str]) -> dict[str, Steps]:
    """How far these jobs are, of those that reported."""
    return {id_: Steps(step, total) for id_, step, total in _STEPS.run(conn, job_ids)} if job_ids else {}


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


def counts(conn: Connection, project: str) -> Counts:
    """Looks through the index of all jobs of the project (some 0.1 s for a million)."""
    found = {row[0]: row[1] for row in conn.execute(_COUNTS, {"of_project": project})}
    paused = conn.execute(_PAUSED, {"of_project": project}).scalar_one() if found.get(State.QUEUED) else 0
    return {state: found.get(state, 0) for state in State}, paused


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
    return list(map(JobLine._make, conn.execute(merged)))


def _page(
    conn: Connection, project: str, where: JobFilter, before: tuple[datetime, str] | None, limit: int
) -> Select[Any]:
    query: Select[Any] = select(*LINE_COLUMNS)
    at: ColumnElement[Any] = jobs.c.created_at
    id_: ColumnElement[Any] = jobs.c.id
    if where.labels and not _few_in_states(conn, project, where.states):
        first, *others = _rarest_first(conn, project, where.labels)
        query = query.join_from(job_labels, jobs, jobs.c.id == job_labels.c.job_id)
        query = query.where(job_labels.c.project == project, *_label_is(job_labels, first))
        query = query.where(*(_carries(label) for label in others))
        at, id_ = job_labels.c.created_at, job_labels.c.job_id
    else:
        query = query.where(jobs.c.project == project, *(_carries(label) for label in where.labels))
        if where.labels:
            at = _unordered(at)
    for column, prefix in _prefixes(where):
        few = _few(conn, jobs.c.project == project, _begins(conn, column, prefix))
        query = query.where(_begins(conn, column if few else column.op("||")(""), prefix))
        if few:
            at = _unordered(at)
    query = query.where(*_moments(at, id_, where, before), *_exactly(where))
    return query.order_by(at.desc(), id_.desc()).limit(limit)


def _moments(
    at: ColumnElement[Any], id_: ColumnElement[Any], where: JobFilter, before: tuple[datetime, str] | None
) -> Iterator[ColumnElement[bool]]:
    if before is not None:
        yield tuple_(at, id_) < before
    if where.created_after is not None:
        yield at > where.created_after
    if where.created_before is not None:
        yield at < where.created_before


def _exactly(where: JobFilter) -> Iterator[ColumnElement[bool]]:
    if where.states:
        yield jobs.c.state.in_(where.states) if len(where.states) > 1 else jobs.c.state == where.states[0]
    whole_commit = where.commit if _is_whole(where.commit) else None
    wanted = {
        jobs.c.name: where.name,
        jobs.c.created_by: where.created_by,
        jobs.c.provider: where.provider,
        jobs.c.source_commit: whole_commit,
    }
    yield from (column == value for column, value in wanted.items() if value is not None)


def _prefixes(where: JobFilter) -> Iterator[tuple[ColumnElement[Any], str]]:
    if where.name_prefix is not None:
        yield jobs.c.name, where.name_prefix
    if where.commit is not None and not _is_whole(where.commit):
        yield jobs.c.source_commit, where.commit


def _unordered(at: ColumnElement[Any]) -> ColumnElement[Any]:
    """The same, as an expression that no index knows: what is few is looked up, and then sorted."""
    return at.op("+", return_type=UtcTime())(literal_column("0"))


def _few_in_states(conn: Connection, project: str, states: Sequence[State]) -> bool:
    """Whether states lead to the jobs: few are live at any time, where many with a label have ended."""
    return bool(states) and _few(conn, jobs.c.project == project, jobs.c.state.in_(states))


def _few(conn: Connection, *are: ColumnElement[bool]) -> bool:
    """Few are found by their index and sorted; of many, the newest jobs soon show enough."""
    some = select(jobs.c.id).where(*are).limit(FEW).subquery()
    return conn.execute(select(func.count()).select_from(some)).scalar_one() < FEW


def _begins(conn: Connection, column: ColumnElement[Any], prefix: str) -> ColumnElement[bool]:
    if conn.dialect.name == "postgresql":
        return column.startswith(prefix, autoescape=True)
    return (column >= prefix) & (column < prefix + _AFTER_ANY_TEXT)


def _is_whole(commit: str | None) -> bool:
    return commit is not None and len(commit) in FULL_COMMIT


def _rarest_first(conn: Connection, project: str, labels: Sequence[Label]) -> list[Label]:
    """The one to look the jobs up by, then those to check."""
    if len(labels) == 1:
        return list(labels)
    numbers = {}
    for label in labels:
        some = select(job_labels.c.job_id).where(job_labels.c.project == project, *_label_is(job_labels, label))
        numbers[label] = conn.execute(select(func.count()).select_from(some.limit(FEW).subquery())).scalar_one()
    return sorted(numbers, key=lambda label: numbers[label])


def _carries(label: Label) -> ColumnElement[bool]:
    other = job_labels.alias()
    return exists().where(other.c.job_id == jobs.c.id, *_label_is(other, label))


def _label_is(labels: Any, label: Label) -> list[ColumnElement[bool]]:
    key, value = label
    return [labels.c.key == key, *([] if value is None else [labels.c.value == value])]
