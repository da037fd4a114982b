"""An event as one line for people: what happened first, then what is known about it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from shunter_schemas.api import Event

_LONGEST: Final = 100
_QUIET: Final = frozenset({"node", "node_at", "generation", "boot_id", "trigger", "facts", "message"})
"""What every event has, or what only programs need; `--output wide` shows all of it."""
_FRAME: Final = re.compile(r'\s*(File "[^"]*", line \d+ in |(Current thread|Thread) 0x|\.\.\.$)')
"""Lines as `faulthandler` writes them."""


def words_of(event: Event) -> str:
    """What its data say: `running -> stopping  user_error` for a change of state, else `name=value` of what is not
    empty."""
    data = dict(event.data)
    parts = [f"{data.pop('from')} -> {data.pop('to')}"] if {"from", "to"} <= data.keys() else []
    if reason := data.pop("reason", None):
        parts.append(str(reason))
    parts += _pairs(data)
    if message := data.get("message"):
        parts.append(_short(str(message)))
    return "  ".join(parts)


def _pairs(data: dict[str, Any]) -> Iterator[str]:
    for name, value in data.items():
        if name in _QUIET or value in (None, "", [], {}):
            continue
        if short := _short(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)):
            yield f"{name}={short}"


def _short(text: str) -> str:
    """Its last line that says something, cut: of a traceback, the error; of a dump of stacks, what stands before it."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _FRAME.match(line)] or [""]
    if len(lines) > 1 and lines[-1].endswith("Where every thread stands:"):
        lines.pop()
    return lines[-1] if len(lines[-1]) <= _LONGEST else f"{lines[-1][:_LONGEST]}…"
