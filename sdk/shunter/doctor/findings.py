"""What an examination finds."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"
    """Not wrong, but good to know: something that is not installed and may not be needed."""
    PROBLEM = "problem"
    """Something will not work until it is mended."""


class Finding(NamedTuple):
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    detail: str
    fix: str = ""


def ok(name: str, detail: str) -> Finding:
    """It is as it should be."""
    return Finding(name, Verdict.OK, detail)


def note(name: str, detail: str, fix: str = "") -> Finding:
    """It may not matter."""
    return Finding(name, Verdict.NOTE, detail, fix)


def problem(name: str, detail: str, fix: str) -> Finding:
    """It has to be mended."""
    return Finding(name, Verdict.PROBLEM, detail, fix)
