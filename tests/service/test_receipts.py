"""What a job cost by what it was spent on: which cause each part of a node's life has, and that parts add up."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from shunter_planner.predictions import Prediction
from shunter_planner.values import as_json
from shunter_schemas.api import Receipt
from shunter_schemas.node_sync import MetricPoint
from shunter_schemas.states import NodeState, Reason, State
from shunter_service.showing.receipts import receipt
from shunter_store.accounts.money import MICRO, Sum
from shunter_store.job.events import TransitionRow
from shunter_store.job.lifecycle import Trigger, follow
from shunter_store.job.standings import Standing
from shunter_store.node.ledger import NodeRow
from shunter_store.report import metrics
from shunter_store.report.metrics import ProgressRow
from shunter_store.report.time_spent import Pace, paces
from shunter_store.tables import charges, nodes
from sqlalchemy import insert, update
from support.service_app import App
from support.store_rows import intend, new_job, new_node
from support.views import CLOUD_OFFER, job, on_cloud_node, plan_on

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
RATE = 3.6
"""USD an hour: 1,000 micro-dollars a second."""
NO_PACES: Mapping[int, Pace] = {}
UP = ((0, Trigger.PLANNED), (20, Trigger.NODES_READY), (30, Trigger.TRAINER_UP))
DONE = (Trigger.STOP, Trigger.NODES_GONE)


class Meter:
    """A node that costs `RATE` from one second to another: cumulative, and rounded once, as the ledger's is."""

    def __init__(self, since_s: float, until_s: float, rate: float = RATE) -> None:
        self.begins, self.ends, self._rate = at(since_s), at(until_s), rate

    def between(self, since: datetime, until: datetime) -> Sum:
        return Sum(self._at(until) - self._at(since), 0, (until - since).total_seconds())

    def _at(self, moment: datetime) -> int:
        return round((min(moment, self.ends) - self.begins).total_seconds() / 3600 * self._rate * MICRO)


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def moves(*path: tuple[float, Trigger]) -> list[TransitionRow]:
    """The path that these triggers lead, at these seconds; each start has a generation of its own."""
    state, generation, rows = State.QUEUED, 0, []
    for seq, (second, trigger) in enumerate(path, 1):
        target, _ = follow(state, trigger, Reason.DONE)
        generation += target is State.STARTING
        rows.append(TransitionRow("job_1", seq, at(second), trigger, state, target, None, max(generation, 1)))
        state = target
    return rows


def standing(path: Sequence[TransitionRow], *its_nodes: NodeRow, **given: Any) -> Standing:
    row = job(path[-1].to_state, created_at=START, **given.pop("row", {}))
    return Standing(row, nodes=its_nodes, moves=path, **given)


def ran(rank: int, generation: int, intended_s: float = 0.0, **changes: Any) -> NodeRow:
    """A node that was told to run up to this generation."""
    return on_cloud_node(NodeState.GONE, rank, run_generation=generation, intended_at=at(intended_s), **changes)


def micro(found: Receipt) -> dict[str, int]:
    return {one.cause: round(one.usd * MICRO) for one in found.causes if one.usd}


def made(its: Standing, meters: Sequence[Meter], seen: Mapping[int, Pace] = NO_PACES, now_s: float = 1000.0) -> Receipt:
    by_node: Any = {node.id: meter for node, meter in zip(its.nodes, meters, strict=True)}
    return receipt(its, at(now_s), by_node, seen)


def test_a_run_without_trouble_is_start_up_training_and_letting_go() -> None:
    path = moves(*UP, (130, DONE[0]), (140, DONE[1]))

    found = made(standing(path, ran(0, 1)), [Meter(0, 140)])

    assert micro(found) == {"start_up": 30_000, "training": 100_000, "idle": 10_000}
    assert found.usd == 0.14
    assert found.final
    assert [one.cause for one in found.causes] == ["start_up", "training", "repeated", "saving", "idle"]


def test_what_saving_and_repeated_steps_took_is_no_training() -> None:
    path = moves(*UP, (130, DONE[0]), (130, DONE[1]))
    seen = {1: Pace(1, 50, saving_s=7.0, repeated_s=25.0)}

    found = made(standing(path, ran(0, 1)), [Meter(30, 130)], seen)

    assert micro(found) == {"training": 68_000, "repeated": 25_000, "saving": 7_000}


def test_a_start_that_never_came_further_than_the_one_before_only_repeated() -> None:
    again = ((80, Trigger.NODE_LOST), (90, Trigger.NODES_READY), (95, Trigger.TRAINER_UP))
    path = moves(*UP, *again, (105, DONE[0]), (105, DONE[1]))
    seen = {1: Pace(1, 50, 0.0, 0.0), 2: Pace(41, 45, 1.0, float("inf"))}

    found = made(standing(path, ran(0, 2)), [Meter(30, 105)], seen)

    assert micro(found) == {"training": 50_000, "idle": 10_000, "start_up": 5_000, "repeated": 10_000}


