"""A job's own SSH keys: made once, sealed in the database, destroyed when the job and its nodes are over."""

from __future__ import annotations

import asyncssh
import pytest
from shunter_store.node import reaching
from shunter_store.sql.database import Database
from shunter_workers.channels.keys import JobKeys


async def test_keys_are_made_once_and_are_the_same_for_every_worker(database: Database) -> None:
    one, other = JobKeys(database, b"secret"), JobKeys(database, b"secret")

    first = await one.of("job_1")
    again = await other.of("job_1")

    assert first == again
    assert first != await one.of("job_2")
    assert first.login != first.host
    private = asyncssh.import_private_key(first.login.private)
    assert private.export_public_key().decode().split()[:2] == first.login.public.split()[:2]


async def test_the_database_alone_does_not_tell_them(database: Database) -> None:
    keys = JobKeys(database, b"secret")
    made = await keys.of("job_1")

    sealed = database.read(lambda conn: reaching.sealed_keys(conn, "job_1")) or ""

    assert "PRIVATE KEY" not in sealed
    assert made.login.public.split()[1] not in sealed
    with pytest.raises(ValueError, match="sealed with another secret"):
        await JobKeys(database, b"another").of("job_1")


async def test_they_are_destroyed_when_there_is_neither_job_nor_node(database: Database) -> None:
    keys = JobKeys(database, b"secret")
    await keys.of("job_that_is_over")

    gone = await keys.forget()

    assert gone == 1
    assert await keys.known("job_that_is_over") is None
