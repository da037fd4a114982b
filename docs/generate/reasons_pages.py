"""A page for each reason for which a job ends."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from shunter_schemas.reasons import MEANINGS
from shunter_schemas.states import Reason, State
from shunter_store.job.lifecycle import OUTCOME

_MORE: Mapping[Reason, str] = {
    Reason.DONE: "Artifacts, logs, metrics and checkpoints stay until the record is deleted: "
    "`shunter artifacts ID --download out`.",
    Reason.CANCELLED_BY_USER: "A training was given its grace for a last checkpoint before its ranks were killed, so "
    "`shunter retry ID` goes on where it stopped. The event of the cancel says which key asked for it.",
    Reason.USER_ERROR: "`shunter why ID` shows the last words of the rank that failed first; the ranks that fell with "
    "it usually only say that they lost it. `shunter logs ID --rank 1 --tail 100` shows more. A rank that ends with "
    "exit code 75 asks to be started again and does not end the job so, nor does one that hangs or "
    "crashes (SIGSEGV and the like), but for the third time in a row without a checkpoint in between.",
    Reason.SETUP_FAILED: "`shunter logs ID --rank -1` is the output of the set-up: sources, inputs, requirements, "
    "commands. Nothing of the training has run.",
    Reason.OUT_OF_MEMORY: "Seen by the exception of torch, or by the kernel's own count of what it killed. The message "
    "says what the plan had expected. A micro-batch that the plan chose is made smaller first; else the job is not "
    "started again by itself: it would fail again.",
    Reason.INVALID: "The provider was asked and will not change its mind, so it was not asked again.",
    Reason.NO_CAPACITY: "Every offer that fits was tried; `waiting.tried` of the job held each refusal while it "
    "waited, and the events keep them.",
    Reason.QUEUE_TIMEOUT: "Waiting counts from submission until the ranks first ran, without the time for "
    "which it was paused. `shunter why ID` of a job that waits says for whom.",
    Reason.DOES_NOT_FIT: "Not even an empty provider could run it, so waiting would not help.",
    Reason.QUOTA: "The provider's own words stand in the message.",
    Reason.PROVIDER_AUTH: "Nothing is wrong with the job. Nodes that exist are kept in the ledger until the provider "
    "can be asked again: a lost credential closes no row.",
    Reason.PROVIDER_PAYMENT: "Nothing is wrong with the job.",
    Reason.BUDGET_EXHAUSTED: "The last checkpoint was saved first; `shunter retry ID --limit max_cost_usd=…` goes on.",
    Reason.DURATION_EXCEEDED: "The last checkpoint was saved first; `shunter retry ID --limit max_duration_s=…` goes "
    "on. A running job's limit can be raised: `shunter update ID --limit max_duration_s=…`.",
    Reason.RECOVERY_EXHAUSTED: "Each attempt and how it ended: `shunter job ID`.",
    Reason.LEASE_EXPIRED: "Nodes stop by themselves when they hear nothing for their lease, so that nothing runs "
    "unwatched for ever. What they had written lies in the last checkpoint.",
}


def pages() -> Mapping[str, str]:
    """A page for each reason; fails when one has no words here."""
    if _MORE.keys() != set(Reason):
        raise SystemExit(f"docs/generate/reasons_pages.py differs in: {sorted(_MORE.keys() ^ set(Reason))}")
    return {f"{reason}.md": "\n".join(_page(reason)) for reason in Reason}


def _page(reason: Reason) -> Iterator[str]:
    meaning, end = MEANINGS[reason], OUTCOME[reason]
    yield f"# {reason}\n"
    yield f"The job has **{end}**: {meaning.meaning}.\n"
    if meaning.way_out:
        yield f"## The way out\n\n{meaning.way_out[0].upper()}{meaning.way_out[1:]}.\n"
    yield f"## More\n\n{_MORE[reason]}\n"
    shown = {"state": State.STOPPING, "outcome": end, "reason": reason}
    yield f"## In the job\n\nWhile its nodes are given back:\n\n```json\n{json.dumps(shown)}\n```\n"
    yield f"`GET /v1/reasons/{reason}` of the service answers this page too. [All reasons](../states.md#reasons)\n"
