"""The history of a job has no gap, whoever writes it and however it ends."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from shunter_store.errors import NotFound
from shunter_store.job import events
from shunter_store.sql.database import Database
from sqlalchemy import Connection
from support.event_writer import write_events
from support.store_rows import new_job, reread

TESTS = Path(__file__).parents[1]


def test_events_are_read_in_order_and_in_pages(database: Database) -> None:
    job = new_job(database)
    numbers = write_events(database, job.id, 5)

    page = database.read(lambda conn: events.page(conn, job.id, after=2, limit=3))

    assert numbers == [2, 3, 4, 5, 6]
    assert [(event.seq, event.data["index"]) for event in page] == [(3, 1), (4, 2), (5, 3)]


def test_several_events_at_once_keep_their_order(database: Database) -> None:
    job = new_job(database)

    last = database.write(lambda conn: events.append_all(conn, job.id, [("a", {}), ("b", {}), ("c", {})]))

    assert last == 4
    assert [event.type for event in database.read(lambda conn: events.page(conn, job.id, after=1))] == ["a", "b", "c"]


def test_an_event_of_no_job_is_refused(database: Database) -> None:
    with pytest.raises(NotFound):
        database.write(lambda conn: events.append(conn, "job_nothing", "a", {}))


def test_a_writer_that_fails_leaves_no_gap(database: Database) -> None:
    job = new_job(database)

    with pytest.raises(ZeroDivisionError):
        database.write(lambda conn: fail_after_append(conn, job.id))
    number = database.write(lambda conn: events.append(conn, job.id, "kept", {}))

    assert number == 2


def test_eight_threads_write_without_a_gap(database_url: str) -> None:
    database = Database.connect(database_url, readers=8)
    job = new_job(database)

    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: write_events(database, job.id, 25), range(8)))
    told = database.read(lambda conn: events.page(conn, job.id, limit=1000))
    database.close()

    assert sorted(number for mine in numbers for number in mine) == list(range(2, 202))
    assert [event.seq for event in told] == list(range(1, 202))


def test_eight_processes_write_without_a_gap(database: Database, database_url: str) -> None:
    job = new_job(database)
    command = [sys.executable, "-m", "support.event_writer", database_url, job.id, "25", "8"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}

    ran = subprocess.run(command, cwd=TESTS, env=environment, stdout=subprocess.PIPE, text=True, timeout=60)
    numbers = [int(number) for number in ran.stdout.split()]

    assert ran.returncode == 0
    assert sorted(numbers) == list(range(2, 202))
    assert reread(database, job.id).event_seq == 201


def fail_after_append(conn: Connection, job_id: str) -> None:
    events.append(conn, job_id, "lost", {})
    raise ZeroDivisionError
