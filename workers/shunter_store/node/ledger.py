"""The node ledger: a row is committed before anything is created, and closed only on proof of absence.

Two writes are never fenced and never dropped: a handle, and a proof of absence. Within one transaction touch nodes
before `steps.apply`: the lock order is nodes, job_due, jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from shunter_schemas.ids import new_id
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import NodeState
from sqlalchemy import Connection, Double, bindparam, case, delete, func, insert, select, update

from shunter_store.errors import Conflict, NotFound, SlotsTaken
from shunter_store.job import due
from shunter_store.job.due import Claim
from shunter_store.node.ledger_rows import ACCRUED, COLUMNS, COST_USD, END_INTERVAL, NewNode, NodeRow, ScannedNode
from shunter_store.node.scans import SCANS_FOR_PROOF, observe_scan
from shunter_store.sql.rows import all_of
from shunter_store.sql.sqltypes import Json, PerDialect, UtcTime, db_now
from shunter_store.tables import nodes, slots

__all__ = [
    "NewNode",
    "NodeRow",
    "ScannedNode",
    "begin_create",
    "close_absent",
    "free_slots",
    "get",
    "intend",
    "ledger_cost",
    "limit",
    "mark_releasing",
    "mark_unknown",
    "observe_scan",
    "of_instance",
    "of_job",
    "record_handle",
    "taken_slots",
    "want",
]

_INSERT = insert(nodes).values(
    state=NodeState.INTENDED,
    accrued_usd=0.0,
    intended_at=db_now(),
    absent_scans=0,
    desired_phase=Phase.HOLD,
    desired_at=db_now(),
    run_generation=0,
    acknowledged=0,
    past_journals={},
    status={},
    addresses={},
)
_RESERVE = PerDialect(lambda insert_into: insert_into(slots).on_conflict_do_nothing().returning(slots.c.index))
_TAKEN = select(slots.c.index).where(slots.c.instance == bindparam("instance"), slots.c.kind == bindparam("kind"))
_FREE = delete(slots).where(slots.c.node_id == bindparam("node"))
_OF_JOB = select(*COLUMNS).where(nodes.c.job_id == bindparam("job")).order_by(nodes.c.intended_at, nodes.c.rank)
_OF_JOB_LIVE = _OF_JOB.where(nodes.c.state != NodeState.GONE)
_OF_INSTANCE = (
    select(*COLUMNS)
    .where(nodes.c.instance == bindparam("instance"), nodes.c.state != NodeState.GONE)
    .order_by(nodes.c.intended_at, nodes.c.rank)
)
_GET = select(*COLUMNS).where(nodes.c.id == bindparam("node"))
_GET_LOCKED = _GET.with_for_update(key_share=True)

_BEGIN_CREATE = (
    update(nodes)
    .where(nodes.c.id == bindparam("node"), nodes.c.state == NodeState.INTENDED)
    .values(
        state=NodeState.CREATING,
        create_deadline_at=bindparam("deadline", type_=UtcTime),
        accrued_at=db_now(),
        billed_usd_per_hour=func.coalesce(bindparam("rate", type_=Double), nodes.c.billed_usd_per_hour),
    )
)
_RECORD_HANDLE = (
    update(nodes)
    .where(nodes.c.id == bindparam("node"))
    .values(
        handle=bindparam("new_handle"),
        created_at=func.coalesce(nodes.c.created_at, db_now()),
        # One that was closed and is there has been there all along, and was billed.
        accrued_at=func.coalesce(
            nodes.c.accrued_at,
            case((nodes.c.handle.is_(None) & nodes.c.gone_at.is_not(None), nodes.c.intended_at), else_=nodes.c.gone_at),
            db_now(),
        ),
        absent_scans=0,
        gone_at=None,
        state=case(
            (nodes.c.state.in_([NodeState.INTENDED, NodeState.CREATING, NodeState.UNKNOWN]), NodeState.BOOTING),
            # It was thought to be gone and is not: it has to be released once more.
            (nodes.c.state == NodeState.GONE, NodeState.RELEASING),
            else_=nodes.c.state,
        ),
    )
)
_MARK_UNKNOWN = (
    update(nodes)
    .where(nodes.c.id == bindparam("node"), nodes.c.state == NodeState.CREATING)
    .values(state=NodeState.UNKNOWN, reason=bindparam("detail"))
)
_MARK_RELEASING = (
    update(nodes)
    .where(
        nodes.c.id.in_(bindparam("ids", expanding=True)),
        nodes.c.state.not_in([NodeState.RELEASING, NodeState.GONE]),
    )
    .values(state=NodeState.RELEASING, releasing_at=db_now(), reason=bindparam("why"))
)
_WANTED: Final = {
    "desired_phase": bindparam("phase"),
    "desired_generation": bindparam("at_generation"),
    "desired_reason": bindparam("why"),
    "desired_at": db_now(),
    "stop_at": func.coalesce(bindparam("until", type_=UtcTime), nodes.c.stop_at),
}
_WANT = update(nodes).where(
    nodes.c.id.in_(bindparam("ids", expanding=True)),
    nodes.c.state != NodeState.GONE,
    (nodes.c.desired_phase != bindparam("phase")) | (nodes.c.desired_generation != bindparam("at_generation")),
)
_WANT_IDLE = _WANT.values(_WANTED)
_WANT_RUN = _WANT.values(
    {**_WANTED, "run_generation": bindparam("at_generation"), "assignment": bindparam("task", type_=Json)}
)
_STOP_AT = (
    update(nodes)
    .where(nodes.c.id.in_(bindparam("ids", expanding=True)), nodes.c.state != NodeState.GONE)
    .values(stop_at=bindparam("until", type_=UtcTime))
)
_RANK = (
    update(nodes)
    .where(nodes.c.id == bindparam("node"), nodes.c.state != NodeState.GONE)
    .values(rank=bindparam("new_rank"))
)
_CLOSE = (
    update(nodes)
    .where(nodes.c.id == bindparam("node"), nodes.c.state != NodeState.GONE)
    .values(
        state=NodeState.GONE,
        gone_at=db_now(),
        accrued_usd=case((nodes.c.handle.is_(None), 0.0), else_=ACCRUED),
        accrued_at=None,
        condition="gone",
    )
)
_COST = select(COST_USD).where(nodes.c.job_id == bindparam("job"))


def intend(conn: Connection, claim: Claim, *, job_id: str, generation: int, nodes: Sequence[NewNode]) -> list[NodeRow]:
    """Write down nodes that shall exist, and reserve their slots where hosts are shared. All or nothing.

    Raises:
        StaleStep: the fence moved.
        SlotsTaken: a slot is another node's; roll back and plan anew.
    """
    due.require(conn, claim)
    ids = [new_id("node") for _ in nodes]
    if nodes:
        conn.execute(_INSERT, [_values(node, id_, job_id, generation) for id_, node in zip(ids, nodes, strict=True)])
    for id_, node in zip(ids, nodes, strict=True):
        _reserve(conn, id_, node)
    made = set(ids)
    return [row for row in of_job(conn, job_id) if row.id in made]


def of_job(conn: Connection, job_id: str, *, live_only: bool = False) -> list[NodeRow]:
    """The job's rows in the order they were intended; those that are not closed, with `live_only`."""
    return all_of(NodeRow, conn.execute(_OF_JOB_LIVE if live_only else _OF_JOB, {"job": job_id}))


