"""`train_batch_size`, `train_micro_batch_size_per_gpu` and `gradient_accumulation_steps`, any of them given.

The first is the product of the other two and of the number of ranks that hold different data. DeepSpeed derives what is
missing, rounding down, and fails at the start of the training where that does not multiply up again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shunter_schemas.deepspeed.reading import AUTO, Finding, Setting, is_count, section
from shunter_schemas.deepspeed.tables import BATCH_KEYS

TOTAL, MICRO, STEPS = BATCH_KEYS


def batch_findings(document: Mapping[str, Any], setting: Setting) -> Iterator[Finding]:
    """Sizes that are no sizes, or do not multiply."""
    wrong = [name for name in BATCH_KEYS if not _is_size(document.get(name))]
    for name in wrong:
        yield Finding((name,), "must be a whole number above 0")
    ranks = _data_ranks(document, setting)
    if wrong or ranks is None or any(document.get(name) == AUTO for name in BATCH_KEYS):
        return
    yield from _product(document, ranks, setting.ranks)


def _product(document: Mapping[str, Any], ranks: int, place: str) -> Iterator[Finding]:
    total, micro, steps = (document.get(name) for name in BATCH_KEYS)
    if total is None:
        return
    on = f"{ranks} ranks ({place})"
    if micro is not None and steps is not None:
        product = micro * steps * ranks
        if total != product:
            detail = f"{total} is not `{MICRO}` {micro} x `{STEPS}` {steps} x {on}, which is {product}"
            yield Finding((TOTAL,), f"{detail}; use {product}, or leave one of the three out")
    elif micro is not None:
        yield from _divides(total, micro * ranks, f"`{MICRO}` {micro} x {on}")
    elif steps is not None:
        yield from _divides(total, steps * ranks, f"`{STEPS}` {steps} x {on}")
    else:
        yield from _divides(total, ranks, on)


def _divides(total: int, by: int, words: str) -> Iterator[Finding]:
    if total % by:
        below = total // by * by
        way_out = f"{below} or {below + by}" if below else str(by)
        yield Finding((TOTAL,), f"{total} does not divide by {words}, together {by}; use {way_out}")


def _data_ranks(document: Mapping[str, Any], setting: Setting) -> int | None:
    """Ranks that see different samples; None where it cannot be told."""
    if setting.world_size is None or section(document, "tensor_parallel").get("autotp_size", 0) not in (0, 1):
        return None
    sequence = document.get("sequence_parallel_size", 1)
    return setting.world_size // sequence if is_count(sequence) else None


def _is_size(value: Any) -> bool:
    return value is None or value == AUTO or is_count(value)
