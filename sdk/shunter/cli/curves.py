"""`metrics`: a job's metrics as curves on the terminal, as rows, or as CSV."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from shunter.cli.arguments import JobId
from shunter.cli.command import Context, command

if TYPE_CHECKING:
    from shunter_schemas.api import MetricSeries

    from shunter.metrics import Metrics

Names = Annotated[
    list[str] | None,
    typer.Option("--name", "-n", help="This metric. Repeatable. Default: the losses, or all where there are none."),
]
All = Annotated[bool, typer.Option("--all", help="Every metric.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV: a row for each step, every point.")]
FromStep = Annotated[int | None, typer.Option("--from-step", min=0, help="The first step.")]
ToStep = Annotated[int | None, typer.Option("--to-step", min=0, help="The last step.")]
Log = Annotated[bool, typer.Option("--log", help="A logarithmic scale.")]
Height = Annotated[int, typer.Option("--height", min=3, max=60, help="Lines of each curve.")]

_LOSSES: Final = ("loss", "val_loss")
_WIDEST: Final = 120


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "metrics", panel="What jobs report and leave")(metrics)


def metrics(
    context: Context,
    job_id: JobId,
    names: Names = None,
    every: All = False,
    csv: Csv = False,
    from_step: FromStep = None,
    to_step: ToStep = None,
    log: Log = False,
    height: Height = 12,
) -> None:
    """Draw a job's losses and other metrics by step."""
    from shunter.cli import output

    width = min(shutil.get_terminal_size().columns, _WIDEST)
    points = None if csv or context.as_json else 2 * width
    with context.client() as client:
        found = client.metrics(job_id, names=names or (), from_step=from_step, to_step=to_step, max_points=points)
    if context.as_json:
        output.print_json(found)
    elif csv:
        _print_csv(found)
    elif not found.series:
        output.say("no metrics yet" if not names else f"no metric named {' or '.join(names)}")
    else:
        _print_curves(found, _chosen(found, every=every or bool(names)), width=width, height=height, log=log)


def _chosen(found: Metrics, *, every: bool) -> list[MetricSeries]:
    losses = [series for series in found.series if series.name in _LOSSES]
    return losses if losses and not every else list(found.series)


def _print_curves(found: Metrics, series: list[MetricSeries], *, width: int, height: int, log: bool) -> None:
    from shunter.plot import Curve, draw

    restarts = [mark.step for mark in found.marks if mark.kind == "generation" and mark.generation > 1]
    braille = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    for number, one in enumerate(series):
        if number:
            print()
        curve = Curve(one.name, one.steps, one.values, restarts)
        print("\n".join(draw(curve, width=width, height=height, log=log, braille=braille)))
    if restarts:
        print(f"\n^ started again: {', '.join(f'at step {step}' for step in restarts)}")
    others = sorted({each.name for each in found.series} - {each.name for each in series})
    if others:
        print(f"\nalso: {', '.join(others)} (--name NAME, --all)")


def _print_csv(found: Metrics) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    columns = ["step", *found.columns()]
    writer.writerow(columns)
    for row in found.rows():
        writer.writerow(["" if row[column] is None else row[column] for column in columns])
