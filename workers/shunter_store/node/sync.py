"""One exchange with an agent: fold its records into their tables, hand out what is desired of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from shunter_schemas.muster import Peer
from shunter_schemas.node_sync import (
    Assignment,
    Desired,
    GangEnd,
    Lease,
    NodeStatus,
    Phase,
    SyncAnswer,
    SyncRequest,
)
from shunter_schemas.states import Health, NodeState, State
from sqlalchemy import Connection, Double, bindparam, case, func, select, type_coerce, update

from shunter_store.installation.settings import Pace
from shunter_store.installation.signing import token_hash
from shunter_store.job import due, events
from shunter_store.node.clocks import ahead
from shunter_store.node.gang import End, world_size
from shunter_store.node.journals import Cursor, Known, advance, is_twin
from shunter_store.node.ledger_rows import COLUMNS, NodeRow
from shunter_store.node.musters import peers_of
from shunter_store.node.pacing import next_sync_s
from shunter_store.node.sync_reading import Told, sort_records
from shunter_store.report import artifacts, checkpoints, logs, metrics
from shunter_store.sql.sqltypes import Json, PerDialect, UtcTime, db_now
from shunter_store.tables import gang_nodes, gang_ranks, jobs, nodes, watches

_DEFAULT_PACE: Final = Pace()
_TWIN_AGAIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Ingested:
    """What the answer to the agent says."""

    acknowledged: int
    desired: Desired
    lease: Lease
    next_sync_s: float
    upload_logs: bool

    def answer(self) -> SyncAnswer:
        """The message."""
        return SyncAnswer(
            acknowledged=self.acknowledged,
            desired=self.desired,
            lease=self.lease,
            next_sync_s=self.next_sync_s,
            upload_logs=self.upload_logs,
        )


@dataclass(frozen=True, slots=True)
class _Scene:
    """The node and its job as this transaction found them, the node's row locked."""

    node: NodeRow
    past_journals: dict[str, int]
    gap_at: int | None
    job_state: State | None
    """None: the job's record was deleted."""
    job_health: Health | None
    job_generation: int
    checkpoint_wish: int
    watched: bool
    desired_age_s: float
    silent_s: float | None
    """Since the journal that speaks for the node was heard; None: none was yet."""


_MORE_COLUMNS: Final = (
    nodes.c.past_journals,
    nodes.c.gap_at,
    jobs.c.state,
    jobs.c.health,
    func.coalesce(jobs.c.generation, 0),
    func.coalesce(jobs.c.checkpoint_wish, 0),
    func.coalesce(watches.c.until >= db_now(), False),
    db_now() - type_coerce(nodes.c.desired_at, Double),
    db_now() - type_coerce(nodes.c.last_sync_at, Double),
)
_SCENE = (
    select(*COLUMNS, *_MORE_COLUMNS)
    .select_from(
        nodes.outerjoin(jobs, jobs.c.id == nodes.c.job_id).outerjoin(watches, watches.c.job_id == nodes.c.job_id)
    )
    .where(nodes.c.id == bindparam("node"))
    .with_for_update(of=nodes, key_share=True)
)
_BY_TOKEN = select(*COLUMNS).where(nodes.c.sync_token_hash == bindparam("hash"))
_HEARD = (
    update(nodes)
    .where(nodes.c.id == bindparam("node"))
    .values(
        last_sync_at=db_now(),
        status=bindparam("new_status", type_=Json),
        journal_id=bindparam("journal"),
        acknowledged=bindparam("cursor"),
        past_journals=bindparam("journals", type_=Json),
        gap_at=bindparam("gap"),
        lease_granted_until=bindparam("granted", type_=UtcTime),
    )
)
_PAST = update(nodes).where(nodes.c.id == bindparam("node")).values(past_journals=bindparam("journals", type_=Json))
_AWAITED = nodes.c.state.in_([NodeState.INTENDED, NodeState.CREATING, NodeState.UNKNOWN, NodeState.BOOTING])
_BOOTED = (
    update(nodes)
    .where(nodes.c.id == bindparam("node"))
    .values(
        boot=bindparam("record", type_=Json),
        state=case((_AWAITED, NodeState.READY), else_=nodes.c.state),
        ready_at=case((_AWAITED, db_now()), else_=nodes.c.ready_at),
    )
)
_FACTS = select(jobs.c.facts).where(jobs.c.id == bindparam("job"))
_SET_FACTS = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(
        facts=bindparam("new_facts", type_=Json),
        source_commit=bindparam("commit"),
        revision=jobs.c.revision + 1,
    )
)
_RANKS_UP = (
    select(func.count())
    .select_from(gang_ranks)
    .where(gang_ranks.c.job_id == bindparam("job"), gang_ranks.c.generation == bindparam("of_generation"))
)
_RANK_UP = PerDialect(lambda insert_into: insert_into(gang_ranks).on_conflict_do_nothing())


