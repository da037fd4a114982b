"""What a job cost by what it was spent on, put together from the ledger, the job's moves and its metrics. Pure.

The life of each node is cut where the job moved from one state to the next, and each piece has one cause. What a piece
cost is a difference of two numbers of the node's meter, so that the pieces of a node add up to it exactly. The time in
which a gang trained is shared out among training, repeated steps and saving by what the metrics tell, and training
gets what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

from shunter_planner.predictions import Prediction, prediction_from_json
from shunter_planner.values import offer_from_json
from shunter_schemas.api import Receipt, ReceiptCause, ReceiptNode, ReceiptPrediction
from shunter_schemas.states import TERMINAL_STATES, NodeState, State
from shunter_store.accounts.money import MICRO, Meter, Sum
from shunter_store.job.standings import Standing
from shunter_store.node.ledger import NodeRow
from shunter_store.report.time_spent import Pace

START_UP, TRAINING, REPEATED, SAVING, IDLE = "start_up", "training", "repeated", "saving", "idle"
CAUSES: Final = (START_UP, TRAINING, REPEATED, SAVING, IDLE)
_TRAINED: Final = ""
"""Of a piece in which a gang trained: shared out among the three in the end."""
_MOST_TOKENS: Final = 1e12
"""Of one step; a program that says more says nonsense."""
_STARTS: Final = frozenset({State.PROVISIONING, State.STARTING})


@dataclass(frozen=True, slots=True)
class _Stage:
    """The job between two moves."""

    since: datetime
    until: datetime
    state: State
    generation: int
    """Of the gang that is there; before it starts, of the one that will."""
    started_at: datetime | None
    """When that gang was told to run."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a node's life with one cause."""

    cause: str
    generation: int
    cost: Sum


def receipt(standing: Standing, now: datetime, meters: Mapping[str, Meter], paces: Mapping[int, Pace]) -> Receipt:
    """Up to `now`; what the nodes cost up to then is in `meters`."""
    stages = _stages(standing, now)
    pieces = {
        node.id: list(_pieces(node, _life(node, meters.get(node.id), now), meters.get(node.id), stages))
        for node in standing.nodes
        if node.id in meters or node.handle is not None
    }
    causes = _by_cause([piece for cut in pieces.values() for piece in cut], stages, paces)
    total = _summed(causes.values())
    steps = _steps_of(standing, paces)
    tokens = None if steps is None else _tokens_of(standing, steps)
    usd = total.micro_usd / MICRO
    predicted = _prediction_of(standing)
    return Receipt(
        job=standing.row.id,
        as_of=now,
        final=standing.row.state in TERMINAL_STATES and all(node.state is NodeState.GONE for node in standing.nodes),
        usd=usd,
        node_hours=_hours(total),
        causes=tuple(_cause(name, causes[name], predicted) for name in CAUSES),
        nodes=tuple(
            _node(node, _summed(piece.cost for piece in pieces[node.id]))
            for node in standing.nodes
            if node.id in pieces
        ),
        steps=steps,
        tokens=tokens,
        usd_per_million_tokens=usd / tokens * 1e6 if tokens else None,
        usd_per_hour=_billed(standing),
        predicted=_predicted(standing, predicted),
    )


def _stages(standing: Standing, now: datetime) -> list[_Stage]:
    """The job's whole time, without a gap."""
    row, moves = standing.row, standing.moves
    began = [row.created_at, *(move.at for move in moves)]
    states = [State.QUEUED, *(move.to_state for move in moves)]
    generations = [0, *(move.generation for move in moves)]
    found: list[_Stage] = []
    started_at: datetime | None = None
    for place, (since, state, generation) in enumerate(zip(began, states, generations, strict=True)):
        if state is State.STARTING:
            started_at = since
        following = moves[place] if place < len(moves) else None  # `began` has one more, the first
        coming = following.generation if following is not None and state is State.PROVISIONING else generation
        until = max(now, since) if following is None else following.at
        found.append(_Stage(since, until, state, coming, started_at))
    return found


def _life(node: NodeRow, meter: Meter | None, now: datetime) -> tuple[datetime, datetime]:
    """Of a node that costs something, the time for which it did."""
    if meter is not None:
        return meter.begins, meter.ends
    return node.created_at or node.intended_at, node.gone_at or now


def _pieces(
    node: NodeRow, life: tuple[datetime, datetime], meter: Meter | None, stages: Sequence[_Stage]
) -> Iterator[_Piece]:
    """The node's life, cut at the job's moves; what lies before or behind them belongs to the first or the last."""
    since = life[0]
    for place, stage in enumerate(stages):
        until = life[1] if place == len(stages) - 1 else min(life[1], stage.until)
        if until <= since:
            continue
        cost = Sum(0, 0, (until - since).total_seconds()) if meter is None else meter.between(since, until)
        yield _Piece(_cause_of(node, stage), stage.generation, cost)
        since = until


def _cause_of(node: NodeRow, stage: _Stage) -> str:
    """Why a node was there while the job was at this stage."""
    never_ran = node.run_generation == 0
    if stage.state in _STARTS:
        return START_UP if never_ran or node.run_generation >= stage.generation else IDLE
    if stage.state is not State.RUNNING:
        return IDLE
    came_later = stage.started_at is not None and node.intended_at > stage.started_at
    if never_ran or (came_later and node.run_generation > stage.generation):
        return START_UP
    return _TRAINED if node.run_generation >= stage.generation else IDLE


