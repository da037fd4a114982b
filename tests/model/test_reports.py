"""The kinds of failure that users of such systems report, each played against the real store and steps.

`docs/notes/reports.md` says what makes each impossible. After each test the job comes to its end and every promise is
checked: nothing is left, nothing is doubled, the books agree.
"""

from __future__ import annotations

import pytest
from shunter_providers.contract import Capabilities
from shunter_schemas.states import Health, NodeState, State
from shunter_store.job import deletion

from model.sights import cost, halt_after_a_look, history, intents, job, live_until, rows, running
from model.world import World


def test_promise_2_a_create_that_answers_with_an_error_and_made_a_node_is_adopted(world: World) -> None:
    world.cloud.faults["create"].append("lost_reply")
    job_id = world.submit("capped")

    world.live(6)

    assert job(world, job_id).state is State.RUNNING
    assert [row.handle for row in rows(world, job_id)] == ["sim-0"]


def test_promise_2_a_provider_that_was_removed_from_the_settings_closes_nothing(world: World) -> None:
    job_id = running(world, "capped")
    world.change_instances("box")
    world.wish("cancel", job_id)

    world.live(120, tick_s=60.0)
    [row] = rows(world, job_id)

    assert row.state is NodeState.RELEASING
    assert cost(world, job_id) > 6.0, "it accrues as long as nobody proved that it is gone"
    world.change_instances("sim", "box")


def test_promise_2_an_empty_listing_right_after_a_create_closes_nothing(world: World) -> None:
    world.cloud.faults["create"].append("late")
    job_id = world.submit("capped")

    world.live(4, tick_s=1.0)
    before = rows(world, job_id)
    world.live(6)

    assert [row.id for row in rows(world, job_id)] == [row.id for row in before]
    assert job(world, job_id).state is State.RUNNING


def test_promise_2_a_node_is_made_in_the_account_that_its_row_names(world: World) -> None:
    """Other credentials are given between the intent and the create call."""
    job_id = world.submit("capped")
    worker = world.workers[0]
    for _ in range(100):
        if not rows(world, job_id):
            worker.begin_step()
            worker.process.go_on(1)
    world.change_account("theirs")

    live_until(world, job_id, State.RUNNING)

    made = {machine.token: machine.account for machine in world.cloud.machines.values()}
    assert made == {row.token: row.account for row in rows(world, job_id) if row.handle is not None}
    assert set(made.values()) == {"theirs"}


def test_promise_5_a_cancel_in_the_middle_of_a_create_call_leaves_no_node(world: World) -> None:
    job_id = world.submit("capped")
    worker = world.workers[0]
    for _ in range(100):
        if not world.cloud.sent:
            worker.begin_step()
            worker.process.go_on(1)
    assert world.cloud.sent

    world.wish("cancel", job_id)
    worker.process.go_on()
    world.settle()

    assert job(world, job_id).state is State.CANCELLED
    assert len(world.cloud.machines) == 1


def test_promise_3_a_worker_that_was_paused_beyond_its_lease_makes_no_call(world: World) -> None:
    world.submit("capped")
    worker = world.workers[0]
    for _ in range(100):
        if not intents(world):
            worker.begin_step()
            worker.process.go_on(1)
    world.tick(31.0)

    worker.process.go_on()

    assert world.cloud.machines == {}
    assert world.cloud.sent == []


@pytest.mark.parametrize("deleted", [False, True], ids=["over", "deleted"])
def test_promise_1_a_worker_that_was_paused_until_its_job_was_over_breaks_nothing(world: World, deleted: bool) -> None:
    job_id = running(world, "capped")
    worker = world.workers[0]
    world.nudge()
    worker.begin_step()
    worker.process.go_on(3)
    assert worker.claimed == job_id
    world.tick(31.0)
    world.live(25, finish=True)
    assert job(world, job_id).state is State.SUCCEEDED
    if deleted:
        world.database.write(lambda conn: deletion.delete(conn, job_id))
        world.jobs.remove(job_id)
        world.agents.clear()  # what they told went with the record

    worker.process.go_on()

    world.check()


def test_promise_5_a_cancel_while_the_job_recovers_leaves_no_node(world: World) -> None:
    job_id = running(world, "gang")
    world.present()[0].machine.lost_at = world.clock.now
    live_until(world, job_id, State.RECOVERING)

    world.wish("cancel", job_id)
    world.settle()

    assert job(world, job_id).state is State.CANCELLED


