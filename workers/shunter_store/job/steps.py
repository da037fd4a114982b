"""Apply what a step decided: the state machine's only writer, guarded by the claim's fence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from shunter_schemas.states import NodeState, Reason, State
from sqlalchemy import ColumnElement, Connection, bindparam, case, delete, func, insert, null, select, update
from sqlalchemy.sql.dml import ReturningUpdate

from shunter_store.errors import Conflict, Overtaken, StaleStep
from shunter_store.job import documents, events, jobs, outbox
from shunter_store.job.due import Claim, still_held
from shunter_store.job.jobs import JobRow
from shunter_store.job.lifecycle import OUTCOME, Trigger, follow, is_terminal
from shunter_store.sql.sqltypes import db_now, now_as_time, seconds
from shunter_store.tables import job_due, nodes
from shunter_store.tables import jobs as jobs_table
from shunter_store.tables import transitions as transitions_table

SETTABLE: Final = frozenset(
    {"message", "health", "generation", "provider", "plan", "waiting", "facts", "user_restarts", "node_recoveries"}
)
"""Columns of a job that a step may set; everything else follows from the trigger."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A wish to move that is carried out: these parts take the place of the document's."""

    parts: Mapping[str, Any]
    last_generation: int
    """The last that was set aside for a gang under the document before; 0: none."""


@dataclass(slots=True)
class Change:
    """What a step decided. Nothing in it: the job only waits again."""

    trigger: Trigger | None = None
    reason: Reason | None = None
    """With `STOP`: why. The first one stays, except that `done` takes the place of a cancel that came too late."""
    message: str | None = None
    """With `STOP`: for people, e.g. the first failing rank's last lines."""
    next_in_s: float | None = None
    """When to look again; None: only when woken."""
    set: dict[str, Any] = field(default_factory=dict)
    """Columns of `SETTABLE`. `facts` are merged into those that the job has."""
    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    moved: Moved | None = None
    """The document changes, and what it was is kept. A wish that changed meanwhile stays."""
    hints: bool = True
    """Whether others are told of a job that is due at once. False: whoever applies this claims it again himself."""


_MAY_RUN: Final = frozenset({State.STARTING, State.RUNNING, State.RECOVERING})
"""States in which ranks may have succeeded without the service knowing yet: there a cancel leaves the outcome open.
(`recovering`: ranks that were told to stop for a pause.)"""

_WOKEN: Final = job_due.c.wake != job_due.c.seen_wake


def _letting_go(next_at: ColumnElement[Any]) -> ReturningUpdate[bool, datetime, bool]:
    return (
        update(job_due)
        .where(still_held("job", "at"))
        .values(
            lease_owner=None,
            lease_until=None,
            next_at=case((_WOKEN, db_now()), else_=next_at),
        )
        .returning(func.coalesce(job_due.c.next_at <= db_now(), False), now_as_time(), _WOKEN)
    )


_PARK = _letting_go(null())
_COME_AGAIN = _letting_go(db_now() + seconds("next_in_s"))
_URGENCY = update(job_due).where(job_due.c.job_id == bindparam("job")).values(urgency=bindparam("level"))
_FORGET = delete(job_due).where(job_due.c.job_id == bindparam("job"))
_TRANSITION = insert(transitions_table).values(at=db_now())
_LIVE_NODE = select(nodes.c.id).where(nodes.c.job_id == bindparam("job"), nodes.c.state != NodeState.GONE).limit(1)


def apply(conn: Connection, claim: Claim, change: Change) -> JobRow:
    """Write a step's result and let go of the job, or write nothing at all.

    A wake that came while the step ran makes the job due at once, whatever `next_in_s` says.

    Raises:
        StaleStep: the fence moved, or this claim was applied before.
        Overtaken: somebody told something since the claim, a success perhaps, and this would go past it.
        IllegalTransition: the state machine has no such row.
        Conflict: `nodes_not_gone`: `NODES_GONE` while the ledger holds a row that is not closed.
    """
    due_now, now, woken = _let_go(conn, claim, change.next_in_s)
    job = jobs.get_locked(conn, claim.job_id)
    assert job is not None, "a due row has a job"
    if change.trigger is Trigger.NODES_GONE and conn.execute(_LIVE_NODE, {"job": job.id}).scalar() is not None:
        raise Conflict("nodes_not_gone", f"{job.id} has nodes that are not proven gone")
    if woken and _goes_past_success(job, change):
        raise Overtaken(job.id)
    told = list(change.events)
    values = _decided(job, change, now, told)
    if change.moved is not None:
        values |= _move_document(conn, job, change.moved, told)
    if values or told:
        job = _write(conn, job, change.trigger, values, told)
    if is_terminal(job.state):
        conn.execute(_FORGET, {"job": job.id})
    elif due_now and change.hints:
        outbox.put(conn)
    return job


def _let_go(conn: Connection, claim: Claim, next_in_s: float | None) -> tuple[bool, datetime, bool]:
    """Release the lease and say when to come again, if the fence still stands.

    Returns whether the job is due at once, what time it is, and whether it was woken since the claim.
    """
    key: dict[str, Any] = {"job": claim.job_id, "at": claim.fence}
    if next_in_s is None:
        row = conn.execute(_PARK, key).one_or_none()
    else:
        row = conn.execute(_COME_AGAIN, {**key, "next_in_s": next_in_s}).one_or_none()
    if row is None:
        raise StaleStep(claim.job_id, claim.fence)
    due_now, now, woken = row
    return bool(due_now), now, bool(woken)