def _by_cause(pieces: Sequence[_Piece], stages: Sequence[_Stage], paces: Mapping[int, Pace]) -> dict[str, Sum]:
    found = {name: Sum() for name in CAUSES}
    trained: dict[int, Sum] = {}
    for piece in pieces:
        at = trained.setdefault(piece.generation, Sum()) if piece.cause == _TRAINED else found[piece.cause]
        at.add(piece.cost)
    for generation, whole in trained.items():
        ran_s = sum(
            (stage.until - stage.since).total_seconds()
            for stage in stages
            if stage.state is State.RUNNING and stage.generation == generation
        )
        for name, part in _shared_out(whole, ran_s, paces.get(generation)):
            found[name].add(part)
    return found


def _shared_out(whole: Sum, ran_s: float, pace: Pace | None) -> Iterator[tuple[str, Sum]]:
    """What a gang's time was spent on while it trained."""
    repeated = saving = 0.0
    if pace is not None and ran_s > 0:
        repeated = min(1.0, pace.repeated_s / ran_s)
        saving = min(1.0 - repeated, pace.saving_s / ran_s)
    left = Sum(whole.micro_usd, whole.unconfirmed, whole.node_s)
    for name, share in ((REPEATED, repeated), (SAVING, saving)):
        part = Sum(min(left.micro_usd, round(whole.micro_usd * share)), 0, whole.node_s * share)
        left.add(Sum(-part.micro_usd, 0, -part.node_s))
        yield name, part
    yield TRAINING, left


def _steps_of(standing: Standing, paces: Mapping[int, Pace]) -> int | None:
    """Steps that were done, by points and by progress, without those of the job that this one took up."""
    reached = [pace.last_step for pace in paces.values()] + [row.step for row in standing.progress]
    return max(0, max(reached) - (standing.row.resumes_from_step or 0)) if reached else None


def _tokens_of(standing: Standing, steps: int) -> int | None:
    """By the tokens of a step, which are the same at every step of a document."""
    for row in reversed(standing.progress):
        speed, step_s = (row.values.get(name) for name in ("tokens_per_s", "step_time_s"))
        if not isinstance(speed, int | float) or not isinstance(step_s, int | float):
            continue
        a_step = speed * step_s
        if 0.5 <= a_step < _MOST_TOKENS:
            return steps * round(a_step)
    return None


def _prediction_of(standing: Standing) -> Prediction | None:
    told = (standing.row.plan or {}).get("prediction")
    return None if told is None else prediction_from_json(told)


def _predicted(standing: Standing, prediction: Prediction | None) -> ReceiptPrediction | None:
    plan = standing.row.plan
    if plan is None:
        return None
    rate = float(plan.get("usd_per_hour") or 0.0)
    if prediction is None:
        return ReceiptPrediction(usd_per_hour=rate)
    return ReceiptPrediction(
        usd=prediction.cost_usd,
        low_usd=prediction.cost_low_usd,
        high_usd=prediction.cost_high_usd,
        usd_per_million_tokens=prediction.usd_per_million_tokens,
        usd_per_hour=rate,
    )


def _cause(name: str, part: Sum, prediction: Prediction | None) -> ReceiptCause:
    return ReceiptCause(
        cause=name,
        usd=part.micro_usd / MICRO,
        node_hours=_hours(part),
        predicted_usd=None if prediction is None else _expected(name, prediction),
    )


def _expected(name: str, prediction: Prediction) -> float | None:
    """What the plan expected of a cause. It prices disks by themselves, for the whole time; here they go with it."""
    parts = prediction.cost_parts_usd
    moving = sum(parts.get(cause, 0.0) for cause in (START_UP, TRAINING, REPEATED))
    if name not in parts or moving <= 0:
        return None
    return round(parts[name] * (1 + parts.get("disk", 0.0) / moving), 6)


def _node(node: NodeRow, cost: Sum) -> ReceiptNode:
    return ReceiptNode(
        token=node.token,
        provider=node.instance,
        instance_type=str(node.offer.get("instance_type", "")),
        generation=node.run_generation,
        usd=cost.micro_usd / MICRO,
        node_hours=_hours(cost),
        planned_usd_per_hour=_planned(node.offer),
        billed_usd_per_hour=node.billed_usd_per_hour,
    )


def _planned(offer: Mapping[str, Any]) -> float | None:
    """None for a row of an earlier release that does not say it."""
    price = cast("Mapping[str, Any]", offer.get("price") or {})
    return offer_from_json(offer).price.usd_per_hour if "gpu_usd_per_hour" in price else None


def _billed(standing: Standing) -> float | None:
    """Of the gang that ran last, else of all nodes that there were."""
    made = [node for node in standing.nodes if node.handle is not None]
    last = max((node.run_generation for node in made), default=0)
    return sum(node.billed_usd_per_hour for node in made if node.run_generation == last) if made else None


def _summed(parts: Iterable[Sum]) -> Sum:
    total = Sum()
    for part in parts:
        total.add(part)
    return total


def _hours(part: Sum) -> float:
    return round(part.node_s / 3600, 4)