def of_instance(conn: Connection, instance: str) -> list[NodeRow]:
    """Every row of a provider instance that is not closed."""
    return all_of(NodeRow, conn.execute(_OF_INSTANCE, {"instance": instance}))


def get(conn: Connection, node_id: str) -> NodeRow | None:
    """One row, or None."""
    row = conn.execute(_GET, {"node": node_id}).one_or_none()
    return None if row is None else NodeRow(*row)


def begin_create(
    conn: Connection, claim: Claim, node_id: str, deadline_at: datetime, *, usd_per_hour: float | None = None
) -> None:
    """Commit that the create call is about to be made; once per row, and only while it is `intended`.

    Args:
        deadline_at: after this the absence of a node without handle counts: the create call's own deadline, plus its
            HTTP time-out, plus the plugin's visibility delay.
        usd_per_hour: what it will bill, where that is known better than when it was intended.

    Raises:
        StaleStep: the fence moved.
        Conflict: `not_intended`: it was begun before, or is being released.
    """
    values = {"node": node_id, "deadline": deadline_at, "rate": usd_per_hour}
    begun = conn.execute(_BEGIN_CREATE, values).rowcount
    due.require(conn, claim)
    if not begun:
        raise Conflict("not_intended", f"{node_id} is not a node that waits to be created")


def record_handle(conn: Connection, node_id: str, handle: str) -> None:
    """Keep the provider's name of the node. Never fenced, never dropped: a row that was closed opens again."""
    if conn.execute(_RECORD_HANDLE, {"node": node_id, "new_handle": handle}).rowcount == 0:
        raise NotFound("node", node_id)


def mark_unknown(conn: Connection, node_id: str, detail: str) -> None:
    """The create call ended in doubt: the node has to be searched by its token before anything else."""
    conn.execute(_MARK_UNKNOWN, {"node": node_id, "detail": detail})


def mark_releasing(conn: Connection, node_ids: Sequence[str], reason: str) -> None:
    """These nodes shall go. A row that is `intended` can be created no more after this."""
    if node_ids:
        conn.execute(_MARK_RELEASING, {"ids": list(node_ids), "why": reason})


