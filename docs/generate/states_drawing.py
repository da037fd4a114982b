"""The state machine as an SVG, from its table: nothing has to be fetched to show it."""

from __future__ import annotations

import math
from typing import Final

from shunter_schemas.states import State
from shunter_store.job.lifecycle import OUTCOME, TABLE

_WIDTH, _HEIGHT = 900, 520
_HALF_WIDTH, _HALF_HEIGHT = 62, 20

_AT: Final = {
    State.QUEUED: (90, 60),
    State.PROVISIONING: (330, 60),
    State.STARTING: (570, 60),
    State.RUNNING: (810, 60),
    State.RECOVERING: (690, 220),
    State.STOPPING: (330, 350),
    State.SUCCEEDED: (120, 470),
    State.CANCELLED: (330, 470),
    State.FAILED: (540, 470),
}
_FILL: Final = {
    State.STOPPING: "#eceff1",
    State.RECOVERING: "#fff8e1",
    State.SUCCEEDED: "#e8f5e9",
    State.CANCELLED: "#eceff1",
    State.FAILED: "#fce4ec",
}
_HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-size="14"
  font-family="Helvetica, Arial, sans-serif" role="img" aria-labelledby="title">
  <title id="title">The states of a job, and what leads from one to another</title>
  <defs>
    <marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
      <path d="M0 0 10 5 0 10z" fill="#37474f"/>
    </marker>
  </defs>
  <rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>"""


def text() -> str:
    """The drawing; fails when a state has no place in it."""
    if _AT.keys() != set(State):
        raise SystemExit(f"docs/generate/states_drawing.py differs in: {sorted(_AT.keys() ^ set(State))}")
    moves = _moves()
    arrows = [_arrow(one, other) for one, other in moves]
    labels = [_label(*move, words, both_ways=move[::-1] in moves) for move, words in moves.items()]
    parts = ['<g fill="none" stroke="#37474f" stroke-width="1.4" marker-end="url(#head)">', *arrows, "</g>"]
    parts += ['<g stroke="#37474f" stroke-width="1.4">', *(_box(state) for state in State), "</g>"]
    parts += ['<g text-anchor="middle" fill="#102027" font-weight="bold">', *(_name(state) for state in State), "</g>"]
    parts += [
        '<g text-anchor="middle" fill="#263238" font-size="12" stroke="#ffffff" stroke-width="4" paint-order="stroke">',
        *labels,
        "</g>",
    ]
    return "\n".join([_HEAD, *(f"  {part}" for part in parts), "</svg>\n"])


def _moves() -> dict[tuple[State, State], str]:
    """From where to where, and on what."""
    found: dict[tuple[State, State], list[str]] = {}
    for row in TABLE:
        if row.target is not None and row.target is not row.state:
            found.setdefault((row.state, row.target), []).append(str(row.trigger))
    for end in dict.fromkeys(OUTCOME.values()):
        found[State.STOPPING, end] = ["nodes_gone"]
    return {move: ", ".join(dict.fromkeys(triggers)) for move, triggers in found.items()}


def _line(one: State, other: State) -> tuple[float, float, float, float]:
    """From border to border."""
    (x1, y1), (x2, y2) = _AT[one], _AT[other]
    return *_border(x1, y1, x2, y2), *_border(x2, y2, x1, y1)


def _border(x: float, y: float, to_x: float, to_y: float) -> tuple[float, float]:
    across, down = to_x - x, to_y - y
    share = min(
        _HALF_WIDTH / abs(across) if across else math.inf,
        _HALF_HEIGHT / abs(down) if down else math.inf,
    )
    return x + across * share, y + down * share


def _arrow(one: State, other: State) -> str:
    x1, y1, x2, y2 = _line(one, other)
    return f'  <path d="M{x1:.0f} {y1:.0f} {x2:.0f} {y2:.0f}"/>'


def _label(one: State, other: State, words: str, *, both_ways: bool) -> str:
    """In the middle; where an arrow comes the other way too, nearer to where this one begins."""
    x1, y1, x2, y2 = _line(one, other)
    if abs(y2 - y1) < 1:
        return _words((x1 + x2) / 2, y1 + (18 if x2 < x1 else -8), words)
    share = 0.3 if both_ways else 0.5
    return _words(x1 + (x2 - x1) * share, y1 + (y2 - y1) * share + 4, words)


def _words(x: float, y: float, words: str) -> str:
    return f'  <text x="{x:.0f}" y="{y:.0f}">{words}</text>'


def _box(state: State) -> str:
    x, y = _AT[state]
    place = f'x="{x - _HALF_WIDTH}" y="{y - _HALF_HEIGHT}" width="{2 * _HALF_WIDTH}" height="{2 * _HALF_HEIGHT}"'
    return f'  <rect {place} rx="8" fill="{_FILL.get(state, "#e3f2fd")}"/>'


def _name(state: State) -> str:
    x, y = _AT[state]
    return f'  <text x="{x}" y="{y + 5}">{state}</text>'