def test_promise_2_a_rate_limit_behind_a_create_in_doubt_loses_no_node(world: World) -> None:
    world.cloud.faults["create"].append("lost_reply")
    world.cloud.faults["list_owned"].extend(["server_error"] * 3)
    job_id = world.submit("capped")

    world.live(12)

    assert job(world, job_id).state is State.RUNNING
    assert len(world.cloud.machines) == 1


def test_promise_2_a_terminate_that_is_refused_is_told_of_and_tried_until_it_succeeds(world: World) -> None:
    job_id = running(world, "capped")
    world.cloud.faults["terminate"].extend(["unauthorized"] * 5)
    world.wish("cancel", job_id)

    world.live(3)

    told = [event.type for event in history(world, job_id)]
    assert "node.provider_error" in told
    assert [row.state for row in rows(world, job_id)] == [NodeState.RELEASING]


def test_promise_8_what_bills_has_a_lease_by_default() -> None:
    declared = Capabilities()

    assert declared.bills
    assert declared.lease_s is not None


def test_promise_8_a_provider_that_can_end_nodes_by_itself_is_told_when_they_are_of_no_use(world: World) -> None:
    running(world, "capped")

    [agent] = world.present()

    ends_at = agent.machine.intent.expires_at
    assert ends_at is not None
    assert 86_400 < ends_at - world.clock.now < 2 * 86_400


def test_promise_8_nodes_whose_service_is_gone_for_good_run_nothing_beyond_their_lease(world: World) -> None:
    running(world, "gang")

    world.tick(301.0)

    assert [agent.running for agent in world.present()] == [None, None]


def test_promise_3_a_request_that_is_carried_out_twice_starts_one_gang(world: World) -> None:
    world.cloud.faults["create"].append("twin")
    job_id = running(world, "capped")

    world.live(4)

    assert len(world.cloud.machines) == 2
    assert [agent.running for agent in world.agents.values() if not agent.left] == [1]
    assert job(world, job_id).generation == 1


def test_promise_1_a_node_that_never_comes_up_is_replaced(world: World) -> None:
    world.cloud.faults["create"].append("never_boots")
    job_id = world.submit("capped")

    live_until(world, job_id, State.RUNNING, rounds=200)

    assert len(world.cloud.machines) == 2


def test_promise_1_a_node_that_vanishes_while_it_boots_is_replaced_at_once(world: World) -> None:
    job_id = world.submit("capped")
    world.live(1)
    [machine] = world.cloud.living()
    machine.lost_at = world.clock.now
    lost_at = world.clock.now

    live_until(world, job_id, State.RUNNING)

    assert world.clock.now - lost_at < 60.0, "sooner than its time to come up would have been over"


def test_promise_1_a_gang_of_which_one_node_cannot_be_had_is_made_anew_as_a_whole(world: World) -> None:
    world.cloud.faults["create"].extend(["", "no_capacity"])
    job_id = world.submit("gang")

    live_until(world, job_id, State.RUNNING, rounds=200)

    assert sorted(agent.node_rank for agent in world.present() if agent.running) == [0, 1]
    assert "job.capacity_lost" in [event.type for event in history(world, job_id)]


def test_promise_4_a_service_that_comes_back_after_a_long_time_takes_its_jobs_up_again(world: World) -> None:
    job_id = running(world, "gang")
    for worker in world.workers:
        worker.restart()
    world.tick(250.0)

    world.live(3)

    assert job(world, job_id).generation == 1
    assert [agent.running for agent in world.present()] == [1, 1]


def test_promise_4_silence_is_a_condition_and_no_failure_however_often_it_is_noticed(world: World) -> None:
    job_id = running(world, "gang")
    for machine in world.cloud.living():
        machine.partitioned = True

    world.live(25, tick_s=10.0)

    seen = job(world, job_id)
    assert (seen.state, seen.health) == (State.RUNNING, Health.UNREACHABLE)
    assert (seen.generation, seen.node_recoveries) == (1, 0)


def test_promise_4_nodes_that_come_back_within_their_lease_go_on_where_they_were(world: World) -> None:
    job_id = running(world, "gang")
    for machine in world.cloud.living():
        machine.partitioned = True
    world.live(25, tick_s=10.0)
    for machine in world.cloud.living():
        machine.partitioned = False

    world.live(2)

    seen = job(world, job_id)
    assert (seen.state, seen.health, seen.generation) == (State.RUNNING, Health.OK, 1)


def test_promise_5_a_success_that_was_told_counts_though_its_nodes_vanished(world: World) -> None:
    job_id = running(world, "gang")

    world.succeed_unseen(job_id)
    world.settle()

    assert job(world, job_id).state is State.SUCCEEDED
    assert job(world, job_id).generation == 1


