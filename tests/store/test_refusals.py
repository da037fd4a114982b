"""Accounts that were refused nodes: known to every job, for a while, until something says that they are good again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from shunter_store.accounts import providers, refusals
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import clock_of
from shunter_store.tables import providers as providers_table
from sqlalchemy import update
from support.node_rows import intended
from support.store_rows import new_job

BROKE = {
    "at": "2026-11-30T12:00:00+00:00",
    "fault": "payment",
    "scope": "account",
    "detail": "402: add money",
    "instance_type": "8xH100",
    "region": "eu-1",
}


def test_a_refusal_stays_through_readings_until_a_node_of_the_account_is_made(database: Database) -> None:
    for name in ("a", "b"):
        read(database, name)
        note(database, BROKE, name)
    node = intended(database, new_job(database).id, "a")

    read(database, "b", limits={"GPUs": 8})
    database.write(lambda conn: refusals.forget(conn, node.id))

    shown = {row.instance: (row.refusal or {}).get("detail") for row in database.read(providers.list_all)}
    assert shown == {"a": None, "b": "402: add money"}
    assert list(standing(database)) == ["b"]


@pytest.mark.parametrize(("fault", "stands"), [("payment", True), ("auth", True), ("quota", False)])
def test_want_of_money_and_credentials_keeps_jobs_away_and_want_of_quota_is_only_told_of(
    database: Database, fault: str, stands: bool
) -> None:
    read(database)

    note(database, {**BROKE, "fault": fault})

    assert ("a" in standing(database)) is stands
    assert database.read(providers.list_all)[0].refusal is not None


def test_what_is_met_again_stands_twice_as_long_and_jobs_that_met_it_together_count_once(database: Database) -> None:
    read(database)
    lasts_s = []

    for _ in range(3):
        note(database, BROKE)
        note(database, BROKE)
        lasts_s.append(left_s(database))
        run_out(database)

    assert lasts_s == pytest.approx([30.0, 60.0, 120.0], abs=5.0)


def test_no_refusal_stands_longer_than_an_hour_however_often_it_was_met(database: Database) -> None:
    read(database)

    for _ in range(40):
        note(database, BROKE)
        run_out(database)
    note(database, BROKE)

    assert left_s(database) == pytest.approx(refusals.LONGEST_S, abs=5.0)


def test_a_refusal_that_ran_out_or_was_noted_under_another_clock_keeps_nobody_away(database: Database) -> None:
    read(database)
    note(database, BROKE)

    run_out(database)
    over = standing(database)
    run_out(database, by=timedelta(hours=-3))

    assert (over, standing(database)) == ({}, {})


@pytest.mark.parametrize(
    ("readings", "stays"),
    [
        ([{"account": "me"}], True),
        ([{"ok": False}, {"account": "me"}], False),
        ([{"account": "another"}], False),
    ],
    ids=["they are the same", "they work again", "they are another account's"],
)
def test_credentials_that_were_mended_end_it(database: Database, readings: list[dict[str, Any]], stays: bool) -> None:
    read(database, account="me")
    note(database, BROKE)

    for reading in readings:
        read(database, **reading)

    assert ("a" in standing(database)) is stays


def test_an_operator_lifts_it_at_once_and_what_comes_after_counts_anew(database: Database) -> None:
    read(database)
    for _ in range(3):
        note(database, BROKE)
        run_out(database)

    lifted = [database.write(lambda conn: refusals.lift(conn, "a")) for _ in range(2)]
    note(database, BROKE)

    assert lifted == [True, False]
    assert left_s(database) == pytest.approx(refusals.FIRST_S, abs=5.0)


def read(database: Database, name: str = "a", ok: bool = True, **found: Any) -> None:
    database.write(lambda conn: providers.record_health(conn, name, "cloud", ok, **found))


def note(database: Database, refusal: dict[str, Any], name: str = "a") -> None:
    database.write(lambda conn: refusals.note(conn, name, refusal))


def standing(database: Database) -> dict[str, dict[str, Any]]:
    return database.read(refusals.standing)


def left_s(database: Database) -> float:
    now = database.read(clock_of)
    return (datetime.fromisoformat(standing(database)["a"]["until"]) - now).total_seconds()


def run_out(database: Database, by: timedelta = timedelta(0)) -> None:
    """Move the end of the refusal to a moment ago, or to as much later as `by` is below zero."""
    told = dict(database.read(providers.list_all)[0].refusal or {})
    told["until"] = (database.read(clock_of) - by - timedelta(seconds=1)).isoformat()
    database.write(lambda conn: conn.execute(update(providers_table).values(refusal=told)))
