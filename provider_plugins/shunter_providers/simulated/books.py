"""The books of a simulated cloud: one SQLite file that several processes share. Whoever checks the bill reads here.

A rollback journal, not WAL: processes with different SQLite versions may open it. Every method is one transaction and
blocks for a moment at most.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, NamedTuple

from shunter_providers.contract import NodeView
from shunter_providers.simulated.entries import SHOWN, Entry, Shown, view_of
from shunter_providers.simulated.faults import Counts

_COLUMNS = [column.name for column in fields(Entry)]
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS entries ({", ".join(_COLUMNS)}, PRIMARY KEY (handle));
CREATE INDEX IF NOT EXISTS entries_by_deployment ON entries (deployment, account, gone_at);
CREATE INDEX IF NOT EXISTS entries_by_end ON entries (gone_at);
CREATE INDEX IF NOT EXISTS entries_by_token ON entries (token);
CREATE TABLE IF NOT EXISTS calls (number INTEGER PRIMARY KEY, at, account, verb, subject, fault);
CREATE TABLE IF NOT EXISTS rules (script, position, met, struck, PRIMARY KEY (script, position));
CREATE INDEX IF NOT EXISTS entries_to_start ON entries (boots_at) WHERE NOT started AND NOT cleared;
CREATE INDEX IF NOT EXISTS entries_to_clear_by_end ON entries (gone_at) WHERE started AND NOT cleared;
CREATE INDEX IF NOT EXISTS entries_to_clear_by_loss ON entries (preempted_at) WHERE started AND NOT cleared;
"""
_ADDED = {"queued_until": "0.0", "fails_for": "''"}
"""Columns that books of an earlier version lack, and what they say of its entries."""
_NEWEST = "fails_for"
_ROW = f"SELECT {', '.join(_COLUMNS)} FROM entries"  # noqa: S608  # our own column names


class Call(NamedTuple):
    """One call that the cloud received. `fault`: what was made of it; None: it went well."""

    number: int
    at: float
    account: str
    verb: str
    subject: str
    fault: str | None


class Books:
    """The file is opened anew for each transaction."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def writing(self) -> Iterator[Page]:
        """A transaction that waits for others and is all or nothing."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.path, timeout=60.0, isolation_level=None)) as connection:
            if _NEWEST not in _columns(connection):
                _prepare(connection)
            # A killed process loses nothing by it, and a machine that loses power loses a rehearsal.
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield Page(connection)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")


def _columns(connection: sqlite3.Connection) -> set[str]:
    return {row[1] for row in connection.execute("PRAGMA table_info(entries)")}


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the tables, or add to those of an earlier version what they lack; several processes may begin at once."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA.strip().split(";\n"):
        connection.execute(statement)
    for name in _ADDED.keys() - _columns(connection):
        connection.execute(f"ALTER TABLE entries ADD COLUMN {name} DEFAULT {_ADDED[name]}")
    connection.execute("COMMIT")


