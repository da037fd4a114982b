"""A program that asks to be started again (exit code 75) though nothing here stopped it, or that hung, or crashed.

It may: its time on the node was over, and it saved; or a collective stuck once; or the node's memory is bad. One that
does so again and again without saving goes round in a circle.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from shunter_workers.view import View, after

EXIT_CODE: Final = 75
"""EX_TEMPFAIL."""
ONCE_MORE: Final = frozenset({"hang", "crash"})
"""A rank that hung, or ended itself by a signal such as SIGSEGV: perhaps the node's fault, perhaps the program's."""
IN_VAIN: Final = 3
"""So many starts in a row that ask for another one, and leave no checkpoint, are one too many."""
STORED_WITHIN_S: Final = 60.0
"""What the last one saved is told later than its end."""


def asks(view: View) -> bool:
    """Whether the gang ended since a rank of it asks to be started again, or hung, or crashed."""
    verdict = view.verdict
    return verdict.reason in ONCE_MORE or (verdict.reason == "interrupted" and verdict.exit_code == EXIT_CODE)


def in_vain(view: View) -> list[int]:
    """The generations that asked and have saved nothing since the newest checkpoint, this one last."""
    saved = view.checkpoint.generation if view.checkpoint is not None else 0
    return [generation for generation in (*view.memory.asks, view.job.generation) if generation > saved]


def still_stores(view: View, now: datetime) -> bool:
    """Whether the node that asks may still have a checkpoint to tell of."""
    node = next((facts for facts in view.gang.nodes if facts.node_id == view.verdict.node_id), None)
    if node is None or node.drained or node.lost or node.ended_at is None:
        return False
    return now < after(node.ended_at, STORED_WITHIN_S)