def _first_end(insert_into: Any) -> Any:
    statement = insert_into(gang_nodes)
    names = ("ended", "ended_at", "rank", "failure_class", "reason", "message", "exit_code")
    return statement.on_conflict_do_update(
        index_elements=["job_id", "generation", "node_id"],
        set_={name: statement.excluded[name] for name in names},
        where=gang_nodes.c.ended.is_(None),
    )


def _first_drained(insert_into: Any) -> Any:
    statement = insert_into(gang_nodes)
    return statement.on_conflict_do_update(
        index_elements=["job_id", "generation", "node_id"],
        set_={"drained_at": statement.excluded.drained_at},
        where=gang_nodes.c.drained_at.is_(None),
    )


_END = PerDialect(_first_end)
_DRAINED = PerDialect(_first_drained)


def node_by_sync_token(conn: Connection, token: str) -> NodeRow | None:
    """The node that this bearer token belongs to, also when it is closed by now."""
    row = conn.execute(_BY_TOKEN, {"hash": token_hash(token)}).one_or_none()
    return None if row is None else NodeRow(*row)


def ingest(
    conn: Connection, node: NodeRow, request: SyncRequest, *, now: datetime, pace: Pace = _DEFAULT_PACE
) -> Ingested:
    """Make everything in the request durable, once, and say what is desired of the node.

    The same request again, or one that overlaps, changes nothing. Two statements when there is nothing new.

    Args:
        now: the time that leases count from.
    """
    scene = _scene(conn, node.id)
    if is_twin(scene.node, request):
        return _sent_away(scene.node)
    known = Known(scene.node, scene.past_journals, scene.gap_at, scene.silent_s)
    cursor = advance(known, request)
    told_anew = cursor.current and _tells_anew(scene, request.status)
    if cursor.fresh and scene.job_state is not None:
        _keep(conn, scene, cursor, wake=told_anew, skew=ahead(request.status.clock, now))
    elif told_anew:
        due.wake(conn, [scene.node.job_id])
    if cursor.current:
        _note(conn, scene, cursor, request.status, now)
    elif cursor.fresh:
        conn.execute(_PAST, {"node": scene.node.id, "journals": cursor.past_journals})
    gathers = cursor.current and scene.node.desired_phase == Phase.MUSTER
    return Ingested(
        acknowledged=cursor.acknowledged,
        desired=_desired(scene, cursor, request.status, peers_of(conn, scene.node) if gathers else []),
        lease=_lease(scene.node, now),
        next_sync_s=next_sync_s(
            pace,
            desired_phase=scene.node.desired_phase,
            job_state=scene.job_state,
            desired_age_s=scene.desired_age_s,
            watched=scene.watched,
        ),
        upload_logs=scene.watched,
    )


def _scene(conn: Connection, node_id: str) -> _Scene:
    row = conn.execute(_SCENE, {"node": node_id}).one()
    return _Scene(NodeRow(*row[: len(COLUMNS)]), *row[len(COLUMNS) :])


def _sent_away(node: NodeRow) -> Ingested:
    """What a twin is told, until the reaper has ended it. Nothing of it is kept."""
    reason = f"this machine is a twin of {node.handle}"
    desired = Desired(phase=Phase.RELEASE, handle=node.handle or "", reason=reason)
    return Ingested(0, desired, Lease(), _TWIN_AGAIN_S, upload_logs=False)


def _keep(conn: Connection, scene: _Scene, cursor: Cursor, *, wake: bool, skew: timedelta) -> None:
    """Write the new records into their tables. Locks in the order of everybody: job_due before jobs."""
    assert cursor.fresh is not None
    job_id = scene.node.job_id
    origin = {"node": scene.node.id, "node_rank": scene.node.rank}
    told = sort_records(cursor.fresh, job_id=job_id, origin=origin)
    if cursor.fresh[0].seq == scene.gap_at:
        told.events.insert(0, ("node.journal_gap", {**origin, "before_seq": scene.gap_at}))
    if (cursor.current and _move(conn, scene, told, skew)) or wake:
        due.wake(conn, [job_id])
    told.events += _commit_checkpoints(conn, scene, told)
    if told.events:
        events.append_all(conn, job_id, told.events)
    if told.commits:
        _record_commit(conn, job_id, told.commits[0])
    _archive(conn, job_id, cursor.journal_id, told)


def _move(conn: Connection, scene: _Scene, told: Told, skew: timedelta) -> bool:
    """Fold in what can move the job on; true when a step has to look. Only the current generation counts.

    Ends are put down by the service's clock: who of several nodes failed first decides what the job is told.
    """
    node, generation = scene.node, scene.job_generation
    key = {"job_id": node.job_id, "generation": generation, "node_id": node.id}
    ups = [{**key, "rank": rank, "up_at": at} for of, rank, at in told.ranks_up if of == generation]
    ends = [_end_values(key, end, detail, at - skew) for of, end, detail, at in told.ends if of == generation]
    drained = [{**key, "drained_at": at} for of, at in told.drained if of == generation]
    if told.boots:
        conn.execute(_BOOTED, {"node": node.id, "record": told.boots[-1].model_dump()})
    if ups:
        conn.execute(_RANK_UP.on(conn), ups)
    if ends:
        conn.execute(_END.on(conn), ends)
    if drained:
        conn.execute(_DRAINED.on(conn), drained)
    return bool(told.boots or ends or drained or (ups and _all_up(conn, scene)))


