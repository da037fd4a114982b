"""What commands print: results on standard output, everything said beside them on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel


def say(text: str) -> None:
    """A word beside the result."""
    print(text, file=sys.stderr, flush=True)


def print_json(model: BaseModel) -> None:
    """One answer of the service as one line of JSON."""
    print(model.model_dump_json(by_alias=True), flush=True)


def print_json_list(models: Iterable[BaseModel]) -> None:
    """Many answers as one JSON list."""
    print(f"[{','.join(model.model_dump_json(by_alias=True) for model in models)}]")


def print_data(data: Any) -> None:
    """Anything else as one line of JSON."""
    print(json.dumps(data), flush=True)


def print_document(document: Any) -> None:
    """A job document, for people and for a file."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> None:
    """Columns for people; on a pipe plain and never cut off."""
    lines = table_lines(headings, rows)
    if len(lines) == 1:
        say(empty)
    else:
        print("\n".join(lines))


def table_lines(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The headings and the rows in columns, a line each."""
    lines = [tuple(headings), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def in_bytes(size: float) -> str:
    """`1.2 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def age(moment: datetime | None) -> str:
    """`5 min ago`."""
    if moment is None:
        return "-"
    seconds = max(0.0, (datetime.now(UTC) - moment).total_seconds())
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def clock(moment: datetime | None) -> str:
    """The local time of day, to the second, with the date."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else "-"
