"""The state machine, from its two tables."""

from __future__ import annotations

from collections.abc import Iterator

from shunter_schemas.states import Reason, State
from shunter_store.lifecycle import OUTCOME, TABLE, Effect
from tables import table

_HEAD = """# States of a job

A job ends when its nodes are proven gone, never before: every way out passes through `stopping`. Clients that want the
result and not the release wait for `outcome`, which is fixed together with the reason.
"""

_TRUE: dict[State, str] = {
    State.QUEUED: "accepted and durable; waits for a plan and for capacity (`waiting` says why)",
    State.PROVISIONING: "its nodes are being made, as one gang",
    State.STARTING: "nodes fetch source and inputs, install the environment, start the ranks",
    State.RUNNING: "every rank runs",
    State.RECOVERING: "a node or rank was lost; the gang is made whole and goes on from the last checkpoint",
    State.STOPPING: "how it ends is fixed; checkpoint, artifacts and logs are collected, nodes are released",
    State.SUCCEEDED: "every rank ended with 0; final",
    State.FAILED: "it could not be done; `reason` says why; final",
    State.CANCELLED: "somebody asked for it; final",
}

_MEANING: dict[Reason, str] = {
    Reason.DONE: "every rank ended with exit code 0",
    Reason.CANCELLED_BY_USER: "a user asked for the end",
    Reason.USER_ERROR: "the program failed; `message` holds the first failing rank's last lines",
    Reason.SETUP_FAILED: "source, inputs, requirements or set-up commands failed on a node",
    Reason.OUT_OF_MEMORY: "a rank ran out of memory",
    Reason.INVALID: "the provider refused the request as wrong",
    Reason.NO_CAPACITY: "no provider has what it needs",
    Reason.QUEUE_TIMEOUT: "it waited longer than `limits.max_queue_s`",
    Reason.DOES_NOT_FIT: "it can never fit on any configured provider",
    Reason.QUOTA: "the account's quota does not allow it",
    Reason.PROVIDER_AUTH: "the provider refused the credentials",
    Reason.PROVIDER_PAYMENT: "the provider wants money first",
    Reason.BUDGET_EXHAUSTED: "it would cost more than its limits allow",
    Reason.DURATION_EXCEEDED: "it ran longer than `limits.max_duration_s`",
    Reason.RECOVERY_EXHAUSTED: "more recoveries than `recovery` allows",
    Reason.LEASE_EXPIRED: "its nodes heard nothing from the service for longer than their lease",
}


def text() -> str:
    """The page."""
    states = ((f"`{state}`", _TRUE[state]) for state in State)
    moves = (
        (f"`{row.state}`", f"`{row.trigger}`", f"`{row.target}`" if row.target else "by reason", _effect(row.effect))
        for row in TABLE
    )
    reasons = ((f"`{reason}`", f"`{end}`", _MEANING[reason]) for reason, end in OUTCOME.items())
    parts = [
        _HEAD,
        *table(("state", "what is true"), states),
        "\n## Drawn\n\n```mermaid",
        *_drawing(),
        "```\n\n## What leads where\n",
        *table(("in", "on", "goes to", "then"), moves),
        "\n## Reasons\n\nThe first reason to stop wins, and decides how the job ends. The list is open: it may grow.\n",
        *table(("reason", "ends", "meaning"), reasons),
    ]
    return "\n".join(parts) + "\n"


def _effect(effect: Effect) -> str:
    return "" if effect is Effect.NOTHING else str(effect)


def _drawing() -> Iterator[str]:
    yield "stateDiagram-v2"
    yield "    [*] --> queued"
    for row in TABLE:
        if row.target is not None and row.target is not row.state:
            yield f"    {row.state} --> {row.target}: {row.trigger}"
    for end in dict.fromkeys(OUTCOME.values()):
        yield f"    stopping --> {end}: nodes_gone"
        yield f"    {end} --> [*]"
