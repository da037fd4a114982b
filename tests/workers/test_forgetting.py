"""What is kept for a while is forgotten in the end, a little at a time."""

from __future__ import annotations

import pytest
from shunter_store.job import idempotency
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import idempotency as kept
from shunter_workers.duties.forgetter import EVERY_S, Forgetter
from sqlalchemy import func, select, update


def keep_answers(database: Database, count: int) -> None:
    for number in range(count):
        database.write(
            lambda conn, number=number: idempotency.store(  # type: ignore[misc]
                conn, project="default", path="/v1/jobs", key=f"key-{number}", body_hash="h", status=201, body="{}"
            )
        )


def left(database: Database) -> int:
    return database.read(lambda conn: int(conn.execute(select(func.count()).select_from(kept)).scalar_one()))


async def test_answers_under_idempotency_keys_go_after_a_week_and_not_all_at_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shunter_workers.duties.forgetter.AT_ONCE", 2)
    keep_answers(database, 4)
    old = update(kept).where(kept.c.key != "key-0").values(created_at=db_now() - 8 * 86400.0)
    database.write(lambda conn: conn.execute(old))
    forgetter = Forgetter(database)

    again_in_s = [await forgetter.work(), await forgetter.work()]

    assert left(database) == 1
    assert again_in_s[0] < 1.0
    assert again_in_s[1] == EVERY_S
