"""Arguments that several commands take, and what a shell completes for them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

_COMPLETED_JOBS = 30
_COMPLETION_TIMEOUT_S = 2.0


def complete_job(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The newest jobs whose ids begin so, each with its name and state; nothing where no service answers."""
    from itertools import islice

    from shunter.client import Client
    from shunter.errors import ShunterError
    from shunter.retries import Retries

    given = context.params
    try:
        with Client(
            given.get("url"),
            given.get("api_key"),
            data_dir=given.get("data_dir"),
            timeout_s=_COMPLETION_TIMEOUT_S,
            retries=Retries(tries=1),
        ) as client:
            newest = list(islice(client.list(page_size=_COMPLETED_JOBS), _COMPLETED_JOBS))
    except ShunterError:
        return []
    return [(job.id, f"{job.name} {job.state}") for job in newest if job.id.startswith(incomplete)]


def complete_state(incomplete: str) -> list[str]:
    """The states that begin so."""
    from shunter_schemas.states import State

    return [str(state) for state in State if state.startswith(incomplete)]


JobId = Annotated[
    str, typer.Argument(metavar="ID", help="The job's id.", show_default=False, autocompletion=complete_job)
]
JobIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="The jobs' ids.", show_default=False, autocompletion=complete_job),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Change the document, e.g. workload.batch.global_size=64. Repeatable."
    ),
]
Source = Annotated[
    Path | None, typer.Option("--source", metavar="DIR", help="Send this folder as the document's source.")
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Follow the job to its end; exit by how it ended.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the document that would be submitted, and send nothing.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
SetLabels = Annotated[
    list[str] | None,
    typer.Option("--label", "-l", metavar="NAME=VALUE", help="Set a label; NAME- takes it away. Repeatable."),
]
Priority = Annotated[str | None, typer.Option("--priority", help="low, normal or high.")]
Limits = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="NAME=VALUE", help="Set a limit, e.g. max_duration_s=7200; NAME- lifts it."),
]


def labels_of(given: Iterable[str]) -> dict[str, str | None]:
    """Labels to set, and those to take away as None."""
    return dict(_pair(text, "--label") for text in given)


def limits_of(given: Iterable[str]) -> dict[str, float | None]:
    """Limits to set, and those to lift as None."""
    limits = dict[str, float | None]()
    for text in given:
        name, value = _pair(text, "--limit")
        limits[name] = None if value is None else _number(value)
    return limits


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):  # JSON has no word for the others
        raise typer.BadParameter(f"{text!r} is not a number", param_hint="--limit")
    return value


def _pair(text: str, option: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if equals and name:
        return name, value
    if not equals and len(text) > 1 and text.endswith("-"):
        return text[:-1], None
    raise typer.BadParameter(f"{text!r} is neither NAME=VALUE nor NAME-", param_hint=option)
