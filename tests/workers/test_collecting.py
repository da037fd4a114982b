"""Bytes go after the rows that named them, however often the worker that deletes them dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shunter_store.sql.database import Database
from shunter_store.storage import garbage
from shunter_store.storage.objects import ObjectStore
from shunter_workers.duties.collector import AT_ONCE, EVERY_S, Collector


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(f"file://{tmp_path}/objects")


def collector(database: Database, tmp_path: Path) -> Collector:
    return Collector(database, f"file://{tmp_path}/objects")


def left(database: Database) -> int:
    return len(database.read(lambda conn: garbage.take(conn, 1000)))


async def test_named_objects_and_folders_go_and_what_is_kept_stays(
    database: Database, store: ObjectStore, tmp_path: Path
) -> None:
    keys = ["job_1/1/a", "job_1/1/kept", "job_2/1/b", "job_2/1/c"]
    for key in keys:
        store.put(key, [b"x"])
    database.write(lambda conn: garbage.put(conn, below="job_1/", kept=["job_1/1/kept"]))
    database.write(lambda conn: garbage.put(conn, keys=["job_2/1/b", "job_2/1/never-there"]))

    again_in_s = await collector(database, tmp_path).work()

    assert [key for key in keys if store.exists(key)] == ["job_1/1/kept", "job_2/1/c"]
    assert (left(database), again_in_s) == (0, EVERY_S)


async def test_a_collector_that_dies_in_the_middle_does_it_again(
    database: Database, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("job_1/1/a", "job_1/1/b"):
        store.put(key, [b"x"])
    database.write(lambda conn: garbage.put(conn, keys=["job_1/1/a", "job_1/1/b"]))
    delete, deleted = ObjectStore.delete, list[str]()

    def die_at_the_second(self: ObjectStore, key: str) -> None:
        if deleted:
            raise KeyboardInterrupt
        delete(self, key)
        deleted.append(key)

    monkeypatch.setattr(ObjectStore, "delete", die_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        await collector(database, tmp_path).work()
    monkeypatch.undo()
    assert left(database) == 1

    await collector(database, tmp_path).work()

    assert not store.exists("job_1/1/b")
    assert left(database) == 0


async def test_garbage_that_cannot_be_deleted_keeps_nothing_else(
    database: Database, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("job_1/1/stuck", "job_2/1/b"):
        store.put(key, [b"x"])
        database.write(lambda conn, key=key: garbage.put(conn, keys=[key]))  # type: ignore[misc]
    delete = ObjectStore.delete

    def refuse(self: ObjectStore, key: str) -> None:
        if "stuck" in key:
            raise PermissionError(key)
        delete(self, key)

    monkeypatch.setattr(ObjectStore, "delete", refuse)
    await collector(database, tmp_path).work()

    [row] = database.read(lambda conn: garbage.take(conn, 10))
    assert row.keys == ["job_1/1/stuck"]
    assert not store.exists("job_2/1/b")


async def test_much_garbage_that_cannot_be_deleted_is_passed_by(
    database: Database, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shunter_workers.duties.collector.AT_ONCE", 2)
    store.put("job_9/1/x", [b"x"])
    for key in ("..", "../..", "a//b", "job_9/1/x"):  # three that no store takes
        database.write(lambda conn, key=key: garbage.put(conn, keys=[key]))  # type: ignore[misc]
    collecting = collector(database, tmp_path)

    delays = [await collecting.work() for _ in range(4)]

    assert not store.exists("job_9/1/x")
    assert left(database) == 3
    assert EVERY_S in delays, "and it does not spin"


async def test_a_full_round_is_followed_by_the_next_at_once(database: Database, tmp_path: Path) -> None:
    def fill(conn: Any) -> None:
        for number in range(AT_ONCE + 1):
            garbage.put(conn, keys=[f"job_{number}/1/x"])

    database.write(fill)

    delays = [await collector(database, tmp_path).work() for _ in range(2)]

    assert delays == [0.0, EVERY_S]
    assert left(database) == 0
