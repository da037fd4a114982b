"""A plan as lines for people: the chosen run, a bar of its memory, time and money with their intervals, the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from shunter_schemas.api import PlanAnswer, PlannedCost, PlannedMemory, PlannedRun, PlannedTime, RejectedOffer

from shunter.cli.output import clock
from shunter.display import duration

_BAR: Final = 60
_MARKS: Final = {
    "parameters": "P",
    "gradients": "G",
    "optimizer": "O",
    "working": "W",
    "activations": "A",
    "logits": "L",
    "fragmentation": "f",
    "runtime": "r",
}
_SHOWN: Final = 8
"""Rejections that are shown without `-o wide`."""
_LABEL: Final = 12


def plan_lines(answer: PlanAnswer, *, wide: bool = False) -> list[str]:
    """Everything that the answer says; `wide`: every rejection that it has."""
    lines = _refused(answer) if answer.chosen is None else list(_chosen(answer.chosen))
    lines += [_fact("note", note) for note in answer.notes]
    if answer.alternatives:
        lines += ["", "alternatives", *_table(answer.alternatives)]
    lines += _rejected(answer, wide=wide)
    looked = f"{answer.offers} offers"
    as_of = f" as of {clock(answer.as_of)}" if answer.as_of else ""
    until = f", good until {clock(answer.expires_at)}" if answer.expires_at else ""
    return [*lines, "", f"{looked}{as_of}{until}"]


def memory_bar(memory: PlannedMemory, width: int = _BAR) -> str:
    """`[PPPGGGOOOOOOWAAAA....]`: the parts in proportion to what the GPU has, in the order in which they are named."""
    whole = max(memory.need_gib, memory.available_gib or 0.0) or 1.0
    drawn, filled, total = "", 0.0, 0
    for name, size in memory.parts_gib.items():
        filled += size
        upto = round(width * filled / whole)
        drawn += _MARKS.get(name, "?") * (upto - total)
        total = upto
    return f"[{drawn.ljust(width, '.')}]"


def _chosen(run: PlannedRun) -> Iterator[str]:
    yield _fact("strategy", f"{_strategy(run)}  ({run.why})")
    where = " ".join(part for part in (run.provider, run.instance_type, run.region) if part)
    gpus = f"{run.gpu_model}, " if run.gpu_model else ""
    yield _fact("where", f"{where}  ({gpus}{_ranks(run)}, {run.capacity})")
    if run.micro_size is not None:
        recompute = f", activation checkpointing {run.activation_checkpointing}" if run.activation_checkpointing else ""
        yield _fact("batch", f"{run.micro_size} samples x {run.accumulation} passes a rank{recompute}")
    if run.memory is not None:
        yield from _memory(run.memory)
    if run.time is not None:
        yield from _time(run.time)
    yield from _cost(run.cost)


def _memory(memory: PlannedMemory) -> Iterator[str]:
    of = f" of {memory.available_gib:.1f}" if memory.available_gib else ""
    yield _fact("memory", f"{memory.need_gib:.1f}{of} GiB a rank")
    yield _fact("", memory_bar(memory))
    parts = (f"{_MARKS.get(name, '?')} {name} {size:.1f}" for name, size in memory.parts_gib.items() if size >= 0.05)
    yield _fact("", ", ".join(parts))
    if memory.host_gib:
        yield _fact("", f"and {memory.host_gib:.1f} GiB of main memory a rank")


def _time(time: PlannedTime) -> Iterator[str]:
    mfu = f", MFU {100 * time.mfu:.0f} %" if time.mfu is not None else ""
    yield _fact("speed", f"{time.step_s:.3g} s a step, {time.tokens_per_s:,.0f} tokens/s{mfu}")
    if time.duration_s is not None and time.low_s is not None and time.high_s is not None:
        span = f"{duration(time.low_s)} to {duration(time.high_s)}"
        steps = f"{time.steps:,} steps, {duration(time.start_up_s)} to start up"
        yield _fact("time", f"{duration(time.duration_s)}  ({span}; {steps})")


def _cost(cost: PlannedCost) -> Iterator[str]:
    if cost.usd is None or cost.low_usd is None or cost.high_usd is None:
        yield _fact("cost", f"{cost.usd_per_hour:.2f} USD an hour")
        return
    span = f"{cost.low_usd:.2f} to {cost.high_usd:.2f}"
    yield _fact("cost", f"{cost.usd:.2f} USD  ({span}; {cost.usd_per_hour:.2f} USD an hour)")
    parts = [f"{name.replace('_', ' ')} {usd:.2f}" for name, usd in cost.parts_usd.items() if usd >= 0.005]
    if cost.usd_per_million_tokens:
        parts.append(f"{cost.usd_per_million_tokens:.3g} a million tokens")
    if parts:
        yield _fact("", ", ".join(parts))


def _refused(answer: PlanAnswer) -> list[str]:
    refused = answer.refused
    if refused is None:
        return ["nothing takes this job"]
    head = "nothing takes this job" if refused.final else "nothing takes this job now; submitted, it would wait"
    return [f"{head} ({refused.reason})", f"  {refused.detail}"]


def _table(runs: Sequence[PlannedRun]) -> Iterator[str]:
    rows = [_row(run) for run in runs]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(run: PlannedRun) -> tuple[str, ...]:
    time = duration(run.time.duration_s) if run.time and run.time.duration_s is not None else ""
    cost = f"{run.cost.usd:.2f} USD" if run.cost.usd is not None else f"{run.cost.usd_per_hour:.2f} USD/h"
    need = f"{run.memory.need_gib:.1f} GiB" if run.memory else ""
    where = f"{run.provider} {run.instance_type}"
    return where, f"{_ranks(run)} {run.capacity}", _strategy(run), need, time, cost


def _rejected(answer: PlanAnswer, *, wide: bool) -> list[str]:
    if not answer.rejected:
        return []
    counts = ", ".join(f"{name} {count}" for name, count in sorted(answer.rejected_by.items()))
    shown = answer.rejected if wide else answer.rejected[:_SHOWN]
    more = sum(answer.rejected_by.values()) - len(shown)
    lines = ["", f"not taken ({counts})", *(f"  {_offer(entry)}: {entry.detail}" for entry in shown)]
    return [*lines, f"  and {more} more" + ("" if wide else ": -o wide shows more")] if more > 0 else lines


def _offer(entry: RejectedOffer) -> str:
    return " ".join(part for part in (entry.provider, entry.instance_type, entry.region) if part)


def _strategy(run: PlannedRun) -> str:
    kind = str(run.strategy.get("kind", ""))
    if kind != "deepspeed":
        return kind
    offload = " + offload" if run.strategy.get("offload_optimizer") == "cpu" else ""
    return f"zero-{run.strategy.get('zero_stage')}{offload}"


def _ranks(run: PlannedRun) -> str:
    return f"{run.num_nodes} x {run.ranks_per_node} ranks" if run.num_nodes > 1 else f"{run.ranks_per_node} ranks"


def _fact(name: str, text: str) -> str:
    return f"{name:<{_LABEL}}{text}"
