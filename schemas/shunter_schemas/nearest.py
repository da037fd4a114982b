"""The nearest known name to one that is not known: for faults in documents and on the command line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was most likely meant, or None when nothing is near."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    found = difflib.get_close_matches(name[:64].casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing."""
    guess = nearest(name, known)
    return f"; did you mean `{guess}`?" if guess else ""
