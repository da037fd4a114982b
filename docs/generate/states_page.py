"""The state machine, from its two tables."""

from __future__ import annotations

from shunter_schemas.reasons import MEANINGS
from shunter_schemas.states import State
from shunter_store.job.lifecycle import OUTCOME, TABLE, Effect
from tables import table

_HEAD = """# States of a job

A job ends when its nodes are proven gone, never before: every way out passes through `stopping`. Clients that want the
result and not the release wait for `outcome`, which is fixed together with the reason.
"""

_TRUE: dict[State, str] = {
    State.QUEUED: "accepted and durable; waits for a plan and for capacity, or is paused (`waiting` says why)",
    State.PROVISIONING: "its nodes are being made, as one gang",
    State.STARTING: "nodes fetch source and inputs, install the environment, start the ranks",
    State.RUNNING: "every rank runs",
    State.RECOVERING: "a node or rank was lost: the gang is made whole and goes on from the last checkpoint; "
    "or a pause was asked for: it is checkpointed and every node let go",
    State.STOPPING: "how it ends is fixed; checkpoint, artifacts and logs are collected, nodes are released",
    State.SUCCEEDED: "every rank ended with 0; final",
    State.FAILED: "it could not be done; `reason` says why; final",
    State.CANCELLED: "somebody asked for it; final",
}


def text() -> str:
    """The page."""
    states = ((f"`{state}`", _TRUE[state]) for state in State)
    moves = (
        (f"`{row.state}`", f"`{row.trigger}`", f"`{row.target}`" if row.target else "by reason", _effect(row.effect))
        for row in TABLE
    )
    reasons = ((f"[`{reason}`](reasons/{reason}.md)", f"`{end}`", *MEANINGS[reason]) for reason, end in OUTCOME.items())
    parts = [
        _HEAD,
        *table(("state", "what is true"), states),
        "\n## Drawn\n",
        "![The states of a job, and what leads from one to another](images/states.svg)\n",
        "## What leads where\n",
        *table(("in", "on", "goes to", "then"), moves),
        "\n## Reasons\n\nThe first reason to stop wins, and decides how the job ends. The list is open: it may grow.\n",
        *table(("reason", "ends", "meaning", "way out"), reasons),
    ]
    return "\n".join(parts) + "\n"


def _effect(effect: Effect) -> str:
    return "" if effect is Effect.NOTHING else str(effect)
