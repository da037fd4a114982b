"""What a full database costs readers: jobs and lists by every filter at 1,000,000 jobs against the same at 1,000.

    python benchmarks/control_plane/million_rows.py [--rows 1000000] [--seconds 0.7] [--rounds 3]

SQLite always, PostgreSQL where SHUNTER_TEST_POSTGRES_URL names a server (`deploy/test-postgres.sh`). One API process
over each database; both are asked in turns at a concurrency of 16, and each line is the median over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from api_load import api, database
from http_load import Load, drive, request
from shunter_schemas.job import load_job
from shunter_service.web.cursors import encode_cursor
from shunter_store.sql.database import Database
from sqlalchemy import text

FEW = 1_000
FIRST_AT = 1_780_000_000.0
DOCUMENT = {
    "version": "1",
    "name": "sweep",
    "workload": {"kind": "script", "launcher": "plain", "command": ["python", "train.py", "--lr", "3e-4"]},
    "resources": {"cpu_processes": 2},
}


@dataclass(frozen=True, slots=True)
class Filled:
    """An API process over a database with so many jobs."""

    rows: int
    url: str
    headers: dict[str, str]

    def ask(self, path: Callable[[int], str], seconds: float) -> Load:
        return drive(self.url, lambda: request("GET", path(self.rows), self.headers), expect=200, seconds=seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=0.7, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start; {options.rows:,} jobs against {FEW:,}")
    for kind in ("sqlite", "postgresql"):
        with ExitStack() as stack:
            few = stack.enter_context(filled(kind, FEW))
            many = stack.enter_context(filled(kind, options.rows)) if few is not None else None
            if few is not None and many is not None:
                report(kind, few, many, options.seconds, options.rounds)


def report(kind: str, few: Filled, many: Filled, seconds: float, rounds: int) -> None:
    print(f"\n{kind:12s}            {few.rows:>9,} a second  {many.rows:>9,} a second   p99 ms   ratio  bytes")
    for name, path in QUESTIONS.items():
        for one in (few, many):  # warm
            one.ask(path, seconds / 3)
        pairs = [(few.ask(path, seconds), many.ask(path, seconds)) for _ in range(rounds)]
        ratio = statistics.median(full.per_second / empty.per_second for empty, full in pairs)
        slow, quick = (statistics.median(one.per_second for one in side) for side in zip(*pairs, strict=True))
        p99_ms = statistics.median(full.percentile_ms(99) for _, full in pairs)
        size = pairs[-1][1].answer_bytes
        print(f"{name:24s} {slow:18.0f}  {quick:18.0f} {p99_ms:8.1f} {ratio:7.2f} {size:6d}")


def job_id(number: int) -> str:
    """Ids of digits, in the order of age."""
    return f"job_{number:026d}"


def _any_job(rows: int) -> str:
    return f"/v1/jobs/{job_id(random.randrange(1, rows + 1))}"


def _page(query: str = "", depth: float = 0.0) -> Callable[[int], str]:
    """A list of 50 below so much of the jobs."""

    def path(rows: int) -> str:
        place = max(60, round(rows * (1 - depth)))
        cursor = f"&cursor={encode_cursor(FIRST_AT + place, job_id(place))}" if depth else ""
        return f"/v1/jobs?limit=50{query}{cursor}"

    return path


QUESTIONS: dict[str, Callable[[int], str]] = {
    "GET by id": _any_job,
    "list of 50": _page(),
    "  10 % down": _page(depth=0.1),
    "  90 % down": _page(depth=0.9),
    "  state=failed": _page("&state=failed"),
    "    failed, 90 % down": _page("&state=failed", depth=0.9),
    "  state=running": _page("&state=running"),
    "  two states": _page("&state=failed&state=cancelled"),
    "  label team=t3": _page(f"&label={quote('team=t3')}"),
    "    t3, 90 % down": _page(f"&label={quote('team=t3')}", depth=0.9),
    "  label team": _page("&label=team"),
    "  two labels": _page(f"&label={quote('team=t3')}&label={quote('stage=s1')}"),
    "  name": _page("&name=sweep-7"),
    "  name_prefix": _page("&name_prefix=sweep-7"),
    "  created_by": _page("&created_by=user-3"),
    "    and state": _page("&created_by=user-3&state=failed", depth=0.5),
}


@contextmanager
def filled(kind: str, rows: int) -> Iterator[Filled | None]:
    """An API over a database of its own, filled; None where there is no server for it."""
    with tempfile.TemporaryDirectory(prefix="shunter-bench-") as folder, ExitStack() as stack:
        url = stack.enter_context(database(kind, Path(folder)))
        if url is None:
            yield None
            return
        served = stack.enter_context(api(Path(folder), url))
        began = time.perf_counter()
        store = Database.connect(url)
        try:
            fill(store, rows)
        finally:
            store.close()
        if rows > FEW:
            print(f"{kind}: {rows:,} jobs written in {time.perf_counter() - began:.0f} s")
        yield Filled(rows, served.url, {"Authorization": f"Bearer {served.key}"})


def fill(store: Database, rows: int) -> None:
    """Jobs with labels, due rows, progress and moves, made by the database itself."""
    sqlite = store.dialect == "sqlite"
    if sqlite:
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)"
        id_ = "'job_' || printf('%026d', i)"
    else:
        numbers = "WITH n(i) AS (SELECT * FROM generate_series(1, :rows))"
        id_ = "'job_' || lpad(i::text, 26, '0')"
    spec = json.dumps(load_job(DOCUMENT).model_dump(mode="json"))
    values = {"rows": rows, "spec": spec, "document": json.dumps(DOCUMENT), "first": FIRST_AT}
    for into, select in TABLES.items():
        statement = f"INSERT INTO {into} {numbers} {select.format(id=id_)}"
        # SQLite keeps JSON as text.
        written = text(statement.replace("AS JSONB)", "AS TEXT)") if sqlite else statement)
        given = {name: values[name] for name in written._bindparams}
        store.write(lambda conn, written=written, given=given: conn.execute(written, given))  # type: ignore[misc]
    if not sqlite:
        store.write(lambda conn: conn.execute(text("ANALYZE")))


_STATE = (
    "CASE WHEN i % 5000 = 0 THEN 'running' WHEN i % 3001 = 0 THEN 'queued' WHEN i % 7 = 0 THEN 'failed' "
    "WHEN i % 31 = 0 THEN 'cancelled' ELSE 'succeeded' END"
)
_LABELS = """'{{"team": "t' || (i % 10) || '", "stage": "s' || (i % 3) || '"}}'"""
_AT = "CAST(:first AS DOUBLE PRECISION) + i"
TABLES = {
    "jobs (id, project, created_by, name, labels, priority, spec, state, health, generation, revision, event_seq, "
    "log_lines, facts, user_restarts, node_recoveries, created_at, updated_at, spec_text)": (
        f"SELECT {{id}}, 'default', 'user-' || (i % 20), 'sweep-' || (i % 1000), CAST({_LABELS} AS JSONB), 2, "
        f"CAST(:spec AS JSONB), {_STATE}, 'ok', 1, 9, 12, 40, CAST('{{{{}}}}' AS JSONB), 0, 0, {_AT}, {_AT}, "
        "CAST(:document AS TEXT) FROM n"
    ),
    "job_labels (job_id, project, key, value, created_at)": (
        f"SELECT {{id}}, 'default', k, CASE k WHEN 'team' THEN 't' || (i % 10) ELSE 's' || (i % 3) END, {_AT} "
        "FROM n, (SELECT 'team' AS k UNION ALL SELECT 'stage') AS keys"
    ),
    "job_due (job_id, urgency, wake, seen_wake, fence)": (
        "SELECT {id}, 2, 1, 1, 3 FROM n WHERE i % 5000 = 0 OR i % 3001 = 0"
    ),
    'progress (job_id, generation, at, step, total_steps, "values")': (
        f"SELECT {{id}}, 1, {_AT}, 300, 300, CAST('{{{{\"loss\": 2.5}}}}' AS JSONB) FROM n WHERE i % 3 > 0"
    ),
    'transitions (job_id, seq, at, "trigger", from_state, to_state, generation)': (
        f"SELECT {{id}}, 2, {_AT}, 'planned', 'queued', 'provisioning', 1 FROM n"
    ),
}


if __name__ == "__main__":
    main()