class Page:
    """The books within one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def note_call(self, at: float, account: str, verb: str, subject: str) -> int:
        """Write a call down; its number."""
        values = (at, account, verb, subject)
        cursor = self._run("INSERT INTO calls (at, account, verb, subject) VALUES (?, ?, ?, ?)", values)
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def note_fault(self, number: int, fault: str) -> None:
        """Say what was made of a call."""
        self._run("UPDATE calls SET fault = ? WHERE number = ?", (fault, number))

    def calls(self) -> list[Call]:
        """Every call so far, in order."""
        return [Call(*row) for row in self._run("SELECT * FROM calls ORDER BY number", ())]

    def counts(self, script: str, position: int) -> Counts:
        """How often a rule of a script was met and has struck."""
        row = self._run("SELECT met, struck FROM rules WHERE script = ? AND position = ?", (script, position))
        return Counts(*(row.fetchone() or ()))

    def count(self, script: str, position: int, counts: Counts) -> None:
        """Keep a rule's counts."""
        self._run("REPLACE INTO rules VALUES (?, ?, ?, ?)", (script, position, *counts))

    def add(self, entry: Entry) -> None:
        """Take in a new node or disk."""
        marks = ", ".join("?" * len(_COLUMNS))
        self._run(f"INSERT INTO entries ({', '.join(_COLUMNS)}) VALUES ({marks})", astuple(entry))  # noqa: S608

    def change(self, handle: str, **values: Any) -> None:
        """Set columns of an entry."""
        settings = ", ".join(f"{name} = ?" for name in values)
        self._run(f"UPDATE entries SET {settings} WHERE handle = ?", (*values.values(), handle))  # noqa: S608

    def entry(self, handle: str) -> Entry | None:
        """One entry, or None."""
        return next(iter(self._entries("WHERE handle = ?", handle)), None)

    def by_token(self, token: str) -> list[Entry]:
        """Everything that was made under a token."""
        return self._entries("WHERE token = ? ORDER BY created_at, handle", token)

    def of_deployment(self, deployment: str, account: str, at: float) -> list[Entry]:
        """What a deployment has in an account at a time."""
        where = "WHERE deployment = ? AND account = ? AND gone_at > ? AND preempted_at > ? ORDER BY created_at, handle"
        return self._entries(where, deployment, account, at, at)

    def shown(self, deployment: str, account: str, at: float) -> list[NodeView]:
        """The same as its cloud shows it: of thousands of nodes a listing reads no more than it tells."""
        names = ", ".join(SHOWN)
        where = "WHERE deployment = ? AND account = ? AND gone_at > ? AND preempted_at > ? AND visible_at <= ?"
        asked = f"SELECT {names} FROM entries {where} ORDER BY created_at, handle"  # noqa: S608  # our own column names
        return [view_of(Shown(*row), at) for row in self._run(asked, (deployment, account, at, at, at))]

    def were_fewer_than(self, count: int) -> bool:
        """Whether fewer entries than this were ever made, whatever became of them."""
        newest = self._run("SELECT max(rowid) FROM entries", ()).fetchone()[0]
        return (newest or 0) < count

    def living(self, at: float) -> list[Entry]:
        """Everything that exists at a time, of all accounts."""
        return self._entries("WHERE gone_at > ? AND preempted_at > ?", at, at)

    def taken(self, at: float) -> Counter[tuple[str, str]]:
        """How many nodes exist at a time, by type and region."""
        counted = self._run(
            "SELECT instance_type, region, count(*) FROM entries WHERE gone_at > ? AND preempted_at > ? "
            "AND kind = 'node' GROUP BY instance_type, region",
            (at, at),
        )
        return Counter({(kind, region): count for kind, region, count in counted})

    def gpus_of(self, account: str, at: float) -> int:
        """GPUs of the nodes that an account has at a time."""
        summed = self._run(
            "SELECT coalesce(sum(gpus), 0) FROM entries WHERE gone_at > ? AND preempted_at > ? "
            "AND kind = 'node' AND account = ?",
            (at, at, account),
        )
        return int(summed.fetchone()[0])

    def to_start(self, at: float) -> list[Entry]:
        """Nodes that have booted, whose agents do not live yet."""
        where = "WHERE NOT started AND NOT cleared AND boots_at <= ? AND gone_at > ? AND preempted_at > ?"
        return self._entries(f"{where} AND launch <> '' AND NOT fails", at, at, at)

    def to_clear(self, at: float) -> list[str]:
        """Handles of nodes that are gone, whose agents are still played."""
        asked = "SELECT handle FROM entries WHERE started AND NOT cleared AND "
        gone = self._run(f"{asked} gone_at <= ? UNION {asked} preempted_at <= ?", (at, at))
        return [handle for (handle,) in gone]

    def playing(self, at: float) -> list[Entry]:
        """Nodes that exist and whose agents were started."""
        return self._entries("WHERE gone_at > ? AND preempted_at > ? AND started AND NOT cleared", at, at)

    def unfinished(self) -> list[Entry]:
        """Entries whose agents the hypervisor still has to start, to warn or to end."""
        return self._entries("WHERE kind = 'node' AND launch <> '' AND NOT cleared")

    def everything(self) -> list[Entry]:
        """Every entry that was ever made."""
        return self._entries("ORDER BY created_at, handle")

    def _entries(self, where: str, *values: object) -> list[Entry]:
        return [Entry(*row) for row in self._run(f"{_ROW} {where}", values)]

    def _run(self, statement: str, values: Sequence[object]) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)
