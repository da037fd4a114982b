"""What a request for output gets: a page of lines, or of those that hold a text, within bounds of time and bytes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from shunter_schemas.api import LogLine, LogPage

from shunter_service.context import Service
from shunter_service.log_index import Selection
from shunter_service.log_pages import Budget, Found, Window, cost_of, find_page, read_page
from shunter_service.log_text import Needle

_SEARCH_LINES: Final = 50_000
"""So many lines are looked up at once for a search."""
_FIRST_BLOCK_LINES: Final = 2_000
_QUICK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Asked:
    """Which lines: from `line` on, or the last `tail` ones, of the whole or of what stands before line `before`."""

    line: int = 1
    tail: int | None = None
    before: int | None = None
    limit: int = 1000
    needle: Needle | None = None


async def read(service: Service, selection: Selection, asked: Asked, budget: Budget | None = None) -> LogPage:
    """The page. It holds fewer lines than were asked for when they are long or, with a needle, few and far between."""
    reading = _Reading(service, selection, budget or Budget(), asked.needle)
    if asked.tail is None:
        return await (reading.search(asked) if asked.needle else reading.page(Window(asked.line, asked.limit)))
    if asked.needle is not None:
        return await reading.search_back(asked.tail, asked.before)
    if asked.before is None:
        return await reading.page(Window(None, asked.tail))
    first = max(1, asked.before - asked.tail)
    return await reading.page(Window(first, asked.before - first))


@dataclass(frozen=True, slots=True)
class _Reading:
    service: Service
    selection: Selection
    budget: Budget
    needle: Needle | None

    async def page(self, window: Window) -> LogPage:
        found = await self._window(window)
        return _page(found.lines, found)

    async def search(self, asked: Asked) -> LogPage:
        lines: list[LogLine] = []
        line = asked.line
        while True:
            found = await self._window(Window(line, _SEARCH_LINES))
            room = asked.limit - len(lines)
            lines += found.lines[:room]
            line = found.next_line
            if len(found.lines) >= room:
                line = min(line, lines[-1].line + 1)
            if len(lines) == asked.limit or line > found.total or self.budget.is_spent:
                ended = found.ended and line > found.total
                return LogPage(
                    items=tuple(lines), lines_total=found.total, first_line=asked.line, next_line=line, ended=ended
                )

    async def search_back(self, wanted: int, before: int | None) -> LogPage:
        """Block by block towards the beginning; each block forwards, and to its end."""
        kept: deque[LogLine] = deque()
        room = self.budget.answer_bytes
        size = _FIRST_BLOCK_LINES
        window = Window(None, size) if before is None else _block_before(before, size)
        newest: Found | None = None
        while True:
            began = time.monotonic()
            block, first, last = await self._block(window)
            newest = newest or last
            for line in reversed(block):
                room -= cost_of(line)
                if len(kept) == wanted or (kept and room < 0):
                    return _page(kept, newest, first_line=kept[0].line if kept else newest.total + 1)
                kept.appendleft(line)
            if len(kept) == wanted or first <= 1 or time.monotonic() > self.budget.until:
                return _page(kept, newest, first_line=first)
            if time.monotonic() - began < _QUICK_S:
                size = min(2 * size, _SEARCH_LINES)
            window = _block_before(first, size)

    async def _block(self, window: Window) -> tuple[list[LogLine], int, Found]:
        """What a whole window holds, where it began, and how its end was found."""
        found = await self._window(window, Budget())
        lines, first = found.lines, found.first_line
        behind = found.total + 1 if window.first_line is None else window.first_line + window.count
        while found.next_line < min(behind, found.total + 1):
            found = await self._window(Window(found.next_line, behind - found.next_line), Budget())
            lines = [*lines, *found.lines]
        return lines, first, found

    async def _window(self, window: Window, budget: Budget | None = None) -> Found:
        index = await self.service.db.aread(lambda conn: find_page(conn, self.selection, window))
        bounds = budget or self.budget
        return await self.service.transfers.run(lambda: read_page(self.service.objects, index, bounds, self.needle))


def _block_before(line: int, size: int) -> Window:
    first = max(1, line - size)
    return Window(first, line - first)


def _page(lines: Iterable[LogLine], found: Found, *, first_line: int | None = None) -> LogPage:
    return LogPage(
        items=tuple(lines),
        lines_total=found.total,
        first_line=found.first_line if first_line is None else first_line,
        next_line=found.next_line,
        ended=found.ended,
    )
