"""What things cost, from the ledger alone: by node, in whole micro-dollars, split at any moment.

A node's cost up to a moment is rounded once, and a part of it is the difference of two such numbers. So the parts of a
node add up to the node, and every way to group the same nodes adds up to the same total, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Select, and_, bindparam, or_, select

from shunter_store.accounts.readings import list_all
from shunter_store.job.jobs import JobRow
from shunter_store.sql.sqltypes import PerDialect, UtcTime, now_as_time
from shunter_store.tables import charges, jobs, nodes, payers

MICRO: Final = 1_000_000
_HOUR_S: Final = 3600.0
_Rows = Select[*tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Span:
    """From `since` on, before `until`; None: from the beginning, until now."""

    since: datetime | None = None
    until: datetime | None = None


@dataclass(slots=True)
class Sum:
    """Micro-dollars; `unconfirmed` is the part of them that no reading of the provider has confirmed yet."""

    micro_usd: int = 0
    unconfirmed: int = 0
    node_s: float = 0.0
    """Time of nodes that cost something."""

    def add(self, other: Sum) -> None:
        """Make it the sum of both."""
        self.micro_usd += other.micro_usd
        self.unconfirmed += other.unconfirmed
        self.node_s += other.node_s


@dataclass(frozen=True, slots=True)
class Costs:
    """Sums by the values of what was grouped by, and the sum of all."""

    read_at: datetime
    total: Sum
    groups: Mapping[tuple[str | None, ...], Sum]


@dataclass(frozen=True, slots=True)
class _Bill:
    """A row of the ledger that cost something, and for whom it was. No field of a job without a record is known."""

    node_id: str
    job_id: str
    instance: str
    handle: str | None
    rate: float
    accrued_usd: float
    accrued_at: datetime | None
    begun_at: datetime
    gone_at: datetime | None
    project: str | None
    created_by: str | None
    name: str | None
    labels: Mapping[str, str] | None
    intervals: list[tuple[float, float, float]] = field(default_factory=list)
    """(since, until, USD an hour), those that are over."""

    def value_of(self, dimension: str, day: str) -> str | None:
        """What it is grouped by."""
        if dimension.startswith("label."):
            return (self.labels or {}).get(dimension.removeprefix("label."))
        by: Mapping[str, str | None] = {
            "day": day,
            "provider": self.instance,
            "job": self.job_id,
            "project": self.project,
            "created_by": self.created_by,
        }
        return by[dimension]


DIMENSIONS: Final = ("provider", "job", "project", "created_by", "day")
"""What costs can be grouped by, beside `label.KEY`. Days are those of UTC."""


def _either(column: str) -> list[Any]:
    return [jobs.c[column], payers.c[column]]


_IN_SPAN = and_(
    or_(nodes.c.billed_usd_per_hour > 0, nodes.c.accrued_usd > 0),
    nodes.c.intended_at < bindparam("until", type_=UtcTime),
    or_(nodes.c.gone_at.is_(None), nodes.c.gone_at > bindparam("since", type_=UtcTime)),
)
_MINE = or_(jobs.c.project == bindparam("of_project"), payers.c.project == bindparam("of_project"))
_WITH_PAYER = nodes.outerjoin(jobs, jobs.c.id == nodes.c.job_id).outerjoin(payers, payers.c.job_id == nodes.c.job_id)
_BILLS = (
    select(
        nodes.c.id,
        nodes.c.job_id,
        nodes.c.instance,
        nodes.c.handle,
        nodes.c.billed_usd_per_hour,
        nodes.c.accrued_usd,
        nodes.c.accrued_at,
        nodes.c.created_at,
        nodes.c.intended_at,
        nodes.c.gone_at,
        *_either("project"),
        *_either("created_by"),
        *_either("name"),
        *_either("labels"),
    )
    .select_from(_WITH_PAYER)
    .where(_IN_SPAN)
)
_INTERVALS = (
    select(charges.c.node_id, charges.c.since, charges.c.until, charges.c.usd_per_hour)
    .join(nodes, nodes.c.id == charges.c.node_id)
    .where(_IN_SPAN)
    .order_by(charges.c.node_id, charges.c.since)
)
_OF_JOB = nodes.c.job_id == bindparam("of_job")
_NOW = select(now_as_time())
_PAYER = PerDialect(lambda insert: insert(payers).on_conflict_do_nothing())
_HAD_NODES = select(nodes.c.id).where(nodes.c.job_id == bindparam("job")).limit(1)


def keep_payer(conn: Connection, job: JobRow) -> None:
    """Remember for whom a job was whose record goes: its nodes stay in the ledger."""
    if conn.execute(_HAD_NODES, {"job": job.id}).scalar() is None:
        return
    row = {"job_id": job.id, "project": job.project, "created_by": job.created_by, "name": job.name}
    conn.execute(_PAYER.on(conn), {**row, "labels": job.labels})


def costs(conn: Connection, *, span: Span, group_by: Sequence[str], project: str | None = None) -> Costs:
    """What the nodes cost within the span, grouped.

    Args:
        group_by: of `DIMENSIONS`, or `label.KEY`; empty: the total alone.
        project: only this one's; None: everybody's.
    """
    now: datetime = conn.execute(_NOW).scalar_one()
    since, until = span.since or datetime.fromtimestamp(0, UTC), min(span.until or now, now)
    confirmed = {reading.instance: reading.read_at for reading in list_all(conn)}
    total, groups = Sum(), dict[tuple[str | None, ...], Sum]()
    for bill in _bills(conn, since, until, project):
        meter = Meter(bill, now)
        for first, last in _pieces(max(since, meter.begins), min(until, meter.ends), by_day="day" in group_by):
            part = meter.between(first, last, _doubt_from(bill, confirmed, now))
            key = tuple(bill.value_of(dimension, f"{first:%Y-%m-%d}") for dimension in group_by)
            groups.setdefault(key, Sum()).add(part)
            total.add(part)
    return Costs(now, total, groups if group_by else {})


def of_job(conn: Connection, job_id: str) -> tuple[datetime, dict[str, Meter]]:
    """This moment, and what each node of a job that costs something has cost up to any moment, by the node's id."""
    now: datetime = conn.execute(_NOW).scalar_one()
    span = {"since": datetime.fromtimestamp(0, UTC), "until": now, "of_job": job_id}
    intervals, bills = _INTERVALS.where(_OF_JOB), _BILLS.where(_OF_JOB)
    return now, {bill.node_id: Meter(bill, now) for bill in _read(conn, span, intervals, bills)}