def want(  # noqa: PLR0913 - by keyword
    conn: Connection,
    node_ids: Sequence[str],
    *,
    phase: Phase,
    generation: int,
    assignment: Mapping[str, Any] | None = None,
    reason: str = "",
    stop_at: datetime | None = None,
) -> None:
    """Say what the nodes shall do; their next exchange hands it out. Repeating it changes nothing.

    Args:
        assignment: `node_sync.Assignment` as JSON, with `RUN`; that of a generation never changes.
        stop_at: when the node has to stop by itself; stays what it was when not given.
    """
    if not node_ids:
        return
    wanted = {"ids": list(node_ids), "phase": str(phase), "at_generation": generation, "why": reason, "until": stop_at}
    if phase is Phase.RUN:
        conn.execute(_WANT_RUN, {**wanted, "task": assignment})
    else:
        conn.execute(_WANT_IDLE, wanted)


def limit(conn: Connection, node_ids: Sequence[str], stop_at: datetime | None) -> None:
    """When the nodes have to stop by themselves, whoever they can reach then; their next exchange tells them."""
    if node_ids:
        conn.execute(_STOP_AT, {"ids": list(node_ids), "until": stop_at})


def renumber(conn: Connection, ranks: Sequence[tuple[str, int]]) -> None:
    """Give nodes other ranks in their gang. Only while none of them runs: what runs was told its rank."""
    for node_id, rank in ranks:
        conn.execute(_RANK, {"node": node_id, "new_rank": rank})


def close_absent(conn: Connection, node_id: str, proof: Mapping[str, Any]) -> bool:
    """Close a row on proof of absence and free its slots. Never fenced. False: the proof does not suffice.

    `proof["kind"]` is one of
    - `never_begun`: no create call was ever begun (`begin_create` never committed);
    - `refused`: the one create call failed with `may_have_created` false, so there is no handle;
    - `absent`: two complete scans by the row's own account did not show it (counted by `observe_scan`), and
      `proof["account"]` is that account; where the row has a handle, `proof["get"]` is `gone`.
    """
    row = conn.execute(_GET_LOCKED, {"node": node_id}).one_or_none()
    if row is None or not _suffices(NodeRow(*row), proof):
        return False
    if NodeRow(*row).handle is not None:
        conn.execute(END_INTERVAL, {"node": node_id})
    conn.execute(_CLOSE, {"node": node_id})
    conn.execute(_FREE, {"node": node_id})
    return True


def free_slots(conn: Connection, instance: str, kind: str, total: int) -> list[int]:
    """Which of the slots `0 … total - 1` of a shared host nobody holds."""
    taken = taken_slots(conn, instance, kind)
    return [index for index in range(total) if index not in taken]


def taken_slots(conn: Connection, instance: str, kind: str) -> set[int]:
    """Slots of an instance's shared hosts that somebody holds."""
    return set(conn.execute(_TAKEN, {"instance": instance, "kind": kind}).scalars())


def ledger_cost(conn: Connection, job_id: str) -> float:
    """USD that the job's nodes have cost up to now, by ledger intervals and billed rates."""
    return float(conn.execute(_COST, {"job": job_id}).scalar_one())


def _values(node: NewNode, id_: str, job_id: str, generation: int) -> dict[str, Any]:
    return {
        "id": id_,
        "job_id": job_id,
        "generation": generation,
        "desired_generation": generation,
        "rank": node.rank,
        "token": node.token,
        "sync_token_hash": node.sync_token_hash,
        "instance": node.instance,
        "account": node.account,
        "offer": node.offer,
        "billed_usd_per_hour": node.billed_usd_per_hour,
        "slot_kind": node.slot_kind,
        "slot_indices": list(node.slot_indices),
        "lease_s": node.lease_s,
    }


def _reserve(conn: Connection, node_id: str, node: NewNode) -> None:
    if node.slot_kind is None or not node.slot_indices:
        return
    for index in sorted(node.slot_indices):
        row = {"instance": node.instance, "kind": node.slot_kind, "index": index, "node_id": node_id}
        if conn.execute(_RESERVE.on(conn), row).scalar() is None:
            raise SlotsTaken(node.instance, [index])


def _suffices(row: NodeRow, proof: Mapping[str, Any]) -> bool:
    if row.state is NodeState.GONE:
        return False
    match proof.get("kind"):
        case "never_begun":
            return row.create_deadline_at is None and not _was_seen(row)
        case "refused":
            return not _was_seen(row)
        case "absent":
            by_listing = row.absent_scans >= SCANS_FOR_PROOF and proof.get("account") == row.account
            return by_listing and (row.handle is None or proof.get("get") == "gone")
    return False


def _was_seen(row: NodeRow) -> bool:
    return row.handle is not None or row.last_sync_at is not None
