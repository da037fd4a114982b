"""Reads the cloud's own books, the database and the API after a run, and names every promise that was broken."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from shunter_providers.simulated.books import Books
from shunter_providers.simulated.entries import Entry
from shunter_schemas.states import State
from shunter_store.lifecycle import OUTCOME, TABLE
from shunter_store.tables import nodes
from sqlalchemy import select
from support.control_plane import ControlPlane

from chaos.programs import SHOUT

# A node's bill may differ by this much: the ledger counts from the handle to the proof of absence, and at the offered
# price until a scan shows the billed one. A minute of the cheapest type.
_SLACK_USD = 0.2 / 60

_MOVES = {(row.state, row.target) for row in TABLE if row.target is not None} | {
    (State.STOPPING, ending) for ending in OUTCOME.values()
}


def broken(plane: ControlPlane, books: Books, folder: Path, jobs: dict[str, str]) -> list[str]:
    """Every violation, in words. `jobs`: names by id."""
    with books.writing() as page:
        entries, living = page.everything(), page.living(time.time())
    found = [f"no_node_is_left: {entry.handle} still exists and bills" for entry in living]
    found += _against_the_ledger(plane, entries)
    for job_id, name in jobs.items():
        job = plane.job(job_id)
        found += [f"{name}: {fault}" for fault in (*_job(job), *_events(plane, job_id), *_lines(plane, job))]
        found += [f"{name}: {fault}" for fault in _generations(folder / f"{name}.generations")]
    return found


def _job(job: dict[str, Any]) -> Iterator[str]:
    if job["state"] not in ("succeeded", "failed", "cancelled"):
        yield f"no_job_is_lost: it is {job['state']} and does not end"
    yield from (
        f"no_node_is_left: {node['handle']} is {node['state']}" for node in job["nodes"] if node["state"] != "gone"
    )
    states = [State(move["to"]) for move in job["transitions"]]
    for move in pairwise(states):
        if move not in _MOVES and move[0] != move[1]:
            yield f"every_move_is_in_the_table: {move[0]} to {move[1]}"


def _events(plane: ControlPlane, job_id: str) -> Iterator[str]:
    numbers = [event["seq"] for event in plane.events(job_id)]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"events_are_gapless: {numbers}"


def _lines(plane: ControlPlane, job: dict[str, Any]) -> Iterator[str]:
    lines = plane.lines(job["id"])
    if SHOUT in lines:
        yield "one_gang_at_a_time: two ran at once"
    twice = [line for line, times in Counter(lines).items() if times > 1]
    if twice:
        yield f"every_log_line_once: {twice[:3]} came more than once"
    last = [line for line in lines if line.startswith(f"line {job['generation']} ")]
    if job["state"] == "succeeded" and [int(line.split()[2]) for line in last] != list(range(len(last))):
        yield f"every_log_line_once: of the generation that succeeded there are {last[:50]}"
    if job["state"] == "succeeded" and not last:
        yield "every_log_line_once: the generation that succeeded left none"


def _generations(file: Path) -> Iterator[str]:
    """Generations only ever grow, and none starts twice."""
    started = [int(line) for line in file.read_text().split()] if file.exists() else []
    if any(after <= before for before, after in pairwise(started)):
        yield f"one_gang_at_a_time: the generations that started are {started}"


def _against_the_ledger(plane: ControlPlane, entries: Sequence[Entry]) -> Iterator[str]:
    with plane.database() as database:
        rows = database.read(lambda conn: conn.execute(select(nodes)).mappings().all())
    known = {row["handle"]: row for row in rows if row["handle"] is not None}
    tokens = {row["token"] for row in rows}
    now = time.time()
    for entry in entries:
        if entry.token not in tokens:
            yield f"a_row_before_every_create: {entry.handle} was made for {entry.token}, which no row knows"
        row = known.get(entry.handle)
        if row is None:
            continue  # a twin or a left-over: that it is gone is checked with the rest
        billed, kept = entry.cost_usd(now), row["accrued_usd"]
        if kept + _SLACK_USD < billed or kept > billed + _SLACK_USD:
            yield f"the_ledger_is_the_bill: {entry.handle} cost {billed:.6f} USD, the ledger says {kept:.6f}"
    reused = [handle for handle, times in Counter(row["handle"] for row in rows if row["handle"]).items() if times > 1]
    if reused:
        yield f"one_row_for_a_handle: {reused}"