def _bills(conn: Connection, since: datetime, until: datetime, project: str | None) -> Iterator[_Bill]:
    span = {"since": since, "until": until}
    if project is None:
        return _read(conn, span, _INTERVALS, _BILLS)
    return _read(conn, {**span, "of_project": project}, _INTERVALS, _BILLS.where(_MINE))


def _read(conn: Connection, asked: Mapping[str, Any], of_intervals: _Rows, of_bills: _Rows) -> Iterator[_Bill]:
    intervals: dict[str, list[tuple[float, float, float]]] = {}
    for node_id, first, last, rate in conn.execute(of_intervals, asked):
        intervals.setdefault(node_id, []).append((first.timestamp(), last.timestamp(), rate))
    for row in conn.execute(of_bills, asked):
        node_id, job_id, instance, handle, rate, usd, accrued_at, created_at, intended_at, gone_at, *either = row
        project_, by, name, labels = (_first_known(*either[place : place + 2]) for place in (0, 2, 4, 6))
        yield _Bill(
            node_id=node_id,
            job_id=job_id,
            instance=instance,
            handle=handle,
            rate=rate,
            accrued_usd=usd,
            accrued_at=accrued_at,
            begun_at=created_at or intended_at,
            gone_at=gone_at,
            project=project_,
            created_by=by,
            name=name,
            labels=labels,
            intervals=intervals.get(node_id, []),
        )


class Meter:
    """What one node has cost up to any moment; parts of it that meet add up to the whole."""

    def __init__(self, bill: _Bill, now: datetime) -> None:
        parts = list(bill.intervals)
        known = sum((last - first) / _HOUR_S * rate for first, last, rate in parts)
        self._usd = bill.accrued_usd
        runs = bill.gone_at is None and bill.accrued_at is not None
        if runs and bill.accrued_at is not None:
            first, last = bill.accrued_at.timestamp(), now.timestamp()
            self._usd += max(0.0, last - first) / _HOUR_S * bill.rate
            parts.append((first, last, bill.rate))
        # Older releases kept no intervals: what they summed up lies before the first that is known.
        missing = bill.accrued_usd - known
        begun = bill.begun_at.timestamp()
        until = parts[0][0] if parts else (bill.gone_at or now).timestamp()
        if missing > 0.5 / MICRO and until > begun:
            parts.insert(0, (begun, until, missing / (until - begun) * _HOUR_S))
        self._parts = parts or [(begun, max(begun, (bill.gone_at or now).timestamp()), 0.0)]
        self._whole = self._raw(self._parts[-1][1])

    @property
    def begins(self) -> datetime:
        """From when on it cost something."""
        return datetime.fromtimestamp(self._parts[0][0], UTC)

    @property
    def ends(self) -> datetime:
        """Until when."""
        return datetime.fromtimestamp(self._parts[-1][1], UTC)

    def between(self, since: datetime, until: datetime, doubt_from: datetime | None = None) -> Sum:
        """What a part of its time cost; unconfirmed is what lies behind `doubt_from`."""
        first, last = self._at(since), self._at(until)
        doubted = 0 if doubt_from is None else last - self._at(min(max(since, doubt_from), until))
        return Sum(last - first, doubted, (until - since).total_seconds())

    def _at(self, moment: datetime) -> int:
        at = moment.timestamp()
        if at >= self._parts[-1][1] or self._whole <= 0:
            share = 1.0 if at >= self._parts[-1][1] else 0.0
        else:
            share = self._raw(at) / self._whole
        return round(self._usd * share * MICRO)

    def _raw(self, at: float) -> float:
        return sum(max(0.0, min(at, last) - first) * rate for first, last, rate in self._parts)


def _pieces(since: datetime, until: datetime, *, by_day: bool) -> Iterator[tuple[datetime, datetime]]:
    """The whole, or the days of it."""
    while by_day and since < until:
        midnight = since.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        yield since, min(midnight, until)
        since = midnight
    if since < until:
        yield since, until


def _first_known(one: Any, other: Any) -> Any:
    return other if one is None else one


def _doubt_from(bill: _Bill, confirmed: Mapping[str, datetime | None], now: datetime) -> datetime:
    """From when on nobody has seen that the node is there; a row without a handle may have no node at all."""
    if bill.gone_at is not None:
        return now
    if bill.handle is None:
        return bill.begun_at
    return confirmed.get(bill.instance) or bill.begun_at
