"""Exchanges that move nothing: a node that runs, or waits, says that it lives, and how far its training is.

They are nearly all that there is, so the service takes many of them in one transaction of a few statements. Whatever
else an agent may say (an end, a checkpoint, a log chunk, another journal, a gap) is `sync.ingest`'s, one by one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from shunter_schemas.node_sync import Desired, Lease, Phase, SyncRequest
from shunter_schemas.states import Health, NodeState, State
from sqlalchemy import BigInteger, Connection, Double, String, func, select, type_coerce, update

from shunter_store.installation.settings import Pace
from shunter_store.installation.signing import token_hash
from shunter_store.node.pacing import next_sync_s
from shunter_store.node.sync import Ingested
from shunter_store.node.sync_reading import Told, sort_records
from shunter_store.report import points_of_many
from shunter_store.sql.bulk import ByKeys, IsAsked
from shunter_store.sql.bulk_rows import ForRows
from shunter_store.sql.sqltypes import Json, db_now
from shunter_store.tables import jobs, nodes, watches

_SPREAD: Final = 0.1
"""Nodes that came at once (the service had been away) come up to this share earlier, each by another part of it."""
_CALM: Final = frozenset({"metrics", "progress"})


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one agent sent, and the bearer token that it showed."""

    token: str
    request: SyncRequest


@dataclass(frozen=True, slots=True)
class _Node:
    """As much of a node and its job as a beat needs."""

    token_hash: str
    id: str
    token: str
    job_id: str
    rank: int
    handle: str | None
    state: NodeState
    journal_id: str | None
    acknowledged: int
    gap_at: int | None
    lease_s: float | None
    stop_at: datetime | None
    desired_phase: str
    desired_generation: int
    desired_reason: str | None
    job_state: State | None
    job_health: Health | None
    checkpoint_wish: int
    watched: bool
    desired_age_s: float
    desired_at: datetime


@dataclass(frozen=True, slots=True)
class _Beat:
    node: _Node
    request: SyncRequest
    acknowledged: int
    told: Told | None
    """None: there is no record that is new."""


def _nodes(is_asked: IsAsked) -> Any:
    return (
        select(
            nodes.c.sync_token_hash,
            nodes.c.id,
            nodes.c.token,
            nodes.c.job_id,
            nodes.c.rank,
            nodes.c.handle,
            nodes.c.state,
            nodes.c.journal_id,
            nodes.c.acknowledged,
            nodes.c.gap_at,
            nodes.c.lease_s,
            nodes.c.stop_at,
            nodes.c.desired_phase,
            nodes.c.desired_generation,
            nodes.c.desired_reason,
            jobs.c.state,
            jobs.c.health,
            func.coalesce(jobs.c.checkpoint_wish, 0),
            func.coalesce(watches.c.until >= db_now(), False),
            db_now() - type_coerce(nodes.c.desired_at, Double),
            nodes.c.desired_at,
        )
        .select_from(
            nodes.outerjoin(jobs, jobs.c.id == nodes.c.job_id).outerjoin(watches, watches.c.job_id == nodes.c.job_id)
        )
        .where(is_asked(nodes.c.sync_token_hash))
    )


_NODES = ByKeys(_nodes)
_HEARD = ForRows(
    {
        "id": String(40),
        "journal": String(100),
        "before": BigInteger(),
        "cursor": BigInteger(),
        "status": Json,
        "granted": Double(),
    },
    # What the beat was judged by must still stand: another exchange of the same node may have been quicker.
    lambda get: (
        update(nodes)
        .where(
            nodes.c.id == get("id"),
            nodes.c.journal_id == get("journal"),
            nodes.c.acknowledged == get("before"),
            nodes.c.state != NodeState.GONE,
        )
        .values(
            last_sync_at=db_now(),
            status=get("status"),
            acknowledged=get("cursor"),
            lease_granted_until=get("granted"),
        )
        .returning(nodes.c.id)
    ),
)


