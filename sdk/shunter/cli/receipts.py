"""`receipt`: what a job cost and what for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from shunter.cli.arguments import JobId
from shunter.cli.command import Context, command

if TYPE_CHECKING:
    from shunter_schemas.api import Receipt, ReceiptPrediction


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "receipt", panel="Jobs")(receipt)


def receipt(context: Context, job_id: JobId) -> None:
    """Show what a job cost: by cause, by node, for a million tokens, and beside what was predicted."""
    from shunter.cli import output

    with context.client() as client:
        found = client.receipt(job_id)
    if context.as_json:
        output.print_json(found)
        return
    output.print_table(["CAUSE", "USD", "NODE HOURS", "PREDICTED USD"], list(_causes(found)), empty="")
    print()
    headings = ["NODE", "PROVIDER", "TYPE", "USD", "HOURS", "PLANNED USD/H", "BILLED USD/H"]
    output.print_table(headings, list(_nodes(found)), empty="it had no nodes")
    for line in _sentences(found):
        output.say(line)


def _causes(found: Receipt) -> Iterator[list[str]]:
    for one in found.causes:
        yield [one.cause, f"{one.usd:.6f}", f"{one.node_hours:.4f}", _usd(one.predicted_usd)]
    predicted = found.predicted.usd if found.predicted else None
    yield ["total", f"{found.usd:.6f}", f"{found.node_hours:.4f}", _usd(predicted)]


def _nodes(found: Receipt) -> Iterator[list[str]]:
    for node in found.nodes:
        rates = [_usd(node.planned_usd_per_hour), _usd(node.billed_usd_per_hour)]
        place = [node.token, node.provider, node.instance_type]
        yield [*place, f"{node.usd:.6f}", f"{node.node_hours:.4f}", *rates]


def _sentences(found: Receipt) -> Iterator[str]:
    if found.tokens is not None and found.usd_per_million_tokens is not None:
        tokens = f"{found.steps:,} steps, {found.tokens:,} tokens"
        told = found.predicted.usd_per_million_tokens if found.predicted else None
        expected = "" if told is None else f" (predicted {told:.4f})"
        yield f"{tokens}: {found.usd_per_million_tokens:.4f} USD a million{expected}"
    if found.predicted is not None:
        yield from _compared(found, found.predicted)
    if not found.final:
        from shunter.cli import output

        yield f"not final: it counts up to {output.clock(found.as_of)}"


def _compared(found: Receipt, predicted: ReceiptPrediction) -> Iterator[str]:
    if predicted.usd is not None and predicted.low_usd is not None and predicted.high_usd is not None:
        between = f"{predicted.low_usd:.2f} to {predicted.high_usd:.2f}"
        yield f"predicted {predicted.usd:.2f} USD ({between}) for a whole run; the ledger says {found.usd:.2f}"
    if found.usd_per_hour is not None and predicted.usd_per_hour is not None:
        yield f"planned at {predicted.usd_per_hour:.2f} USD an hour, billed at {found.usd_per_hour:.2f}"


def _usd(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:.2f}"
