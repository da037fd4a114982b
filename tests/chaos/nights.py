"""What takes too long for every change is left to the night."""

from __future__ import annotations

import pytest
from _pytest.mark.structures import ParameterSet


def at_night(*values: object) -> list[ParameterSet]:
    """Values of a parametrized test that only the night tries."""
    return [pytest.param(value, marks=pytest.mark.nightly) for value in values]
