"""Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table; cells may hold any text."""
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(_cell(cell) for cell in row)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
