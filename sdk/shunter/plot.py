"""A curve drawn with characters: eight dots to a cell where the terminal knows Braille, one where it does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

_DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a Braille character by column and row."""
_LABEL_WIDTH: Final = 9
_NARROWEST: Final = 30


@dataclass(frozen=True, slots=True)
class Curve:
    """What is drawn: points by growing x, and x values that get a mark below."""

    title: str
    xs: Sequence[float]
    ys: Sequence[float]
    marks: Sequence[float] = field(default=())


def draw(curve: Curve, *, width: int = 80, height: int = 12, log: bool = False, braille: bool = True) -> list[str]:
    """The curve as lines of at most `width` characters: a title, the plot with its scale, the x axis.

    Args:
        log: a logarithmic scale; points at or below 0 are left out.
    """
    points = [(x, y) for x, y in zip(curve.xs, curve.ys, strict=True) if math.isfinite(y) and (y > 0 or not log)]
    if not points:
        return [f"{curve.title}: no points"]
    scaled = [(x, math.log10(y) if log else y) for x, y in points]
    columns = max(width, _NARROWEST) - _LABEL_WIDTH - 2
    canvas = _Canvas(columns, height, braille=braille)
    xs = _Scale(min(x for x, _ in scaled), max(x for x, _ in scaled), canvas.width_dots - 1)
    ys = _Scale(min(y for _, y in scaled), max(y for _, y in scaled), canvas.height_dots - 1)
    dots = [(xs.place(x), canvas.height_dots - 1 - ys.place(y)) for x, y in scaled]
    for start, end in zip(dots, [*dots[1:], dots[-1]], strict=True):
        canvas.line(start, end)
    last = points[-1]
    title = f"{curve.title}: {_short(last[1])} at {_short(last[0])}, {_extremes(points)}{', log scale' if log else ''}"
    return [title, *_framed(canvas.rows(), ys, log=log), *_axis(curve, xs, columns, braille=braille)]


class _Scale:
    """From values to dots."""

    def __init__(self, low: float, high: float, dots: int) -> None:
        self.low, self.high, self._dots = low, high, dots

    def place(self, value: float) -> int:
        if self.high == self.low:
            return self._dots // 2
        return round((value - self.low) / (self.high - self.low) * self._dots)

    def at(self, share: float) -> float:
        """The value at a share of the way up."""
        return self.low + share * (self.high - self.low)


class _Canvas:
    def __init__(self, columns: int, rows: int, *, braille: bool) -> None:
        self._braille = braille
        self._across, self._down = (2, 4) if braille else (1, 1)
        self._cells = [[0] * columns for _ in range(rows)]
        self.width_dots, self.height_dots = columns * self._across, rows * self._down

    def line(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Every dot from one place to another."""
        steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
        for step in range(steps + 1):
            x = round(start[0] + (end[0] - start[0]) * step / steps)
            y = round(start[1] + (end[1] - start[1]) * step / steps)
            bit = _DOTS[x % self._across][y % self._down] if self._braille else 1
            self._cells[y // self._down][x // self._across] |= bit

    def rows(self) -> list[str]:
        def char(cell: int) -> str:
            return (chr(0x2800 + cell) if self._braille else "*") if cell else " "

        return ["".join(map(char, row)) for row in self._cells]


def _framed(rows: list[str], ys: _Scale, *, log: bool) -> list[str]:
    middle = len(rows) // 2
    labels = {middle: 1.0 - middle / max(len(rows) - 1, 1)}
    labels |= {0: 1.0, len(rows) - 1: 0.0} if ys.high > ys.low else {}
    lines = []
    for index, row in enumerate(rows):
        label = ""
        if index in labels:
            value = ys.at(labels[index])
            label = _short(10**value if log else value)
        lines.append(f"{label:>{_LABEL_WIDTH}} |{row}".rstrip())
    return lines


def _axis(curve: Curve, xs: _Scale, columns: int, *, braille: bool) -> list[str]:
    axis = ["-"] * columns
    dots = columns * (2 if braille else 1) - 1
    for mark in curve.marks:
        if xs.low <= mark <= xs.high and xs.high > xs.low:
            axis[round((mark - xs.low) / (xs.high - xs.low) * dots) * columns // (dots + 1)] = "^"
    first, last = _short(xs.low), _short(xs.high)
    margin = " " * _LABEL_WIDTH
    return [f"{margin} +{''.join(axis)}", f"{margin}  {first}{last:>{columns - len(first)}}"]


def _extremes(points: Sequence[tuple[float, float]]) -> str:
    low, high = min(points, key=lambda point: point[1]), max(points, key=lambda point: point[1])
    return f"least {_short(low[1])} at {_short(low[0])}, most {_short(high[1])} at {_short(high[0])}"


def _short(value: float) -> str:
    if value == int(value) and abs(value) < 1e7:
        return str(int(value))
    return f"{value:.4g}"
