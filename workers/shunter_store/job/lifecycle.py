"""The state machine as two tables; nothing else knows what follows what.

`TABLE` says where a job goes from a state on a trigger, and what has to be done then. `OUTCOME` says how a job ends by
the reason that stopped it. Every way out passes through `stopping`, and the only door to a terminal state is
`NODES_GONE`: a job is over when its nodes are proven gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shunter_schemas.states import TERMINAL_STATES, Reason, State


class Trigger(StrEnum):
    """What happened to a job."""

    PLANNED = "planned"
    """A plan was chosen and its nodes are intended."""
    NODES_READY = "nodes_ready"
    """Every node of the gang has been accepted."""
    CAPACITY_LOST = "capacity_lost"
    """The gang could not be made; everything of it is released and a new plan is needed."""
    TRAINER_UP = "trainer_up"
    """Every rank of the generation has reported."""
    NODE_LOST = "node_lost"
    """A node is gone or a rank failed for a reason that is not the user's; also a restart that the user asked for."""
    PAUSE = "pause"
    """A pause was asked for: checkpoint, and let every node go."""
    MOVE = "move"
    """A move was asked for: checkpoint, and go on under the changed document."""
    PAUSED = "paused"
    """The job is at rest: its ranks have ended and every row of the ledger is closed."""
    STOP = "stop"
    """The job shall end; the first reason wins."""
    NODES_GONE = "nodes_gone"
    """Every row of the ledger is closed by proof of absence."""


class Effect(StrEnum):
    """What a step does on entering the state."""

    NOTHING = "nothing"
    PROVISION = "provision"
    START = "start"
    REPLAN = "replan"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the state machine. `target` None: the terminal state that the stop reason decides."""

    state: State
    trigger: Trigger
    target: State | None
    effect: Effect


# fmt: off
TABLE: Final[tuple[Row, ...]] = (
    #   in state             on trigger              go to                then do
    Row(State.QUEUED,        Trigger.PLANNED,        State.PROVISIONING,  Effect.PROVISION),
    Row(State.QUEUED,        Trigger.STOP,           State.STOPPING,      Effect.RELEASE),
    Row(State.PROVISIONING,  Trigger.NODES_READY,    State.STARTING,      Effect.START),
    Row(State.PROVISIONING,  Trigger.CAPACITY_LOST,  State.QUEUED,        Effect.REPLAN),
    Row(State.PROVISIONING,  Trigger.NODE_LOST,      State.RECOVERING,    Effect.REPLAN),
    Row(State.PROVISIONING,  Trigger.PAUSE,          State.RECOVERING,    Effect.RELEASE),
    Row(State.PROVISIONING,  Trigger.MOVE,           State.RECOVERING,    Effect.REPLAN),
    Row(State.PROVISIONING,  Trigger.STOP,           State.STOPPING,      Effect.RELEASE),
    Row(State.STARTING,      Trigger.TRAINER_UP,     State.RUNNING,       Effect.NOTHING),
    Row(State.STARTING,      Trigger.NODE_LOST,      State.RECOVERING,    Effect.REPLAN),
    Row(State.STARTING,      Trigger.PAUSE,          State.RECOVERING,    Effect.RELEASE),
    Row(State.STARTING,      Trigger.MOVE,           State.RECOVERING,    Effect.REPLAN),
    Row(State.STARTING,      Trigger.STOP,           State.STOPPING,      Effect.RELEASE),
    Row(State.RUNNING,       Trigger.NODE_LOST,      State.RECOVERING,    Effect.REPLAN),
    Row(State.RUNNING,       Trigger.PAUSE,          State.RECOVERING,    Effect.RELEASE),
    Row(State.RUNNING,       Trigger.MOVE,           State.RECOVERING,    Effect.REPLAN),
    Row(State.RUNNING,       Trigger.STOP,           State.STOPPING,      Effect.RELEASE),
    Row(State.RECOVERING,    Trigger.PLANNED,        State.PROVISIONING,  Effect.PROVISION),
    Row(State.RECOVERING,    Trigger.NODES_READY,    State.STARTING,      Effect.START),
    Row(State.RECOVERING,    Trigger.PAUSED,         State.QUEUED,        Effect.NOTHING),
    Row(State.RECOVERING,    Trigger.STOP,           State.STOPPING,      Effect.RELEASE),
    Row(State.STOPPING,      Trigger.STOP,           State.STOPPING,      Effect.NOTHING),
    Row(State.STOPPING,      Trigger.NODES_GONE,     None,                Effect.NOTHING),
)

OUTCOME: Final[Mapping[Reason, State]] = {
    Reason.DONE:                State.SUCCEEDED,
    Reason.CANCELLED_BY_USER:   State.CANCELLED,
    Reason.USER_ERROR:          State.FAILED,
    Reason.SETUP_FAILED:        State.FAILED,
    Reason.OUT_OF_MEMORY:       State.FAILED,
    Reason.INVALID:             State.FAILED,
    Reason.NO_CAPACITY:         State.FAILED,
    Reason.QUEUE_TIMEOUT:       State.FAILED,
    Reason.DOES_NOT_FIT:        State.FAILED,
    Reason.QUOTA:               State.FAILED,
    Reason.PROVIDER_AUTH:       State.FAILED,
    Reason.PROVIDER_PAYMENT:    State.FAILED,
    Reason.BUDGET_EXHAUSTED:    State.FAILED,
    Reason.DURATION_EXCEEDED:   State.FAILED,
    Reason.RECOVERY_EXHAUSTED:  State.FAILED,
    Reason.LEASE_EXPIRED:       State.FAILED,
}
# fmt: on

_BY_STATE_AND_TRIGGER: Final[Mapping[tuple[State, Trigger], Row]] = {(r.state, r.trigger): r for r in TABLE}


class IllegalTransition(Exception):
    """A trigger that the job's state does not take."""

    def __init__(self, state: State, trigger: Trigger) -> None:
        super().__init__(f"a job that is {state} takes no {trigger}")
        self.state = state
        self.trigger = trigger


def follow(state: State, trigger: Trigger, reason: Reason | None = None) -> tuple[State, Effect]:
    """Where a job in `state` goes on `trigger`, and the effect.

    Args:
        reason: the stop reason that the job carries; decides the terminal state on `NODES_GONE`.

    Raises:
        IllegalTransition: the table has no such row, or `NODES_GONE` came without a stop reason.
    """
    row = _BY_STATE_AND_TRIGGER.get((state, trigger))
    if row is None or (row.target is None and reason is None):
        raise IllegalTransition(state, trigger)
    if row.target is not None:
        return row.target, row.effect
    assert reason is not None
    return OUTCOME[reason], row.effect


def is_terminal(state: State) -> bool:
    """Whether the state is final."""
    return state in TERMINAL_STATES
