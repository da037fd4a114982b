"""`plan`: what would run where, how long, for how much, and why not the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shunter.cli.arguments import Settings, Source
from shunter.cli.codes import ExitCode
from shunter.cli.command import Context, command
from shunter.cli.documents import File

Offline = Annotated[
    bool, typer.Option("--offline", help="Ask no service: take the bundled prices, and no word on what is free.")
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The model's config.json, where it does not lie beside its weights."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "plan", panel="Documents")(plan)


def plan(
    context: Context,
    file: File,
    source: Source = None,
    settings: Settings = None,
    offline: Offline = False,
    config: Config = None,
) -> int:
    """Show what would become of a document: strategy, place, memory, time, cost. Submits and spends nothing.

    Exits with 1 when nothing takes it.
    """
    from shunter.cli import output
    from shunter.cli.plan_words import plan_lines
    from shunter.document import prepare
    from shunter.model_config import with_model_config

    document, base = prepare(file, source=source, settings=settings or ())
    document = with_model_config(document, base, config)
    if offline:
        from shunter.offline import plan_offline

        answer = plan_offline(document, base)
    else:
        with context.client() as client:
            answer = client.plan(document)
    if context.as_json:
        output.print_json(answer)
    else:
        print("\n".join(plan_lines(answer, wide=context.wide)))
    return ExitCode.SUCCEEDED if answer.chosen is not None else ExitCode.FAILED
