"""What one API process holds over many requests: RSS every 10,000 of them, and the slope.

    python benchmarks/control_plane/request_slope.py [--requests 100000]

SQLite always, PostgreSQL where SHUNTER_TEST_POSTGRES_URL names a server. Of ten requests four read a job, two list 50,
one submits with a new Idempotency-Key and one repeats it, one is refused (422), and one asks for a job that does not
exist; at a concurrency of 16, over connections that are closed every 10,000 requests.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import secrets
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from api_load import DOCUMENT, JSON, Api, api, database
from http_load import request, send_all

EACH = 10_000
REFUSED = DOCUMENT.replace(b'"version": "1"', b'"version": "9"')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    for kind in ("sqlite", "postgresql"):
        with tempfile.TemporaryDirectory(prefix="shunter-bench-") as folder, ExitStack() as stack:
            url = stack.enter_context(database(kind, Path(folder)))
            if url is not None:
                report(kind, stack.enter_context(api(Path(folder), url)), options.requests)


def report(kind: str, served: Api, requests: int) -> None:
    headers = {"Authorization": f"Bearer {served.key}"}
    time.sleep(2)
    print(f"\n{kind}: RSS idle {rss_mb(served.pid):.1f} MB")
    held: list[float] = []
    began = time.perf_counter()
    statuses: Counter[int] = Counter()
    for done in range(0, requests, EACH):
        known = asyncio.run(send_all(served.url, [submission(headers) for _ in range(16)], Counter()))
        mixed = [one for _ in range(min(EACH, requests - done) // 10) for one in ten(headers, known)]
        random.shuffle(mixed)
        asyncio.run(send_all(served.url, mixed, statuses))
        held.append(rss_mb(served.pid))
        print(f"  {done + len(mixed):>7,} requests  RSS {held[-1]:6.1f} MB  {time.perf_counter() - began:5.0f} s")
    print(f"  answers by status: {dict(sorted(statuses.items()))}")
    later = held[len(held) // 2 :]
    if len(later) > 2:
        slope, _ = statistics.linear_regression(range(len(later)), later)
        print(f"  slope over the second half: {slope:+.2f} MB per {EACH:,} requests")


def ten(headers: dict[str, str], known: Sequence[str]) -> list[bytes]:
    """Ten requests, in the mix that the head of this file names."""
    reads = [request("GET", place, headers) for place in random.choices(known, k=4)]
    lists = [request("GET", "/v1/jobs?limit=50", headers), request("GET", "/v1/jobs?limit=50&state=queued", headers)]
    submitted = submission(headers)
    refused = request("POST", "/v1/jobs", headers | JSON, REFUSED)
    missing = request("GET", f"/v1/jobs/job_{random.randrange(10**25):026d}", headers)
    return [*reads, *lists, submitted, submitted, refused, missing]


def submission(headers: dict[str, str]) -> bytes:
    return request("POST", "/v1/jobs", {**headers, **JSON, "Idempotency-Key": secrets.token_hex(16)}, DOCUMENT)


def rss_mb(pid: int) -> float:
    """Resident memory of a process, in 10^6 bytes."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024 / 1e6


if __name__ == "__main__":
    main()