def take_beats(conn: Connection, asked: Sequence[Exchange], *, now: datetime, pace: Pace) -> list[Ingested | None]:
    """Make the beats among these exchanges durable, and say what is desired of their nodes.

    None: it is no beat, and nothing of it was taken.

    Args:
        now: the time that leases count from.
    """
    hashes = [token_hash(one.token) for one in asked]
    known = {row[0]: _Node(*row) for row in _NODES.run(conn, set(hashes))}
    beats: dict[int, _Beat] = {}
    spoken_for: set[str] = set()
    for place, (hashed, one) in enumerate(zip(hashes, asked, strict=True)):
        node = known.get(hashed)
        if node is None or node.id in spoken_for:
            continue
        beat = _beat(node, one.request)
        # Two nodes of one job in one batch: only one of them may bring points, since each job's numbers are taken once.
        if beat is not None and (beat.told is None or node.job_id not in spoken_for):
            beats[place] = beat
            spoken_for |= {node.id} if beat.told is None else {node.id, node.job_id}
    heard = _note(conn, list(beats.values()), now)
    told = [beat for beat in beats.values() if beat.told is not None and beat.node.id in heard]
    if told:
        points_of_many.add_all(conn, [_points(beat) for beat in told])
    taken = {place: _answer(beat, pace, now) for place, beat in beats.items() if beat.node.id in heard}
    return [taken.get(place) for place in range(len(asked))]


def _beat(node: _Node, request: SyncRequest) -> _Beat | None:
    """The exchange as a beat; None: it is none."""
    if not (_is_settled(node) and _says_nothing_new(node, request)):
        return None
    fresh = [record for record in request.records if record.seq > node.acknowledged]
    expected = range(node.acknowledged + 1, node.acknowledged + 1 + len(fresh))
    if [record.seq for record in fresh] != list(expected) or any(record.type not in _CALM for record in fresh):
        return None
    if not fresh:
        return _Beat(node, request, node.acknowledged, None)
    told = sort_records(fresh, job_id=node.job_id, origin={})
    return None if told.events else _Beat(node, request, fresh[-1].seq, told)


def _is_settled(node: _Node) -> bool:
    """Nothing about this node or its job makes an exchange of its own worth a look."""
    return (
        node.state is not NodeState.GONE
        and node.job_state is not None
        and node.job_health is not Health.UNREACHABLE
        and node.gap_at is None
        and node.desired_phase in (Phase.RUN, Phase.HOLD)
    )


def _says_nothing_new(node: _Node, request: SyncRequest) -> bool:
    """It is the journal that speaks for the node, and the node has heard what is desired of it."""
    is_twin = None not in (node.handle, request.handle) and node.handle != request.handle
    has_orders = node.desired_phase != Phase.RUN or request.status.generation >= node.desired_generation
    return (
        request.node == node.token
        and request.journal_id == node.journal_id
        and not is_twin
        and has_orders
        and not request.status.stuck
        and request.status.muster is None
    )


def _note(conn: Connection, beats: Sequence[_Beat], now: datetime) -> frozenset[str]:
    """Write that they were heard; ids of those for which that was still true."""
    rows = [
        {
            "id": beat.node.id,
            "journal": beat.node.journal_id,
            "before": beat.node.acknowledged,
            "cursor": beat.acknowledged,
            "status": beat.request.status.model_dump(),
            "granted": None if beat.node.lease_s is None else (now + timedelta(seconds=beat.node.lease_s)).timestamp(),
        }
        for beat in sorted(beats, key=lambda beat: beat.node.id)
    ]
    return frozenset(row.id for row in _HEARD.run(conn, rows))


def _points(beat: _Beat) -> points_of_many.Told:
    assert beat.told is not None
    return points_of_many.Told(beat.node.job_id, beat.told.points, beat.told.progress)


def _answer(beat: _Beat, pace: Pace, now: datetime) -> Ingested:
    node = beat.node
    delay_s = next_sync_s(
        pace,
        desired_phase=node.desired_phase,
        job_state=node.job_state,
        desired_age_s=node.desired_age_s,
        watched=node.watched,
    )
    return Ingested(
        acknowledged=beat.acknowledged,
        desired=Desired(
            phase=Phase(node.desired_phase),
            generation=node.desired_generation,
            handle=node.handle or "",
            reason=node.desired_reason or "",
            checkpoint=node.checkpoint_wish,
            since=node.desired_at.timestamp(),
        ),
        lease=Lease(
            expires_in_s=node.lease_s,
            stop_in_s=None if node.stop_at is None else max(0.0, (node.stop_at - now).total_seconds()),
        ),
        next_sync_s=delay_s * (1.0 - _SPREAD * random.random()),
        upload_logs=node.watched,
    )
