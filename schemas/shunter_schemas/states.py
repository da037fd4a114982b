"""The closed list of job states and the open list of reasons, for programs and for people."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a job is. A terminal state is reached only when every node is proven gone."""

    QUEUED = "queued"
    PROVISIONING = "provisioning"
    STARTING = "starting"
    RUNNING = "running"
    RECOVERING = "recovering"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL_STATES: frozenset[State] = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})
LIVE_STATES: frozenset[State] = frozenset(State) - TERMINAL_STATES


class Reason(StrEnum):
    """Why a job stopped or stops. The first reason wins; `shunter_store.job.lifecycle.OUTCOME` maps each to its end."""

    DONE = "done"
    CANCELLED_BY_USER = "cancelled_by_user"
    USER_ERROR = "user_error"
    SETUP_FAILED = "setup_failed"
    OUT_OF_MEMORY = "out_of_memory"
    INVALID = "invalid"
    NO_CAPACITY = "no_capacity"
    QUEUE_TIMEOUT = "queue_timeout"
    DOES_NOT_FIT = "does_not_fit"
    QUOTA = "quota"
    PROVIDER_AUTH = "provider_auth"
    PROVIDER_PAYMENT = "provider_payment"
    BUDGET_EXHAUSTED = "budget_exhausted"
    DURATION_EXCEEDED = "duration_exceeded"
    RECOVERY_EXHAUSTED = "recovery_exhausted"
    LEASE_EXPIRED = "lease_expired"


class Health(StrEnum):
    """A condition beside the state: being out of reach is never a failure by itself."""

    OK = "ok"
    UNREACHABLE = "unreachable"


class NodeState(StrEnum):
    """Where a row of the node ledger is. A row closes (`gone`) only on proof of absence."""

    INTENDED = "intended"
    CREATING = "creating"
    UNKNOWN = "unknown"
    BOOTING = "booting"
    READY = "ready"
    RELEASING = "releasing"
    GONE = "gone"


class FailureClass(StrEnum):
    """Who has to do something about a failure; decides what the service does next."""

    USER = "user"
    NODE = "node"
