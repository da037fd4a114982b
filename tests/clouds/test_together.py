"""Calls that are made at once."""

from __future__ import annotations

import asyncio

import pytest
from shunter_providers.cloud_kit.together import all_of


async def test_answers_come_in_the_order_of_the_calls() -> None:
    async def answer(number: int) -> int:
        await asyncio.sleep(0.01 * (3 - number))
        return number

    assert await all_of(answer(number) for number in range(3)) == [0, 1, 2]


async def test_a_failure_is_raised_when_the_others_have_ended() -> None:
    ended = []

    async def fail() -> None:
        raise ValueError("no")

    async def last() -> None:
        await asyncio.sleep(0.02)
        ended.append("last")

    with pytest.raises(ValueError, match="no"):
        await all_of([fail(), last()])

    assert ended == ["last"]
