"""Everything that a run leaves behind: the cloud's own books, the database and its record, the nodes' folders."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from shunter_providers.machine import folders
from shunter_providers.simulated.books import Books
from shunter_providers.simulated.clock import CloudClock
from shunter_providers.simulated.entries import Entry
from shunter_store import tables
from shunter_store.sql.database import Database
from shunter_store.storage.objects import ObjectStore
from sqlalchemy import Table, select

from chaos import record

_BUSY_FROM: Final = 4.0
"""Processes that want to run, for each processor."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """What the players know of a run and no table says."""

    names: Mapping[str, str]
    """Of the jobs that were answered 201, by id."""
    budgets: Mapping[str, float] = field(default_factory=dict)
    """USD by job id, of jobs that would go on for ever."""
    cancelled: frozenset[str] = frozenset()
    """Ids of jobs whose cancel was answered 202, or may have been accepted."""
    sure: frozenset[str] = frozenset()
    """Those of them whose cancel was answered 202."""
    hit: frozenset[str] = frozenset()
    """Handles of the nodes on which something was killed, or whose disk may have been full."""
    clocks_moved: bool = False
    """Whether the clock that the ledger counts by was set while nodes billed."""

    def and_of(self, other: Told) -> Told:
        """Of two runs on the same site."""
        return Told(
            {**self.names, **other.names},
            {**self.budgets, **other.budgets},
            self.cancelled | other.cancelled,
            self.sure | other.sure,
            self.hit | other.hit,
            self.clocks_moved or other.clocks_moved,
        )


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """What lies on the disk of one node."""

    path: Path
    journal_id: str
    first_seq: int
    records: Sequence[Row]
    torn: bool
    """Whether a line that is not the last one is no record."""
    processes: int
    """That still live there."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Read once, when everything has come to rest."""

    told: Told
    marks: Path
    """Where the jobs themselves left which generation of them began."""
    entries: Sequence[Entry]
    at: float
    """When the books were read."""
    busy: bool
    """Whether the machine has so much else to do that what the service does takes it minutes."""
    jobs: Mapping[str, Row]
    due: frozenset[str]
    nodes: Sequence[Row]
    events: Mapping[str, Sequence[Row]]
    transitions: Mapping[str, Sequence[Row]]
    gang_nodes: Sequence[Row]
    log_chunks: Sequence[Row]
    log_streams: Sequence[Row]
    metric_chunks: Sequence[Row]
    record: Sequence[record.Entry]
    files: Sequence[NodeFiles]
    objects: ObjectStore


def gather(database: Database, data_dir: Path, marks: Path, told: Told) -> Evidence:
    """Read it all. `data_dir`: the service's."""
    cloud = data_dir / "simulated"
    at = CloudClock(cloud, "sim").now()
    with Books(cloud / "sim.sqlite").writing() as page:
        entries = page.everything()
    return Evidence(
        told=told,
        marks=marks,
        entries=entries,
        at=at,
        busy=os.getloadavg()[0] > _BUSY_FROM * (os.cpu_count() or 1),
        jobs={row["id"]: row for row in _rows(database, tables.jobs)},
        due=frozenset(row["job_id"] for row in _rows(database, tables.job_due)),
        nodes=_rows(database, tables.nodes),
        events=_by_job(_rows(database, tables.events)),
        transitions=_by_job(_rows(database, tables.transitions)),
        gang_nodes=_rows(database, tables.gang_nodes),
        log_chunks=_rows(database, tables.log_chunks),
        log_streams=_rows(database, tables.log_streams),
        metric_chunks=_rows(database, tables.metric_chunks),
        record=record.read(database),
        files=[_node_files(path) for path in sorted((cloud / "sim.nodes").glob("sim-*"))],
        objects=ObjectStore(f"file://{data_dir / 'objects'}"),
    )


def _rows(database: Database, table: Table) -> list[Row]:
    order = list(table.primary_key.columns)
    return database.read(lambda conn: [dict(row) for row in conn.execute(select(table).order_by(*order)).mappings()])


def _by_job(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["job_id"], []).append(row)
    return found


def _node_files(path: Path) -> NodeFiles:
    lines = _lines(path / "journal" / "journal.jsonl")
    read = [_parsed(line) for line in lines]
    head = read[0] if read and read[0] is not None else {}
    whole = [entry for entry in read[1:] if entry is not None]
    return NodeFiles(
        path=path,
        journal_id=str(head.get("journal_id", "")),
        first_seq=int(head.get("first_seq", 1)),
        records=whole,
        torn=any(entry is None for entry in read[:-1]),
        processes=len(folders.NodeFolder(path).remains()),
    )


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
