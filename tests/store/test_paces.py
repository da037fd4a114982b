"""The pace of an account is one for all processes, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from shunter_providers.contract import Pacer, Rate
from shunter_store.accounts import paces
from shunter_store.accounts.paces import StorePacer
from shunter_store.sql.database import Database

RATE = Rate(1, 10.0)


def test_turns_of_several_callers_are_spread_evenly(database: Database) -> None:
    def take(_: int) -> float:
        return database.write(lambda conn: paces.take_turn(conn, "acme/1", RATE, 1000))

    with ThreadPoolExecutor(4) as pool:
        waits = sorted(pool.map(take, range(6)))

    assert waits == pytest.approx([0, 10, 20, 30, 40, 50], abs=9)
    assert all(later - earlier > 5 for earlier, later in pairwise(waits))


def test_a_turn_that_is_too_far_away_is_not_reserved(database: Database) -> None:
    database.write(lambda conn: paces.take_turn(conn, "acme/1", RATE, 5))

    refused = [database.write(lambda conn: paces.take_turn(conn, "acme/1", RATE, 5)) for _ in range(3)]

    assert all(5 < wait_s <= 10 for wait_s in refused)


def test_accounts_do_not_wait_for_each_other(database: Database) -> None:
    database.write(lambda conn: paces.take_turn(conn, "acme/1", RATE, 5))

    assert database.write(lambda conn: paces.take_turn(conn, "acme/2", RATE, 5)) == 0


async def test_a_wait_that_a_provider_named_holds_every_process(database: Database) -> None:
    one, other = StorePacer(database), StorePacer(database)
    await one.hold_off("acme/1", RATE, 100)

    wait_s = await other.take_turn("acme/1", RATE, 5)

    assert isinstance(one, Pacer)
    assert 60 < wait_s <= 100
