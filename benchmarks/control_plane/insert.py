"""Accepted jobs a second: what the store allows a `POST /v1/jobs`, by number of threads.

    python benchmarks/control_plane/insert.py [--seconds 3] [--threads 1 4 16] [--url postgresql://…]

Each job is one transaction (job, labels, due row, event, hint); the service puts those that wait into one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from shunter_schemas.ids import new_id
from shunter_store.job import jobs
from shunter_store.migrate import upgrade
from shunter_store.sql.database import Database

SPEC = {
    "version": "1",
    "name": "tiny",
    "workload": {"kind": "training", "model": {"kind": "transformer", "layers": 2, "hidden": 64, "heads": 2}},
    "strategy": {"kind": "ddp", "bucket_mb": 25, "static_graph": False},
    "resources": {"cpu_processes": 2},
    "environment": {"variables": {f"NAME_{index}": "x" * 40 for index in range(25)}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--url", help="a database to fill; default: a new SQLite file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.url or f"sqlite:///{Path(folder) / 'shunter.db'}"
        upgrade(url)
        print(f"{len(json.dumps(SPEC))} bytes a document, {url.partition(':')[0]}")
        print("threads  jobs/s   p50 ms   p99 ms   max ms")
        for threads in given.threads:
            print(measured(url, threads, given.seconds))


def measured(url: str, threads: int, seconds: float) -> str:
    with closing(Database.connect(url)) as database:
        for _ in range(50):
            submit(database)
        start = threading.Barrier(threads)

        def work(_: int) -> list[float]:
            start.wait()
            took: list[float] = []
            end = time.perf_counter() + seconds
            while (begun := time.perf_counter()) < end:
                submit(database)
                took.append(time.perf_counter() - begun)
            return took

        with ThreadPoolExecutor(threads) as pool:
            took_ms = sorted(1000 * one for mine in pool.map(work, range(threads)) for one in mine)
    p50, p99 = took_ms[len(took_ms) // 2], took_ms[len(took_ms) * 99 // 100]
    return f"{threads:7d} {len(took_ms) / seconds:7.0f} {p50:8.2f} {p99:8.2f} {took_ms[-1]:8.1f}"


def submit(database: Database) -> None:
    job_id, text = new_id("job"), json.dumps(SPEC)
    database.write(
        lambda conn: jobs.insert(
            conn,
            job_id=job_id,
            project="default",
            created_by="benchmark",
            spec=SPEC,
            spec_text=text,
            name="tiny",
            labels={"team": "nlp"},
            priority=2,
        )
    )


if __name__ == "__main__":
    main()