def test_a_lost_node_is_idle_until_it_is_gone_and_its_successor_starts_up() -> None:
    again = ((80, Trigger.NODE_LOST), (85, Trigger.PLANNED), (120, Trigger.NODES_READY), (125, Trigger.TRAINER_UP))
    path = moves(*UP, *again, (150, DONE[0]), (150, DONE[1]))

    found = made(standing(path, ran(0, 1), ran(1, 2, intended_s=85)), [Meter(30, 130), Meter(85, 150)])

    assert micro(found) == {"training": 50_000 + 25_000, "idle": 50_000, "start_up": 40_000}
    assert [node.usd for node in found.nodes] == [0.1, 0.065]


def test_nodes_that_never_ran_are_start_up() -> None:
    path = moves((0, Trigger.PLANNED), (50, Trigger.CAPACITY_LOST), (60, Trigger.STOP), (70, Trigger.NODES_GONE))

    found = made(standing(path, ran(0, 0)), [Meter(5, 55)])

    assert micro(found) == {"start_up": 45_000, "idle": 5_000}


def test_nodes_that_are_ordered_while_others_train_are_start_up_for_the_next_start() -> None:
    path = moves(*UP, (100, Trigger.MOVE), (110, Trigger.NODES_READY), (115, Trigger.TRAINER_UP))

    found = made(standing(path, ran(0, 1), ran(1, 2, intended_s=90)), [Meter(30, 100), Meter(90, 135)], now_s=135)

    assert micro(found) == {"training": 70_000 + 20_000, "start_up": 10_000 + 5_000, "idle": 10_000}
    assert not found.final


def test_what_a_node_cost_before_the_first_and_after_the_last_move_is_not_lost() -> None:
    path = moves(*UP, (40, DONE[0]), (50, DONE[1]))

    found = made(standing(path, ran(0, 1)), [Meter(-10, 500)])

    assert found.usd == 0.51
    assert micro(found) == {"idle": 10_000 + 460_000, "start_up": 30_000, "training": 10_000}


@pytest.mark.parametrize("seed", range(200))
def test_causes_and_nodes_add_up_to_what_the_nodes_cost_to_the_micro_dollar(seed: int) -> None:
    pick = random.Random(seed)
    path: list[tuple[float, Trigger]] = []
    second, state = 0.0, State.QUEUED
    while state is not State.SUCCEEDED and len(path) < 40:
        trigger = pick.choice([Trigger.NODES_GONE, *(trigger for trigger in Trigger if _leads_on(state, trigger))])
        if _leads_on(state, trigger):
            second += pick.expovariate(0.05)
            state, _ = follow(state, trigger, Reason.DONE)
            path.append((second, trigger))
    rows = moves(*path)
    its_nodes = [ran(rank, pick.randint(0, 6), pick.uniform(0, second)) for rank in range(pick.randint(1, 5))]
    spans = [sorted((pick.uniform(-5, second + 50), pick.uniform(-5, second + 50))) for _ in its_nodes]
    meters = [Meter(first, last, pick.uniform(0.01, 98.7)) for first, last in spans]
    seen = {number: Pace(1, 9, pick.expovariate(0.1), pick.choice([0.0, 5.0, float("inf")])) for number in range(1, 5)}

    found = made(standing(rows, *its_nodes), meters, seen, now_s=second + 60)

    whole = sum(meter.between(meter.begins, meter.ends).micro_usd for meter in meters)
    assert round(found.usd * MICRO) == whole
    assert sum(micro(found).values()) == whole
    assert sum(round(node.usd * MICRO) for node in found.nodes) == whole
    assert all(one.usd >= 0 and one.node_hours >= 0 for one in found.causes)
    assert sum(one.node_hours for one in found.causes) == pytest.approx(found.node_hours, abs=0.001)


def _leads_on(state: State, trigger: Trigger) -> bool:
    try:
        follow(state, trigger, Reason.DONE)
    except Exception:
        return False
    return True


def test_tokens_are_those_of_each_step_once_and_have_a_price() -> None:
    path = moves(*UP, (1030, DONE[0]), (1030, DONE[1]))
    values = {"tokens_per_s": 2000.0, "step_time_s": 0.5}
    progress = [ProgressRow("job_1", number, START, step, 100, values, None) for number, step in ((1, 70), (2, 110))]

    its = standing(path, ran(0, 1), progress=progress, row={"resumes_from_step": 10})
    found = made(its, [Meter(30, 1030)])

    assert (found.steps, found.tokens) == (100, 100_000)
    assert found.usd_per_million_tokens == pytest.approx(10.0)


def test_a_job_that_reports_nothing_has_neither_steps_nor_tokens() -> None:
    found = made(standing(moves(*UP), ran(0, 1)), [Meter(30, 60)])

    assert (found.steps, found.tokens, found.usd_per_million_tokens) == (None, None, None)


@pytest.mark.parametrize("speed", [float("nan"), float("inf"), 0.0, -5.0, 1e300])
def test_a_speed_that_is_nonsense_gives_no_tokens(speed: float) -> None:
    progress = [ProgressRow("job_1", 1, START, 70, 100, {"tokens_per_s": speed, "step_time_s": 0.5}, None)]

    found = made(standing(moves(*UP), ran(0, 1), progress=progress), [Meter(30, 60)])

    assert (found.steps, found.tokens, found.usd_per_million_tokens) == (70, None, None)


