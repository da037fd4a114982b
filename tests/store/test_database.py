"""The door to SQL: snapshots, one writer, retries, forks, and the refusal of what would corrupt."""

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from shunter_store.errors import UnusableDatabase
from shunter_store.job import events, jobs, outbox
from shunter_store.sql.database import ATTEMPTS, Database
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from support.store_rows import new_job


def test_a_read_cannot_write(database: Database) -> None:
    with pytest.raises(DBAPIError, match="read"):
        database.read(outbox.put)

    assert database.read(lambda conn: outbox.take(conn, 1)) == []


def test_a_read_sees_one_snapshot(database: Database) -> None:
    job = new_job(database)

    def look_twice(conn: Connection) -> tuple[int, int]:
        before = len(events.page(conn, job.id))
        database.write(lambda other: events.append(other, job.id, "meanwhile", {}))
        return before, len(events.page(conn, job.id))

    assert database.read(look_twice) == (1, 1)
    assert len(database.read(lambda conn: events.page(conn, job.id))) == 2


def test_a_write_that_raises_leaves_nothing(database: Database) -> None:
    def fail(conn: Connection) -> None:
        outbox.put(conn)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        database.write(fail)

    assert database.read(lambda conn: outbox.take(conn, 1)) == []


async def test_reads_and_writes_can_be_awaited(database: Database) -> None:
    await asyncio.gather(*(database.awrite(outbox.put) for _ in range(20)))

    taken = await database.aread(lambda conn: outbox.take(conn, 100))

    assert len(taken) == 20


async def test_a_write_that_nobody_waits_for_any_more_goes_on(database_url: str) -> None:
    database = Database.connect(database_url)
    entered, go_on = threading.Event(), threading.Event()

    def slow(conn: Connection) -> None:
        entered.set()
        go_on.wait(10)
        outbox.put(conn)

    task = asyncio.create_task(database.awrite(slow))
    await asyncio.to_thread(entered.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    database.close()

    with closing(Database.connect(database_url)) as again:
        assert len(again.read(lambda conn: outbox.take(conn, 9))) == 1


def test_writers_of_one_process_take_turns(database_url: str) -> None:
    database = Database.connect(database_url, readers=8)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: database.write(outbox.put), range(200)))
    taken = database.read(lambda conn: outbox.take(conn, 1000))
    database.close()

    assert len(taken) == 200


def test_two_deadlocked_writers_both_come_through(postgres_database: str) -> None:
    database = Database.connect(postgres_database)
    first, second = new_job(database).id, new_job(database).id
    both_hold_one = threading.Barrier(2)

    def lock_both(order: tuple[str, str], runs: list[int]) -> None:
        def locked(conn: Connection) -> None:
            runs.append(1)
            jobs.get_locked(conn, order[0])
            if len(runs) == 1:
                both_hold_one.wait(10)
            jobs.get_locked(conn, order[1])

        database.write(locked)

    runs: tuple[list[int], list[int]] = ([], [])
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lock_both, [(first, second), (second, first)], runs))
    database.close()

    assert max(map(len, runs)) > 1, "one of them lost and tried again"


def test_a_transaction_that_always_loses_is_given_up(postgres_database: str) -> None:
    database = Database.connect(postgres_database)
    runs: list[int] = []

    def lose(conn: Connection) -> None:
        runs.append(1)
        conn.execute(text("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$"))

    with pytest.raises(DBAPIError):
        database.write(lose)
    database.close()

    assert len(runs) == ATTEMPTS


def test_a_restart_of_the_server_is_not_noticed(postgres_database: str) -> None:
    database, other = Database.connect(postgres_database), Database.connect(postgres_database)
    pids = [database.read(backend), database.write(backend)]
    other.write(lambda conn: terminate(conn, *pids))

    database.write(outbox.put)
    taken = database.read(lambda conn: outbox.take(conn, 1000))
    database.close()
    other.close()

    assert taken != []