def _end_values(key: dict[str, Any], end: End, detail: GangEnd, at: datetime) -> dict[str, Any]:
    return {
        **key,
        "ended": end,
        "ended_at": at,
        "rank": detail.rank,
        "failure_class": detail.failure_class,
        "reason": detail.reason,
        "message": detail.message,
        "exit_code": detail.exit_code,
    }


def _all_up(conn: Connection, scene: _Scene) -> bool:
    up = conn.execute(_RANKS_UP, {"job": scene.node.job_id, "of_generation": scene.job_generation}).scalar_one()
    return bool(up >= world_size(scene.node.assignment))


def _tells_anew(scene: _Scene, status: NodeStatus) -> bool:
    """What a step has to see though no record says it: a stopped node came to rest, or a silent one is back."""
    if scene.job_health is Health.UNREACHABLE or status.stuck:
        return True
    if scene.node.desired_phase == Phase.MUSTER and status.muster is not None:
        return scene.node.status.get("muster") != status.muster.model_dump()
    stopping = scene.node.desired_phase in (Phase.STOP, Phase.RELEASE)
    unheard = scene.node.last_sync_at is None or scene.node.last_sync_at <= scene.node.desired_at
    changed = unheard or scene.node.status.get("phase") != status.phase
    return stopping and status.phase in ("idle", "drained") and changed


def _commit_checkpoints(conn: Connection, scene: _Scene, told: Told) -> list[tuple[str, dict[str, Any]]]:
    num_nodes = int(((scene.node.assignment or {}).get("ranks") or {}).get("num_nodes", 1))
    committed = []
    for generation, part in told.checkpoints:
        if checkpoints.add_part(conn, scene.node.job_id, generation, part, num_nodes=num_nodes):
            data = {"step": part.step, "generation": generation, "values": part.values}
            committed.append(("checkpoint.committed", data))
    return committed


def _record_commit(conn: Connection, job_id: str, commit: str) -> None:
    """Pin the commit of a git source at the first attempt; later ones use the same."""
    facts = conn.execute(_FACTS, {"job": job_id}).scalar_one()
    if "source_commit" not in facts:
        values = {"new_facts": {**facts, "source_commit": commit}, "commit": commit}
        conn.execute(_SET_FACTS, {"job": job_id, **values})


def _archive(conn: Connection, job_id: str, journal_id: str, told: Told) -> None:
    """Keep what never moves a job, of whatever generation."""
    for generation, points in told.points.items():
        metrics.add_points(conn, job_id, generation, points)
    if told.progress is not None:
        generation, at, progress = told.progress
        metrics.set_progress(conn, job_id, generation, at, progress)
    for generation, chunk in told.logs:
        logs.add_chunk(conn, job_id, generation, journal_id, chunk)
    for generation, file in told.artifacts:
        artifacts.put(
            conn, job_id, file.path, generation=generation, size=file.size, sha256=file.sha256, object=file.object
        )


def _note(conn: Connection, scene: _Scene, cursor: Cursor, status: NodeStatus, now: datetime) -> None:
    lease_s = scene.node.lease_s
    values = {
        "node": scene.node.id,
        "new_status": status.model_dump(),
        "journal": cursor.journal_id,
        "cursor": cursor.acknowledged,
        "journals": cursor.past_journals,
        "gap": cursor.gap_at,
        "granted": None if lease_s is None else now + timedelta(seconds=lease_s),
    }
    conn.execute(_HEARD, values)


def _desired(scene: _Scene, cursor: Cursor, status: NodeStatus, peers: list[Peer]) -> Desired:
    node = scene.node
    # One that is let go may come up late, with orders that it was given before it existed.
    if node.state in (NodeState.RELEASING, NodeState.GONE) or scene.job_state is None:
        return Desired(phase=Phase.RELEASE, generation=node.desired_generation, handle=node.handle or "")
    if not cursor.current:
        return Desired(phase=Phase.HOLD, handle=node.handle or "", reason="another journal took this one's place")
    phase = Phase(node.desired_phase)
    send = phase is Phase.RUN and status.generation < node.desired_generation and node.assignment is not None
    return Desired(
        phase=phase,
        generation=node.desired_generation,
        handle=node.handle or "",
        assignment=Assignment.model_validate(node.assignment) if send else None,
        reason=node.desired_reason or "",
        peers=peers,
        checkpoint=scene.checkpoint_wish,
        since=node.desired_at.timestamp(),
    )


def _lease(node: NodeRow, now: datetime) -> Lease:
    stop_in_s = None if node.stop_at is None else max(0.0, (node.stop_at - now).total_seconds())
    return Lease(expires_in_s=node.lease_s, stop_in_s=stop_in_s)
