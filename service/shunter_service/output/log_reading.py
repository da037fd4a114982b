"""What a request for output gets: a page of lines, or of those that hold a text, within bounds of time and bytes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from shunter_schemas.api import LogLine, LogPage

from shunter_service.context import Service
from shunter_service.output.log_index import Selection
from shunter_service.output.log_pages import Budget, Found, Window, cost_of, find_page, read_page
from shunter_service.output.log_text import Needle

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
    """The page. It holds fewer lines than were asked for when they are long or, with a needle, few and far between.

    What does not fit is left out behind `next_line`; with `tail` before `first_line`, so that such a page always
    reaches the end, or `before`: whoever reads backwards misses nothing.
    """
    reading = _Reading(service, selection, budget or Budget(), asked.needle)
    if asked.tail is None:
        return await (reading.search(asked) if asked.needle else reading.page(Window(asked.line, asked.limit)))
    return await reading.back(asked.tail, asked.before)


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

    async def back(self, wanted: int, before: int | None) -> LogPage:
        """Block by block towards the beginning; each block forwards, and to its end."""
        kept: deque[LogLine] = deque()
        room = self.budget.answer_bytes
        size = _FIRST_BLOCK_LINES if self.needle else min(wanted, _FIRST_BLOCK_LINES)
        window = _last_of(size, before)
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
            lowest = 1 if self.needle else max(1, (before or newest.next_line) - wanted)
            if len(kept) == wanted or first <= lowest or time.monotonic() > self.budget.until:
                return _page(kept, newest, first_line=first)
            if time.monotonic() - began < _QUICK_S:
                size = min(2 * size, _SEARCH_LINES)
            window = _last_of(min(size, first - lowest), first)

    async def _block(self, window: Window) -> tuple[deque[LogLine], int, Found]:
        """What a whole window holds, or as much of its end as fits an answer; where that begins, and how it ends."""
        found = await self._window(window, Budget())
        lines, first, room = deque[LogLine](), found.first_line, self.budget.answer_bytes
        behind = found.total + 1 if window.first_line is None else window.first_line + window.count
        while True:
            for line in found.lines:
                lines.append(line)
                room -= cost_of(line)
            while room < 0 and len(lines) > 1:
                left_out = lines.popleft()
                room += cost_of(left_out)
                first = left_out.line + 1
            if found.next_line >= min(behind, found.total + 1):
                return lines, first, found
            found = await self._window(Window(found.next_line, behind - found.next_line), Budget())

    async def _window(self, window: Window, budget: Budget | None = None) -> Found:
        index = await self.service.db.aread(lambda conn: find_page(conn, self.selection, window))
        bounds = budget or self.budget
        return await self.service.transfers.run(lambda: read_page(self.service.objects, index, bounds, self.needle))


def _last_of(size: int, before: int | None) -> Window:
    """The last lines, of all or of those before one."""
    if before is None:
        return Window(None, size)
    first = max(1, before - size)
    return Window(first, before - first)


def _page(lines: Iterable[LogLine], found: Found, *, first_line: int | None = None) -> LogPage:
    return LogPage(
        items=tuple(lines),
        lines_total=found.total,
        first_line=found.first_line if first_line is None else first_line,
        next_line=found.next_line if first_line is None else min(found.next_line, found.total + 1),
        ended=found.ended,
    )
