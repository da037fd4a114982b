"""Text from nodes is data: what a terminal, PostgreSQL or JSON would choke on is replaced at the door."""

from __future__ import annotations

import math
import re
from typing import Any, Final

LONGEST_TEXT: Final = 16_384
"""Characters kept of any one text in a record; of a longer one the end, where errors say what went wrong."""

_DEEPEST: Final = 32
_LARGEST_INT: Final = 1 << 62

_LINE_END: Final = re.compile("\r\n?")
_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def clean_text(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text with line ends as line feeds, and NUL, ESC, other controls and surrogates replaced."""
    text = _FORBIDDEN.sub("\ufffd", _LINE_END.sub("\n", text))
    return text if len(text) <= longest else "…" + text[1 - longest :]


def clean(value: Any, depth: int = 0) -> Any:
    """JSON with every text in it cleaned; a number that no database keeps becomes None, as does what lies too deep."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if isinstance(value, bool) or abs(value) < _LARGEST_INT else None
    if depth >= _DEEPEST:
        return None
    if isinstance(value, dict):
        return {clean_text(str(key), 200): clean(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item, depth + 1) for item in value]
    return None