def test_a_connection_that_breaks_in_a_write_is_replaced_and_the_write_done_once(postgres_database: str) -> None:
    database, other = Database.connect(postgres_database), Database.connect(postgres_database)
    job = new_job(database)
    runs: list[int] = []

    def cut_off_once(conn: Connection) -> None:
        runs.append(backend(conn))
        if len(runs) == 1:
            other.write(lambda admin: terminate(admin, runs[0]))
        events.append(conn, job.id, "once", {})

    database.write(cut_off_once)
    told = database.read(lambda conn: events.page(conn, job.id))
    database.close()
    other.close()

    assert len(runs) == 2
    assert [event.type for event in told] == ["job.created", "once"]


@pytest.mark.postgres
def test_who_vanishes_within_a_transaction_holds_nobody_up_for_long(postgres_database: str) -> None:
    with closing(Database.connect(postgres_database)) as database:
        limits = [
            run(lambda conn: conn.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar())
            for run in (database.read, database.write)
        ]

    assert limits == ["20s", "20s"]


def test_a_write_within_a_write_is_an_error_and_no_deadlock(database: Database) -> None:
    with pytest.raises(RuntimeError, match="a write within a write"):
        database.write(lambda conn: database.write(outbox.put))

    database.write(outbox.put)


def test_an_error_of_the_caller_is_not_tried_again(database: Database) -> None:
    runs: list[int] = []

    def wrong(conn: Connection) -> None:
        runs.append(1)
        conn.execute(text("SELECT * FROM no_such_table"))

    with pytest.raises(DBAPIError):
        database.write(wrong)

    assert len(runs) == 1


def test_errors_do_not_show_parameters(database: Database) -> None:
    with pytest.raises(DBAPIError) as refused:
        database.write(lambda conn: conn.execute(text("SELECT :a FROM no_such_table"), {"a": "a secret"}))

    assert "a secret" not in str(refused.value)


def test_a_child_process_is_refused_its_parents_database(database: Database) -> None:
    database.read(lambda conn: None)

    child = os.fork()
    if child == 0:
        status = 1
        try:
            database.read(lambda conn: None)
        except RuntimeError:
            status = 0
        os._exit(status)

    assert os.waitpid(child, 0)[1] == 0
    database.read(lambda conn: None)


def test_sqlite_runs_as_it_was_measured_to_be_safe(sqlite_url: str) -> None:
    with closing(Database.connect(sqlite_url)) as database:
        settings = database.write(
            lambda conn: {
                pragma: conn.exec_driver_sql(f"PRAGMA {pragma}").scalar()
                for pragma in ("journal_mode", "synchronous", "foreign_keys")
            }
        )
        version = database.read(lambda conn: conn.exec_driver_sql("SELECT sqlite_version()").scalar_one())

    assert settings == {"journal_mode": "wal", "synchronous": 1, "foreign_keys": 1}
    assert tuple(map(int, version.split("."))) >= (3, 51, 3)


def test_an_old_sqlite_library_is_refused_with_what_to_do() -> None:
    # Without the wheel, Python's own library is found; where that is new enough there is nothing to refuse.
    script = (
        "import sys; sys.modules['pysqlite3'] = None\n"
        "import sqlite3; sqlite3.dbapi2.sqlite_version_info = (3, 51, 2)\n"
        "from shunter_store.sql.database import Database\n"
        "Database.connect('sqlite:////tmp/never-made.db')\n"
    )

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)

    assert ran.returncode == 1
    assert "install pysqlite3" in ran.stderr.splitlines()[-1]


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "sqlite:///:memory:"])
def test_databases_that_cannot_be_shared_are_refused(url: str) -> None:
    with pytest.raises(UnusableDatabase):
        Database.connect(url)


def backend(conn: Connection) -> int:
    return int(conn.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())


def terminate(conn: Connection, *pids: int) -> None:
    for pid in pids:
        conn.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})
