"""Options that choose among jobs: the same for listing and for cancelling."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from shunter.cli.arguments import complete_state

if TYPE_CHECKING:
    from collections.abc import Sequence

_PANEL: Final = "Which jobs"
_UNITS_S: Final = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

States = Annotated[
    list[str] | None,
    typer.Option("--state", help="In this state. Repeatable.", rich_help_panel=_PANEL, autocompletion=complete_state),
]
LabelFilter = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        "-l",
        metavar="NAME[=VALUE]",
        help="With this label; with any value where none is given. Repeatable: all of them.",
        rich_help_panel=_PANEL,
    ),
]
Name = Annotated[
    str | None, typer.Option("--name", help="Of this name; `sweep-*`: that begins so.", rich_help_panel=_PANEL)
]
CreatedBy = Annotated[
    str | None, typer.Option("--created-by", metavar="KEY", help="Submitted by this key.", rich_help_panel=_PANEL)
]
OnProvider = Annotated[
    str | None, typer.Option("--provider", help="On this provider instance.", rich_help_panel=_PANEL)
]
CommitFilter = Annotated[
    str | None, typer.Option("--commit", help="Whose source is this commit.", rich_help_panel=_PANEL)
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="WHEN", help="Submitted since: 2h, 3d, 2026-11-30.", rich_help_panel=_PANEL),
]
Before = Annotated[
    str | None, typer.Option("--before", metavar="WHEN", help="Submitted before that.", rich_help_panel=_PANEL)
]


def filters_of(
    states: Sequence[str] | None,
    labels: Sequence[str] | None,
    name: str | None,
    created_by: str | None,
    provider: str | None,
    commit: str | None,
    since: str | None,
    before: str | None,
) -> dict[str, Any]:
    """What the options say, as `Client.list` and `Client.cancel_all` take it; what is not given is left out."""
    prefix = name.removesuffix("*") if name and name.endswith("*") else None
    found = {
        "states": states,
        "labels": labels,
        "name": None if prefix is not None else name,
        "name_prefix": prefix,
        "created_by": created_by,
        "provider": provider,
        "commit": commit,
        "created_after": moment_of(since, "--since"),
        "created_before": moment_of(before, "--before"),
    }
    return {option: value for option, value in found.items() if value}


def moment_of(text: str | None, option: str) -> datetime | None:
    """A span before now, or a date with or without a time (of this machine's zone unless it names one)."""
    if text is None:
        return None
    try:
        if span := re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)", text):
            return datetime.now(UTC) - timedelta(seconds=float(span[1]) * _UNITS_S[span[2]])
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):  # also spans that begin before the first year
        raise typer.BadParameter(f"{text!r} is neither a span such as 2h nor a date", param_hint=option) from None
