"""Lives of one job each, from its acceptance to its end, that lead through every state and every call to a provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from model.world import World
from shunter_schemas.states import State
from shunter_store.job import jobs

UNDISTURBED: Final = frozenset({State.SUCCEEDED})


@dataclass(frozen=True, slots=True)
class Life:
    """What kind of job it is, and what happens to it. `meddle` is called again and again until it says that it did."""

    kind: str
    meddle: Callable[[World, str], bool]
    ends: frozenset[State] = UNDISTURBED


def _nothing(world: World, job_id: str) -> bool:
    return True


def _spoil(verb: str, *faults: str) -> Callable[[World, str], bool]:
    def meddle(world: World, job_id: str) -> bool:
        world.cloud.faults[verb].extend(faults)
        return True

    return meddle


def _in_state(state: State, act: Callable[[World, str], None]) -> Callable[[World, str], bool]:
    def meddle(world: World, job_id: str) -> bool:
        job = world.database.read(lambda conn: jobs.get(conn, job_id))
        assert job is not None
        if job.state is not state:
            return False
        act(world, job_id)
        return True

    return meddle


def _lose_a_node(world: World, job_id: str) -> None:
    world.present()[-1].machine.lost_at = world.clock.now


def _preempt(world: World, job_id: str) -> None:
    """The notice, what the agent makes of it, and the end."""
    agent = world.present()[0]
    agent.save()
    agent.fail("node")
    world.exchange(agent)
    agent.machine.lost_at = world.clock.now


def _fail(world: World, job_id: str) -> None:
    for agent in world.present():
        agent.fail("user")
        world.exchange(agent)


def _cancel(world: World, job_id: str) -> None:
    world.wish("cancel", job_id)


def _pause(world: World, job_id: str) -> None:
    world.wish("pause", job_id)


_CANCELLED: Final = frozenset({State.CANCELLED})
LIVES: Final[Mapping[str, Life]] = {
    "a whole life": Life("gang", _nothing),
    "a life on a shared host": Life("shared", _nothing),
    "a cancel while it is queued": Life("gang", _in_state(State.QUEUED, _cancel), _CANCELLED),
    "a cancel while nodes are made": Life("gang", _in_state(State.PROVISIONING, _cancel), _CANCELLED),
    "a cancel while it runs": Life("gang", _in_state(State.RUNNING, _cancel), _CANCELLED),
    "a create call that is refused": Life("gang", _spoil("create", "", "rate_limited", "no_capacity")),
    "a create call in doubt": Life("gang", _spoil("create", "lost_reply")),
    "a twin": Life("gang", _spoil("create", "", "twin")),
    "a node that never boots": Life("capped", _spoil("create", "never_boots")),
    "a node that is lost": Life("gang", _in_state(State.RUNNING, _lose_a_node)),
    "a preemption": Life("capped", _in_state(State.RUNNING, _preempt)),
    "an error of the program": Life("shared", _in_state(State.RUNNING, _fail)),
    "a pause": Life("capped", _in_state(State.RUNNING, _pause)),
    "an end that takes long": Life("gang", _spoil("terminate", "server_error", "stuck", "hidden", "lost_reply")),
}
