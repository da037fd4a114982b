"""Calls of one account keep its rate, however many callers there are."""

from __future__ import annotations

import pytest
from shunter_providers.contract import Instance, Pacer, Rate
from shunter_providers.pacing import OwnPacer, bucket_of, held_off, reckon

ONE_A_SECOND = Rate(1, 1.0)
SIXTY_A_MINUTE = Rate(60, 60.0)


def waits(rate: Rate, calls: int, now: float = 100.0) -> list[float]:
    """Of calls that all come at once."""
    found, next_at = [], None
    for _ in range(calls):
        turn = reckon(next_at, now, rate, at_most_s=1000)
        found.append(turn.wait_s)
        next_at = turn.next_at
    return found


def test_calls_that_come_at_once_are_spread_evenly() -> None:
    assert waits(ONE_A_SECOND, 4) == [0, 1, 2, 3]


def test_a_quiet_account_may_burst_up_to_its_rate_and_no_further() -> None:
    found = waits(SIXTY_A_MINUTE, 62)

    assert found[:60] == [0] * 60
    assert found[60:] == [1, 2]


def test_a_turn_that_is_too_far_away_is_not_reserved() -> None:
    turn = reckon(next_at=110.0, now=100.0, rate=ONE_A_SECOND, at_most_s=5)

    assert turn.wait_s == pytest.approx(10)
    assert turn.next_at is None


def test_a_wait_that_the_provider_named_holds_everybody() -> None:
    next_at = held_off(None, 100.0, SIXTY_A_MINUTE, for_s=7)

    assert reckon(next_at, 100.0, SIXTY_A_MINUTE, at_most_s=1000).wait_s == pytest.approx(7)


def test_a_time_that_a_jump_of_the_clock_left_behind_holds_nobody() -> None:
    assert reckon(next_at=1e9, now=100.0, rate=ONE_A_SECOND, at_most_s=5).wait_s == 0


def test_a_bucket_tells_accounts_apart_and_shows_no_credential() -> None:
    instance = Instance("one", "acme")

    buckets = {bucket_of(instance, key, ONE_A_SECOND) for key in ("first-secret", "other-secret", "first-secret")}

    assert len(buckets) == 2
    assert not any("secret" in bucket for bucket in buckets)


async def test_the_pacer_of_one_process_is_a_pacer() -> None:
    pacer = OwnPacer()

    first = await pacer.take_turn("a", ONE_A_SECOND, 5)
    second = await pacer.take_turn("a", ONE_A_SECOND, 5)
    await pacer.hold_off("b", ONE_A_SECOND, 3)

    assert isinstance(pacer, Pacer)
    assert first == 0
    assert second == pytest.approx(1, abs=0.2)
    assert await pacer.take_turn("b", ONE_A_SECOND, 5) == pytest.approx(3, abs=0.2)
