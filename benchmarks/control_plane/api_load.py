"""What one API process serves at a concurrency of 16: jobs accepted, against a bare ceiling; jobs read; lists of 50.

    python benchmarks/control_plane/api_load.py [--seconds 1.2] [--pairs 5]

SQLite always, PostgreSQL where SHUNTER_TEST_POSTGRES_URL names a server (`deploy/test-postgres.sh`). The ceiling is
`bare_api.py`; ours also writes the due row, the event, the hint and the Idempotency-Key. Both run side by side in one
run and take turns, so that the ratio holds on a machine on which the figures themselves do not.
"""

from __future__ import annotations

import argparse
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from http_load import Load, drive, first_id, request
from sqlalchemy import make_url

HERE = Path(__file__).parent
DOCUMENT = (HERE.parents[1] / "examples" / "tiny-lm-ddp.json").read_bytes()
JSON = {"Content-Type": "application/json"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.2, help="length of each measurement")
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start; {len(DOCUMENT)} bytes a document")
    for kind in ("sqlite", "postgresql"):
        with tempfile.TemporaryDirectory(prefix="shunter-bench-") as folder, ExitStack() as stack:
            url = stack.enter_context(database(kind, Path(folder)))
            if url is not None:
                report(kind, url, Path(folder), seconds=options.seconds, pairs=options.pairs)


def report(kind: str, database_url: str, folder: Path, *, seconds: float, pairs: int) -> None:
    """Measure on one database, and print."""
    with api(folder, database_url) as served, bare(database_url) as bare_url:
        url, headers = served.url, {"Authorization": f"Bearer {served.key}"}

        def ours() -> Load:
            return drive(url, lambda: submission(headers), expect=201, seconds=seconds)

        def ceiling() -> Load:
            return drive(bare_url, lambda: request("POST", "/v1/jobs", JSON, DOCUMENT), expect=201, seconds=seconds)

        ours(), ceiling()  # warm
        measured = [(ours(), ceiling()) if pair % 2 else (ceiling(), ours())[::-1] for pair in range(pairs)]
        ratios = [mine.per_second / bare.per_second for mine, bare in measured]
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        print(f"\n{kind}: POST against the ceiling {statistics.median(ratios):.2f} (median of {pairs} pairs, {spread})")
        print("                      a second   p50 ms   p99 ms  bytes")
        print(line("POST /v1/jobs", [mine for mine, _ in measured]))
        print(line("bare ceiling", [bare for _, bare in measured]))
        read = request("GET", f"/v1/jobs/{first_id(url, headers)}", headers)
        print(line("GET by id", [drive(url, lambda: read, expect=200, seconds=seconds)]))
        page = request("GET", "/v1/jobs?limit=50", headers)
        print(line("list of 50", [drive(url, lambda: page, expect=200, seconds=seconds)]))


def line(name: str, loads: Sequence[Load]) -> str:
    """One line of figures: medians over the loads."""
    rate, p50, p99 = (
        statistics.median(figure)
        for figure in zip(
            *((one.per_second, one.percentile_ms(50), one.percentile_ms(99)) for one in loads), strict=True
        )
    )
    return f"{name:20s} {rate:10.0f} {p50:8.2f} {p99:8.2f} {loads[-1].answer_bytes:6d}"


def submission(headers: dict[str, str]) -> bytes:
    """A job with an Idempotency-Key that was never used."""
    return request("POST", "/v1/jobs", {**headers, **JSON, "Idempotency-Key": secrets.token_hex(16)}, DOCUMENT)


@dataclass(frozen=True, slots=True)
class Api:
    """An API process: where it serves, a key that it knows, and its process id."""

    url: str
    key: str
    pid: int


@contextmanager
def api(folder: Path, database_url: str) -> Iterator[Api]:
    """The API process alone: no worker takes up the jobs."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}
    environ |= {"SHUNTER_DATA_DIR": str(folder), "SHUNTER_DATABASE_URL": database_url}
    module = [sys.executable, "-m", "shunter_service"]
    subprocess.run([*module, "prepare"], env=environ, check=True, stdout=subprocess.DEVNULL)
    with serving([*module, "api"], environ) as (url, pid):
        yield Api(url, (folder / "api-key").read_text().strip(), pid)


@contextmanager
def bare(database_url: str) -> Iterator[str]:
    with serving([sys.executable, str(HERE / "bare_api.py"), "--url", database_url], dict(os.environ)) as (url, _):
        yield url


@contextmanager
def serving(command: Sequence[str], environ: dict[str, str]) -> Iterator[tuple[str, int]]:
    """A server on a socket of its own, from its first answer to its end: its URL and process id."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        fd = listener.fileno()
        process = subprocess.Popen(
            [*command, "--fd", str(fd)],
            env=environ,
            pass_fds=(fd,),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until_ready(url, process)
            yield url, process.pid
        finally:
            process.terminate()
            process.wait(20)


def wait_until_ready(url: str, process: subprocess.Popen[bytes], within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=2):
                return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.1)
    raise RuntimeError(f"{process.args!r} did not become ready")


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str | None]:
    """A database of this run's own; None where there is no server for it."""
    server = os.environ.get("SHUNTER_TEST_POSTGRES_URL")
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'shunter.db'}"
    elif server is None:
        print("\npostgresql: left out, SHUNTER_TEST_POSTGRES_URL names no server")
        yield None
    else:
        name = f"shunter_bench_{secrets.token_hex(4)}"
        with closing(psycopg.connect(server, autocommit=True)) as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
            try:
                yield make_url(server).set(database=name).render_as_string(hide_password=False)
            finally:
                admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


if __name__ == "__main__":
    main()