def test_what_was_predicted_and_planned_stands_beside_what_was_billed() -> None:
    parts = {"training": 9.0, "start_up": 1.0, "repeated": 0.0, "disk": 0.5, "setup": 2.0}
    prediction = Prediction(
        cost_usd=12.5, cost_low_usd=10.0, cost_high_usd=15.0, cost_parts_usd=parts, usd_per_million_tokens=0.2
    )
    plan = {**as_json(plan_on(CLOUD_OFFER, num_nodes=2)), "prediction": as_json_of(prediction)}
    its = standing(moves(*UP), ran(0, 1, billed_usd_per_hour=7.0), ran(1, 1), row={"plan": plan})

    found = made(its, [Meter(0, 60), Meter(0, 60)])

    assert found.predicted is not None
    assert (found.predicted.usd, found.predicted.low_usd, found.predicted.high_usd) == (12.5, 10.0, 15.0)
    assert (found.predicted.usd_per_hour, found.usd_per_hour) == (12.0, 13.0)
    assert [(node.planned_usd_per_hour, node.billed_usd_per_hour) for node in found.nodes] == [(6.0, 7.0), (6.0, 6.0)]
    expected = {one.cause: one.predicted_usd for one in found.causes}
    assert expected == {"training": 9.45, "start_up": 1.05, "repeated": 0.0, "saving": None, "idle": None}


def as_json_of(prediction: Prediction) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(prediction)


async def test_the_receipt_of_a_job_says_what_its_own_page_and_the_costs_of_all_say(app: App) -> None:
    its = await app.submit()
    for rate, hours in ((1.2345678, 1.7), (0.3333333, 3.1)):
        bill(app, its["id"], rate, hours)
    bill(app, new_job(app.database).id, 5.0, 2.0)

    found = (await app.http.get(f"/v1/jobs/{its['id']}/receipt")).json()

    shown = (await app.http.get(f"/v1/jobs/{its['id']}")).json()
    groups = (await app.http.get("/v1/costs", params={"group_by": "job"})).json()["groups"]
    assert found["usd"] == shown["cost"]["usd"] > 3
    assert {group["by"]["job"]: group["usd"] for group in groups}[its["id"]] == found["usd"]
    assert round(sum(one["usd"] for one in found["causes"]), 6) == found["usd"]
    assert round(sum(one["usd"] for one in found["nodes"]), 6) == found["usd"]
    assert shown["links"]["receipt"] == f"/v1/jobs/{its['id']}/receipt"


def bill(app: App, job_id: str, rate: float, hours: float) -> None:
    """A node that has come and gone."""
    [row] = intend(app.database, job_id, new_node(instance="cloud", billed_usd_per_hour=rate))
    until = datetime.now(UTC)
    since = until - timedelta(hours=hours)
    columns = {"state": NodeState.GONE, "handle": f"h-{row.id}", "intended_at": since, "created_at": since}
    columns |= {"gone_at": until, "accrued_usd": rate * hours}
    interval = {"node_id": row.id, "since": since, "until": until, "usd_per_hour": rate}
    app.database.write(lambda conn: conn.execute(update(nodes).where(nodes.c.id == row.id).values(**columns)))
    app.database.write(lambda conn: conn.execute(insert(charges).values(**interval)))


async def test_a_job_that_nothing_was_spent_on_has_a_receipt_of_nothing(app: App) -> None:
    its = await app.submit()

    answer = await app.http.get(f"/v1/jobs/{its['id']}/receipt")

    assert answer.status_code == 200, answer.text
    assert (answer.json()["usd"], answer.json()["final"]) == (0.0, False)


async def test_there_is_no_receipt_of_a_job_that_does_not_exist(app: App) -> None:
    answer = await app.http.get("/v1/jobs/job_01kb9m4t8zq3v5x7y9a1c3e5g7/receipt")

    assert answer.status_code == 404


async def test_points_tell_saving_and_repeated_steps_of_each_start(app: App) -> None:
    its = (await app.submit())["id"]
    first = [point(step, 100.0 + step) for step in range(1, 301)]
    first[99], first[199] = point(100, 200.0, checkpoint_blocked_s=1.5), point(200, 300.0, checkpoint_blocked_s=2.0)
    again = [point(step, 900.0 + 2 * step) for step in range(201, 401)]
    less = [point(step, 5000.0 + step) for step in range(350, 360)]
    for generation, points in ((1, first), (2, again), (4, less)):
        app.database.write(lambda conn, g=generation, p=points: metrics.add_points(conn, its, g, p))  # type: ignore[misc]

    found = app.database.read(lambda conn: paces(conn, its))

    assert found == {
        1: Pace(1, 300, 3.5, 0.0),
        2: Pace(201, 400, 0.0, 200.0),
        4: Pace(350, 359, 0.0, float("inf")),
    }


def point(step: int, at_s: float, **values: float) -> MetricPoint:
    return MetricPoint(step=step, at=at_s, values={"loss": 1.0, **values})
