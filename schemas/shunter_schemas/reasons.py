"""What each reason means, and the way out of it: for the pages, and for `shunter why`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from shunter_schemas.states import Reason


class Meaning(NamedTuple):
    """`meaning` goes on from "because" or stands alone; `way_out` is what a user does next, empty where nothing is."""

    meaning: str
    way_out: str = ""


MEANINGS: Final[Mapping[Reason, Meaning]] = {
    Reason.DONE: Meaning("every rank ended with exit code 0"),
    Reason.CANCELLED_BY_USER: Meaning("a user asked for the end", "submit the same document again to run it anew"),
    Reason.USER_ERROR: Meaning(
        "the program failed; the last lines of the first rank that failed say how",
        "mend the program and submit it again; `recovery.user_restarts` starts it again by itself",
    ),
    Reason.SETUP_FAILED: Meaning(
        "source, inputs, requirements or set-up commands failed on a node",
        "the set-up's output (rank -1) names the command that failed",
    ),
    Reason.OUT_OF_MEMORY: Meaning(
        "a rank ran out of memory",
        "use a smaller `batch.micro_size`, `activation_checkpointing`, a strategy that splits more, or larger GPUs",
    ),
    Reason.INVALID: Meaning(
        "the provider refused the request as wrong, or the job's own image cannot run on its nodes",
        "the message says why, in the words of who refused it; change `resources`, `placement` or `environment.image`",
    ),
    Reason.NO_CAPACITY: Meaning(
        "no provider has what it needs",
        "allow more GPU models, regions or providers, or wait with `limits.max_queue_s`",
    ),
    Reason.QUEUE_TIMEOUT: Meaning(
        "it waited longer than `limits.max_queue_s`", "raise `limits.max_queue_s`, or ask for less in `resources`"
    ),
    Reason.DOES_NOT_FIT: Meaning(
        "it can never fit on any configured provider",
        "ask for less in `resources`; `shunter providers` shows what there is",
    ),
    Reason.QUOTA: Meaning("the account's quota does not allow it", "ask the provider for more, or use another one"),
    Reason.PROVIDER_AUTH: Meaning(
        "the provider refused the credentials", "the operator renews them; `shunter providers` shows the refusal"
    ),
    Reason.PROVIDER_PAYMENT: Meaning("the provider wants money first", "the operator tops up the provider's account"),
    Reason.BUDGET_EXHAUSTED: Meaning(
        "it would cost more than its limits allow", "raise `limits.max_cost_usd` and go on from the last checkpoint"
    ),
    Reason.DURATION_EXCEEDED: Meaning(
        "it ran longer than `limits.max_duration_s`, or surely would",
        "raise `limits.max_duration_s`, and go on from the last checkpoint where there is one",
    ),
    Reason.RECOVERY_EXHAUSTED: Meaning(
        "more recoveries than `recovery` allows",
        "the events say which nodes were lost and why; place it elsewhere, or raise `recovery.node_recoveries`",
    ),
    Reason.LEASE_EXPIRED: Meaning(
        "its nodes heard nothing from the service for longer than their lease",
        "go on from the last checkpoint once the service is back for good",
    ),
}


def meaning(reason: str) -> Meaning:
    """The words for a reason of the open list; an unknown one stands for itself."""
    try:
        return MEANINGS[Reason(reason)]
    except (ValueError, KeyError):
        return Meaning(reason.replace("_", " "))
