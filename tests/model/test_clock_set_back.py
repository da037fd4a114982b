"""The database's clock, by which everything is counted that processes agree on, is set by hours, back or ahead.

What waits for a moment of the old clock looks anew, and no cost is taken back. What was counted for hours more than it
should be (a silence, a lease) errs on the side of the training and of the row: nothing is ended or closed for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from shunter_schemas.states import State
from shunter_store.job import jobs
from shunter_store.node import ledger

from model.world import World

HOURS_S = 3 * 3600.0


@pytest.fixture
def world(sqlite_template: Path) -> Iterator[World]:
    """Empty. Its books are not held against the cloud's in the end: they lack the hours that came twice."""
    made = World(sqlite_template)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("fault", ["no_capacity", "rate_limited", "lost_reply", "never_boots"])
def test_promise_1_a_job_that_waits_for_its_node_goes_on_though_the_clock_is_set_back(world: World, fault: str) -> None:
    world.cloud.faults["create"].append(fault)
    job_id = world.submit("capped")
    world.live(2)

    world.clock.database_behind_s = HOURS_S

    assert rounds_until(world, job_id, State.RUNNING) < 100


def test_promise_1_a_job_that_recovers_goes_on_though_the_clock_is_set_back(world: World) -> None:
    job_id = world.submit("gang")
    rounds_until(world, job_id, State.RUNNING)
    world.present()[-1].machine.lost_at = world.clock.now
    rounds_until(world, job_id, State.RECOVERING)

    world.clock.database_behind_s = HOURS_S

    assert rounds_until(world, job_id, State.RUNNING) < 100


def test_promise_2_a_node_that_is_hard_to_end_is_asked_again_though_the_clock_is_set_back(world: World) -> None:
    job_id = world.submit("capped")
    rounds_until(world, job_id, State.RUNNING)
    world.cloud.faults["terminate"].extend(["server_error"] * 3)
    world.wish("cancel", job_id)
    world.live(4)

    world.clock.database_behind_s = HOURS_S

    assert rounds_until(world, job_id, State.CANCELLED) < 100
    assert world.cloud.living() == []


def test_promise_4_a_training_is_not_disturbed_when_the_clock_is_set_back(world: World) -> None:
    job_id = world.submit("gang")
    rounds_until(world, job_id, State.RUNNING)

    world.clock.database_behind_s = HOURS_S
    world.live(10)

    row = job(world, job_id)
    assert (row.state, row.generation) == (State.RUNNING, 1)


def test_promise_4_a_training_is_not_disturbed_when_the_clock_is_set_ahead(world: World) -> None:
    """Every lease seems to be over, and every node silent for hours, until each is heard the next time."""
    job_id = world.submit("gang")
    rounds_until(world, job_id, State.RUNNING)

    world.clock.database_behind_s = -HOURS_S
    world.live(10)

    row = job(world, job_id)
    assert (row.state, row.generation) == (State.RUNNING, 1)


@pytest.mark.parametrize("begins", ["before", "while it is behind"])
def test_promise_4_a_training_is_not_disturbed_when_the_clock_is_set_back_and_right_again(
    world: World, begins: str
) -> None:
    if begins == "before":
        job_id = running(world, "gang")
        world.clock.database_behind_s = HOURS_S
        world.live(5)
    else:
        world.clock.database_behind_s = HOURS_S
        world.live(2)
        job_id = running(world, "gang")

    world.clock.database_behind_s = 0.0
    world.live(10)

    row = job(world, job_id)
    assert (row.state, row.generation) == (State.RUNNING, 1)


def test_promise_4_nodes_that_are_silent_for_longer_than_their_lease_are_replaced_all_the_same(world: World) -> None:
    job_id = running(world, "gang")
    for machine in world.cloud.living():
        machine.partitioned = True

    world.live(20, tick_s=60.0)

    assert job(world, job_id).generation > 1


def test_promise_7_a_node_costs_the_same_whether_the_clock_was_set_back_and_right_again_or_not(world: World) -> None:
    job_id = running(world, "capped")
    world.live(3)
    before = cost_usd(world, job_id), world.clock.now

    world.clock.database_behind_s = HOURS_S
    world.live(5)
    behind = cost_usd(world, job_id), world.clock.now
    world.clock.database_behind_s = 0.0
    world.live(5)
    right = cost_usd(world, job_id), world.clock.now

    [node] = world.database.read(lambda conn: ledger.of_job(conn, job_id, live_only=True))
    rate = node.billed_usd_per_hour / 3600
    for later in (behind, right):
        assert later[0] - before[0] == pytest.approx((later[1] - before[1]) * rate, abs=1e-4)


def test_promise_7_a_clock_that_is_set_back_takes_no_cost_back(world: World) -> None:
    job_id = world.submit("capped")
    rounds_until(world, job_id, State.RUNNING)

    world.clock.database_behind_s = HOURS_S
    costs = []
    for _ in range(5):
        world.live(1)
        costs.append(cost_usd(world, job_id))

    assert min(costs) >= 0.0
    assert costs == sorted(costs)


def cost_usd(world: World, job_id: str) -> float:
    return world.database.read(lambda conn: ledger.ledger_cost(conn, job_id))


def running(world: World, kind: str) -> str:
    job_id = world.submit(kind)
    rounds_until(world, job_id, State.RUNNING)
    return job_id


def rounds_until(world: World, job_id: str, state: State) -> int:
    for number in range(150):
        if job(world, job_id).state is state:
            return number
        world.live(1)
    raise AssertionError(f"{job(world, job_id)} is not {state}")


def job(world: World, job_id: str) -> jobs.JobRow:
    row = world.database.read(lambda conn: jobs.get(conn, job_id))
    assert row is not None
    return row
