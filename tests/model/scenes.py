"""Short orders of events, each of which shows one wrong version of the code for what it is.

The random search of `machine` finds the same in the end, and much besides; these find it at once, and every time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from shunter_schemas.states import State
from shunter_store.job import jobs

from model import promises
from model.processes import Fuse
from model.verdicts import require
from model.workers import LEASE_S
from model.world import World

Scene = Callable[[World], None]


# --- steps and claims ------------------------------------------------------------------------------------------------


def _a_worker_sleeps_beyond_its_lease(world: World) -> None:
    _running(world, "capped")
    sleeper = world.workers[0]
    world.nudge()
    sleeper.begin_step()
    sleeper.process.go_on(5)
    world.tick(LEASE_S + 1.0)
    world.nudge()
    world.live(1)
    sleeper.process.go_on()
    world.check()


def _two_workers_want_one_job(world: World) -> None:
    world.submit("capped")
    first, second = world.workers[:2]
    first.begin_step()
    first.process.go_on(3)
    world.nudge()
    second.begin_step()
    second.process.go_on()


def _a_cancel_comes_during_a_step(world: World) -> None:
    job_id = _running(world, "capped")
    worker = world.workers[0]
    world.nudge()
    worker.begin_step()
    worker.process.go_on(4)
    world.wish("cancel", job_id)
    worker.process.go_on()
    world.check()


def _a_worker_dies_around_each_commit(world: World) -> None:
    world.submit("capped")
    worker = world.workers[0]
    for point in range(8):
        world.nudge()
        worker.process.fuse = Fuse(point, "commit")
        worker.begin_step()
        worker.process.go_on()
        worker.process.fuse = None
        worker.restart()
        world.tick(LEASE_S + 1.0)
        promises.check_histories(world)


# --- the ledger ------------------------------------------------------------------------------------------------------


def _a_job_is_cancelled(world: World) -> None:
    world.wish("cancel", _running(world, "capped"))
    world.live(12)
    promises.check_end(world)


def _an_end_takes_long(world: World) -> None:
    _end(world, "stuck")


def _an_end_is_hidden(world: World) -> None:
    _end(world, "hidden")


def _end(world: World, fault: str) -> None:
    job_id = _running(world, "capped")
    world.cloud.faults["terminate"].extend([fault] * 20)
    world.wish("cancel", job_id)
    world.live(12, tick_s=4.0)


def _a_listing_misses_a_node(world: World) -> None:
    _running(world, "capped")
    world.cloud.glitch = "sim-0"
    world.live(12)


def _a_node_is_listed_late(world: World) -> None:
    world.cloud.faults["create"].append("late")
    world.submit("capped")
    world.live(14, tick_s=1.0)


def _the_operator_gives_other_credentials(world: World) -> None:
    _running(world, "capped")
    world.change_account("theirs")
    world.live(12)


def _two_jobs_want_the_same_slots(world: World) -> None:
    first = _running(world, "shared")
    world.submit("shared")
    world.cloud.faults["terminate"].append("stuck")
    world.wish("cancel", first)
    world.live(12)


def _a_node_is_made_while_a_scan_is_under_way(world: World) -> None:
    """The scan has read what the ledger knows; its listing shows a node that came afterwards."""
    world.submit("capped")
    world.live(1)
    world.submit("capped")
    scanner = world.workers[0]
    scanner.begin_scan("sim")
    scanner.process.go_on(3)
    world.live(3)
    scanner.process.go_on()
    world.live(2)


def _a_call_makes_a_twin(world: World) -> None:
    world.cloud.faults["create"].append("twin")
    _running(world, "capped")
    world.live(12)
    left = [machine.handle for machine in world.cloud.living() if machine.twin]
    require(2, not left, f"{left} still exist beside their twins")


def _a_twin_comes_up_late(world: World) -> None:
    """It is not rid of at once, and asks what to do while its twin runs."""
    world.cloud.faults["create"].append("twin")
    world.cloud.faults["terminate"].extend(["server_error"] * 20)
    world.submit("capped")
    world.live(1)
    [twin] = [machine for machine in world.cloud.living() if machine.twin]
    twin.boots_at += 20.0
    world.live(20)


# --- gangs -----------------------------------------------------------------------------------------------------------


def _a_node_never_comes_up(world: World) -> None:
    world.cloud.faults["create"].append("never_boots")
    job_id = world.submit("capped")
    world.live(60)
    require(1, _state(world, job_id) is State.RUNNING, f"{job_id} waits for a node that never comes up")


def _nodes_fall_silent(world: World) -> None:
    _running(world, "gang")
    for machine in world.cloud.living():
        machine.partitioned = True
    world.live(8, tick_s=10.0)


def _the_clock_is_set_ahead(world: World) -> None:
    _running(world, "gang")
    world.clock.database_behind_s = -3 * 3600.0
    world.live(3)


def _a_node_fails_beside_one_that_is_cut_off(world: World) -> None:
    _running(world, "gang")
    world.cloud.faults["terminate"].extend(["stuck"] * 20)
    world.fail_beside_one_that_is_cut_off(world.present()[0])


def _a_node_is_lost(world: World) -> None:
    _running(world, "gang")
    world.present()[-1].machine.lost_at = world.clock.now
    world.live(40, tick_s=5.0)


def _a_gang_succeeds_and_its_nodes_vanish(world: World) -> None:
    job_id = _running(world, "gang")
    world.succeed_unseen(job_id)
    world.live(20)


def _a_running_job_is_cancelled(world: World) -> None:
    job_id = _running(world, "gang")
    world.wish("cancel", job_id)
    world.live(20)
    require(5, _state(world, job_id) is State.CANCELLED, f"{job_id} was cancelled and is {_state(world, job_id)}")


def _a_cancel_comes_after_the_last_rank_was_done(world: World) -> None:
    job_id = _running(world, "gang")
    for agent in world.present():
        agent.finish()
        world.exchange(agent)
    world.wish("cancel", job_id)
    world.live(20)


# --- what nodes are told, and what they tell --------------------------------------------------------------------------


def _a_checkpoint_of_an_older_generation_comes_late(world: World) -> None:
    _running(world, "capped")
    [agent] = world.present()
    agent.save()
    late = agent.request()
    agent.machine.lost_at = world.clock.now
    world.live(20)
    world.deliver(agent, late)
    promises.check_histories(world)


def _a_request_comes_again(world: World) -> None:
    _running(world, "capped")
    [agent] = world.present()
    agent.print_line()
    agent.measure()
    late = agent.request()
    for _ in range(4):
        world.deliver(agent, late)
    for _ in range(2):
        world.exchange(agent)
    promises.check_histories(world)


def _a_job_runs(world: World) -> None:
    _running(world, "capped")
    world.live(2)
    promises.check_histories(world)


SCENES: Final[Mapping[str, Scene]] = {
    "a step is applied whoever has the job by now": _a_worker_sleeps_beyond_its_lease,
    "a job is claimed while another worker has it": _two_workers_want_one_job,
    "a wake that comes during a step is lost": _a_cancel_comes_during_a_step,
    "a change leaves no hint": _a_job_runs,
    "the intent is written after the create call": _a_job_runs,
    "events are written in a transaction of their own": _a_worker_dies_around_each_commit,
    "terminate is trusted without a read": _a_job_is_cancelled,
    "a row is closed when its end takes too long": _an_end_takes_long,
    "a row is closed without asking for its node": _an_end_is_hidden,
    "one listing is proof of absence": _a_listing_misses_a_node,
    "absence counts before a node could be listed": _a_node_is_listed_late,
    "a listing of another account counts": _the_operator_gives_other_credentials,
    "slots are free at terminate and not at proof": _two_jobs_want_the_same_slots,
    "a row that is closed forgets its cost": _a_job_is_cancelled,
    "a row that is closed goes on costing": _a_job_is_cancelled,
    "the reaper gives no grace": _a_node_is_made_while_a_scan_is_under_way,
    "the reaper knows nodes by name": _a_call_makes_a_twin,
    "a node is taken for ready that never booted": _a_node_never_comes_up,
    "silence is taken for failure": _nodes_fall_silent,
    "a lease is over as soon as a clock says so": _the_clock_is_set_ahead,
    "nodes are replaced while they run": _a_node_fails_beside_one_that_is_cut_off,
    "a gang is started twice under one generation": _a_node_is_lost,
    "a lost node counts for more than a success": _a_gang_succeeds_and_its_nodes_vanish,
    "twins are listened to": _a_twin_comes_up_late,
    "a cancel is overlooked": _a_running_job_is_cancelled,
    "a success that came before the cancel is overlooked": _a_cancel_comes_after_the_last_rank_was_done,
    "checkpoints of any generation are committed": _a_checkpoint_of_an_older_generation_comes_late,
    "output that comes again is kept again": _a_request_comes_again,
    "what is acknowledged is not kept": _a_job_runs,
    "nodes get no lease": _a_job_runs,
    "leases are not written down": _a_job_runs,
    "nodes do not know the budget": _a_job_runs,
}
"""By the name of the mutant that each is for."""


# --- how they get there ----------------------------------------------------------------------------------------------


def _running(world: World, kind: str) -> str:
    job_id = world.submit(kind)
    for _ in range(30):
        if _state(world, job_id) is State.RUNNING:
            return job_id
        world.live(1)
    raise AssertionError(f"{job_id} is {_state(world, job_id)}")


def _state(world: World, job_id: str) -> State:
    row = world.database.read(lambda conn: jobs.get(conn, job_id))
    assert row is not None
    return row.state
