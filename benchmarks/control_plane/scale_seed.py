"""Thousands of running jobs from a few: their rows, and what their simulated cloud and its fleet keep, once more under
new names.

While nothing of the service runs. What comes of it is what a `kill -9` of everything would have left of so many jobs,
without the quarter of an hour that it takes to start them one by one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from shunter_schemas.ids import new_id, new_node_token
from shunter_schemas.states import State
from shunter_store.installation import signing
from shunter_store.sql.database import Database
from shunter_store.tables import (
    events,
    gang_ranks,
    job_due,
    job_labels,
    jobs,
    nodes,
    progress,
    transitions,
)
from sqlalchemy import Connection, Table, bindparam, insert, select

_OF_JOB: Final[Sequence[Table]] = (job_labels, job_due, events, transitions, gang_ranks, progress)
_AT_ONCE: Final = 250


def multiply(database: Database, books: Path, signing_key: Path, count: int) -> None:
    """Make `count` more running jobs, each like one that runs; gangs of one node.

    Args:
        books: the cloud's; the fleet's memory lies beside it.
        signing_key: the file with the secret of the nodes' tokens.
    """
    secret = signing_key.read_text().strip().encode()
    like = database.read(_running)
    memory = books.with_name(books.name.replace(".sqlite", ".fleet.sqlite"))
    with closing(sqlite3.connect(books)) as cloud, closing(sqlite3.connect(memory)) as fleet:
        first = int(cloud.execute("SELECT max(number) FROM calls").fetchone()[0]) + 1_000_000
        for begin in range(0, count, _AT_ONCE):
            names = [
                _Names(like[place % len(like)], secret, f"sim-{first + place:08d}")
                for place in range(begin, min(count, begin + _AT_ONCE))
            ]
            database.write(lambda conn, names=names: _copy_rows(conn, names))  # type: ignore[misc]
            _copy_entries(cloud, names)
            _copy_agents(fleet, names)
        for one in like:
            _go_on(fleet, one)
        cloud.commit()
        fleet.commit()


class _Names:
    """What is called otherwise in a copy."""

    def __init__(self, like: Any, secret: bytes, handle: str) -> None:
        self.like = like
        self.job_id = like.job_id
        self.handle = handle
        deployment = like.token.split("-")[1]
        token = new_node_token(deployment)
        sync_token = signing.node_sync_token(secret, token)
        self.sync_token_hash = signing.token_hash(sync_token)
        self._renamed = {
            like.job_id: new_id("job"),
            like.id: new_id("node"),
            like.handle: handle,
            signing.node_sync_token(secret, like.token): sync_token,
            like.token: token,
        }

    def of(self, text: str) -> str:
        """The text with the copy's names."""
        for old, new in self._renamed.items():
            text = text.replace(old, new)
        return text

    def row(self, row: Any) -> dict[str, Any]:
        """The row with the copy's names, in JSON too."""
        return {name: self._value(value) for name, value in row.items()}

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict | list):
            return json.loads(self.of(json.dumps(value)))
        return self.of(value) if type(value) is str else value


def _running(conn: Connection) -> list[Any]:
    asked = (
        select(nodes.c.id, nodes.c.job_id, nodes.c.token, nodes.c.handle, nodes.c.journal_id, nodes.c.acknowledged)
        .select_from(nodes.join(jobs, jobs.c.id == nodes.c.job_id))
        .where(jobs.c.state == State.RUNNING, jobs.c.cancel_requested_at.is_(None), nodes.c.gone_at.is_(None))
    )
    found = list(conn.execute(asked).all())
    if not found:
        raise RuntimeError("no job runs that others could be like")
    return found


def _copy_rows(conn: Connection, names: Sequence[_Names]) -> None:
    known: dict[tuple[str, str], list[Any]] = {}

    def rows(table: Table, column: str, job_id: str) -> list[Any]:
        if (table.name, job_id) not in known:
            asked = select(table).where(table.c[column] == bindparam("job"))
            known[table.name, job_id] = list(conn.execute(asked, {"job": job_id}).mappings())
        return known[table.name, job_id]

    def copies(table: Table, column: str) -> Iterator[dict[str, Any]]:
        for one in names:
            for row in rows(table, column, one.job_id):
                yield one.row(row) | ({"sync_token_hash": one.sync_token_hash} if table is nodes else {})

    conn.execute(insert(jobs), list(copies(jobs, "id")))
    conn.execute(insert(nodes), list(copies(nodes, "job_id")))
    for table in _OF_JOB:
        if copied := list(copies(table, "job_id")):
            conn.execute(insert(table), copied)


def _copy_entries(cloud: sqlite3.Connection, names: Sequence[_Names]) -> None:
    for one in names:
        row = cloud.execute("SELECT * FROM entries WHERE handle = ?", (one.like.handle,)).fetchone()
        values = [one.of(value) if isinstance(value, str) else value for value in row]
        cloud.execute(f"INSERT INTO entries VALUES ({', '.join('?' * len(values))})", values)


def _copy_agents(fleet: sqlite3.Connection, names: Sequence[_Names]) -> None:
    for one in names:
        fleet.execute("INSERT INTO agents VALUES (?, ?)", (one.handle, one.of(_kept(fleet, one.like))))


def _go_on(fleet: sqlite3.Connection, node: Any) -> None:
    fleet.execute("UPDATE agents SET kept = ? WHERE handle = ?", (_kept(fleet, node), node.handle))


def _kept(fleet: sqlite3.Connection, node: Any) -> str:
    """What an agent goes on with: its journal too, as far as the service has it. A new one would be another machine's,
    or that of a machine that was off."""
    [text] = fleet.execute("SELECT kept FROM agents WHERE handle = ?", (node.handle,)).fetchone()
    kept = json.loads(text) | {"unsaid": [], "journal": {"id": node.journal_id, "seq": node.acknowledged}}
    return json.dumps(kept)