def test_promise_5_a_success_counts_that_was_told_while_the_job_recovers(world: World) -> None:
    job_id = running(world, "gang")
    first, second = world.present()
    second.finish()
    late = second.request()
    first.finish()
    world.exchange(first)
    second.machine.lost_at = world.clock.now
    live_until(world, job_id, State.RECOVERING)

    world.deliver(second, late)
    world.settle()

    assert job(world, job_id).state is State.SUCCEEDED
    assert job(world, job_id).generation == 1


def test_promise_3_a_gang_of_which_one_failed_and_the_other_was_done_starts_again(world: World) -> None:
    """The one that failed is kept and runs the next generation; nothing of the last one is done for that."""
    job_id = running(world, "gang")
    first, second = world.present()
    first.fail("node")
    world.exchange(first)
    second.finish()
    world.exchange(second)
    second.machine.lost_at = world.clock.now

    world.live(60)

    seen = job(world, job_id)
    assert (seen.state, seen.generation) == (State.RUNNING, 2)
    assert world.present()[0] is first


@pytest.mark.parametrize("rests", [False, True], ids=["to start again", "to rest"])
def test_promise_5_a_success_that_is_told_while_a_step_has_decided_otherwise_counts(world: World, rests: bool) -> None:
    job_id = running(world, "capped")
    [agent] = world.present()
    agent.finish()
    late = agent.request()
    agent.machine.lost_at = world.clock.now
    if rests:
        world.wish("pause", job_id)
    live_until(world, job_id, State.QUEUED if rests else State.RECOVERING)
    world.wish("resume", job_id)
    world.tick(2.0)
    halt_after_a_look(world)

    world.deliver(agent, late)
    world.settle()

    assert job(world, job_id).state is State.SUCCEEDED
    assert job(world, job_id).generation == 1


def test_promise_3_a_rank_that_fails_ends_its_whole_gang(world: World) -> None:
    job_id = running(world, "gang")

    world.present()[1].fail("node")
    world.live(3)

    assert [agent.running for agent in world.present()] == [None, None]
    assert job(world, job_id).state is State.RECOVERING


def test_promise_5_an_error_of_the_program_is_not_tried_more_often_than_the_document_says(world: World) -> None:
    job_id = running(world, "shared")
    for _ in range(2):
        world.present()[0].fail("user")
        world.live(10)

    world.settle()

    assert job(world, job_id).state is State.FAILED
    assert job(world, job_id).user_restarts == 1


def test_promise_3_two_jobs_never_share_a_slot_of_a_host(world: World) -> None:
    jobs_ = [world.submit("shared") for _ in range(3)]

    world.live(8)
    held = [index for machine in world.cloud.living() for index in machine.intent.slot_indices]

    assert sorted(held) == [0, 1]
    assert [job(world, job_id).state for job_id in jobs_].count(State.RUNNING) == 1


def test_promise_3_a_node_that_is_let_go_is_told_to_end_whatever_it_was_told_before(world: World) -> None:
    """It comes up late, with orders that it was given before it existed."""
    world.cloud.faults["create"].append("boots_late")
    world.cloud.faults["terminate"].extend(["server_error"] * 20)
    job_id = world.submit("shared")

    world.live(60)
    world.cloud.faults["terminate"].clear()

    [late] = world.agents.values()
    assert (late.running, late.newest, late.left) == (None, 0, True)
    assert job(world, job_id).state is State.QUEUED, "the slots are free when the node is proven gone"


def test_promise_1_a_job_that_ran_before_is_not_ended_by_the_limit_of_its_queue(world: World) -> None:
    job_id = world.submit("capped", limits={"max_queue_s": 60})
    live_until(world, job_id, State.RUNNING)
    world.wish("pause", job_id)
    live_until(world, job_id, State.QUEUED)
    world.cloud.faults["create"].append("no_capacity")
    world.tick(100.0)

    world.wish("resume", job_id)
    live_until(world, job_id, State.RUNNING, rounds=200)

    assert job(world, job_id).generation > 1


def test_promise_1_no_transaction_is_open_while_a_provider_is_called(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ones: list[int] = []
    next_fault = world.cloud.next_fault

    def look(verb: str) -> str:
        open_ones.append(world.database.open_transactions)
        return next_fault(verb)

    monkeypatch.setattr(world.cloud, "next_fault", look)
    running(world, "gang")

    assert set(open_ones) == {0}