def _goes_past_success(job: JobRow, change: Change) -> bool:
    """Whether it would count for nothing, after this, if all ranks of the present generation were done before."""
    if not job.generation or job.outcome is not None:
        return False
    if change.set.get("generation", 0) > job.generation:
        return True
    cancels = change.reason is Reason.CANCELLED_BY_USER or job.cancel_requested_at is not None
    leaves_open = cancels and job.state in _MAY_RUN
    return change.trigger is Trigger.STOP and change.reason is not Reason.DONE and not leaves_open


def _decided(job: JobRow, change: Change, now: datetime, told: list[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """The columns that change; adds the events of it to `told`, the one of the state last."""
    if unknown := change.set.keys() - SETTABLE:
        raise ValueError(f"a step may not set {sorted(unknown)}")
    values = dict(change.set)
    if "facts" in values:
        values["facts"] = {**job.facts, **values["facts"]}
    if change.trigger is None:
        return _differing(job, values)
    if change.trigger is Trigger.STOP:
        values |= _stop(job, change, now)
    reason = values.get("reason", job.reason)
    target, _ = follow(job.state, change.trigger, reason)
    if target is State.RUNNING and job.started_at is None:
        values["started_at"] = now
    if job.state is State.QUEUED:
        values.setdefault("waiting", None)
    if is_terminal(target):
        values |= {"released_at": now} | ({} if job.outcome else {"outcome": target, "finished_at": now})
    values = _differing(job, {**values, "state": target})
    if "outcome" in values:
        told.append(("job.outcome", {"outcome": values["outcome"], "reason": reason}))
    if "state" in values:
        told.append(("job.state", _move(job, change.trigger, target, {**values, "reason": reason})))
    return values


def _move_document(
    conn: Connection, job: JobRow, moved: Moved, told: list[tuple[str, Mapping[str, Any]]]
) -> dict[str, Any]:
    """The columns of a document that changes. Its event comes before that of the state."""
    documents.keep(conn, job, moved.last_generation)
    version = job.document_version + 1
    told.insert(0, ("job.moved", {"document": version, **moved.parts}))
    values: dict[str, Any] = {"spec": {**job.spec, **moved.parts}, "document_version": version}
    if job.move_wish == moved.parts:
        values |= {"move_wish": None, "move_requested_at": None}
    return values


def _stop(job: JobRow, change: Change, now: datetime) -> dict[str, Any]:
    """What a stop fixes: everything at once, or for a cancel that may have come too late the reason only.

    A second stop settles such an open cancel: as `done` if the ranks were done before they heard of it.
    """
    if change.reason is None:
        raise ValueError("a stop needs a reason")
    if job.state is State.STOPPING:
        if job.outcome is not None:
            return {}
        reason = Reason.DONE if change.reason is Reason.DONE else job.reason
        assert reason is not None, "a stopping job has a reason"
        return {"reason": reason, "outcome": OUTCOME[reason], "finished_at": now}
    reason, message = change.reason, change.message
    if job.cancel_requested_at is not None and reason is not Reason.DONE:
        # It was accepted while the step decided on another end: whoever was told so is not told something else later.
        reason, message = Reason.CANCELLED_BY_USER, None
    values: dict[str, Any] = {"reason": reason, "message": message}
    if reason is Reason.CANCELLED_BY_USER and job.state in _MAY_RUN:
        return values
    return {**values, "outcome": OUTCOME[reason], "finished_at": now}


def _differing(job: JobRow, values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if getattr(job, name) != value}


def _move(job: JobRow, trigger: Trigger, target: State, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "from": job.state,
        "to": target,
        "trigger": trigger,
        "reason": values["reason"],
        "message": values.get("message", job.message),
        "generation": values.get("generation", job.generation),
    }


def _write(
    conn: Connection,
    job: JobRow,
    trigger: Trigger | None,
    values: dict[str, Any],
    told: list[tuple[str, Mapping[str, Any]]],
) -> JobRow:
    changed = JobRow(
        *conn.execute(
            update(jobs_table)
            .where(jobs_table.c.id == job.id)
            .values(
                **values,
                revision=jobs_table.c.revision + 1,
                event_seq=jobs_table.c.event_seq + len(told),
                updated_at=db_now(),
            )
            .returning(*jobs.COLUMNS)
        ).one()
    )
    events.write_numbered(conn, job.id, job.event_seq + 1, told)
    if changed.state is not job.state:
        assert trigger is not None
        row = {
            "job_id": job.id,
            "seq": changed.event_seq,
            "trigger": trigger,
            "from_state": job.state,
            "to_state": changed.state,
            "reason": changed.reason,
            "generation": changed.generation,
        }
        conn.execute(_TRANSITION, row)
    if changed.state is State.STOPPING:
        conn.execute(_URGENCY, {"job": job.id, "level": 0})
    return changed
