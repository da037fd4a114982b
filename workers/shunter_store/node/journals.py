"""Which journal speaks for a node, and up to which of its records everything is durable. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shunter_schemas.node_sync import Record, SyncRequest

from shunter_store.node.ledger_rows import NodeRow
from shunter_store.report.texts import clean_text

_LARGEST_SEQ: Final = 1 << 62
_LONGEST_JOURNAL_ID: Final = 100
_SILENT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Known:
    """What the row of a node says of its journals."""

    node: NodeRow
    past_journals: Mapping[str, int]
    gap_at: int | None
    silent_s: float | None
    """Since the journal that speaks for the node was heard; None: none was yet."""


@dataclass(slots=True)
class Cursor:
    """Up to which record of which journal everything is durable."""

    journal_id: str
    acknowledged: int
    past_journals: dict[str, int]
    gap_at: int | None = None
    current: bool = True
    """False: the journal is one that the agent gave up before, or a twin's; it cannot say how things stand."""
    fresh: list[Record] | None = None


def is_twin(node: NodeRow, request: SyncRequest) -> bool:
    """Whether this is another machine than the ledger's, made under the same token by a create that was sent twice."""
    return None not in (node.handle, request.handle) and node.handle != request.handle


def advance(known: Known, request: SyncRequest) -> Cursor:
    """Pick the records that are new, and move the cursor of their journal behind them."""
    cursor = _cursor_of(known, request)
    fresh = {record.seq: record for record in request.records if cursor.acknowledged < record.seq < _LARGEST_SEQ}
    if not fresh:
        return cursor
    first = min(fresh)
    if first > cursor.acknowledged + 1 and known.gap_at != first:
        # Ask once for what is missing before; what still does not come is lost, and waiting would lose the rest too.
        cursor.gap_at = first
        return cursor
    cursor.fresh = [fresh[seq] for seq in sorted(fresh)]
    cursor.acknowledged = max(fresh)
    if not cursor.current:
        cursor.past_journals[cursor.journal_id] = cursor.acknowledged
    return cursor


def _cursor_of(known: Known, request: SyncRequest) -> Cursor:
    """The newest journal speaks for the node: an agent that lost its own began another.

    An older one that is known to be the ledger's machine, or that alone is still heard, was pushed aside by a twin.
    """
    node, past = known.node, dict(known.past_journals)
    journal_id = clean_text(request.journal_id, _LONGEST_JOURNAL_ID)
    if journal_id == node.journal_id:
        return Cursor(journal_id, node.acknowledged, past)
    acknowledged = past.pop(journal_id, None)
    proven = request.handle is not None and request.handle == node.handle
    silent = known.silent_s is not None and known.silent_s > _SILENT_S
    if acknowledged is not None and not proven and not silent:
        past[journal_id] = acknowledged
        return Cursor(journal_id, acknowledged, past, current=False)
    if node.journal_id is not None:
        past[node.journal_id] = node.acknowledged
    return Cursor(journal_id, acknowledged or 0, past)
