"""Loss, duplication, reordering, pauses, and crashes between any two statements: every promise holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.machine import attack


def test_every_promise_is_kept_in_any_order(sqlite_template: Path) -> None:
    attack(sqlite_template, examples=5, numbered=1)


@pytest.mark.slow
def test_every_promise_is_kept_in_many_orders(sqlite_template: Path) -> None:
    attack(sqlite_template, examples=25, numbered=1)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("numbered", range(2, 12))
def test_every_promise_is_kept_in_many_more_orders(numbered: int, sqlite_template: Path) -> None:
    attack(sqlite_template, examples=100, numbered=numbered)
