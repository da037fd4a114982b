"""CPU time of a request, by kind and against the bare ceiling: it holds better than others on a machine at work.

    python benchmarks/control_plane/request_cpu.py [--rounds 60]

The applications run in this process, without a network, 16 requests at a time; each figure is the least of many short
rounds, of all threads together. SQLite always, PostgreSQL where SHUNTER_TEST_POSTGRES_URL names a server (whose own
time is not counted, here as in the ceiling).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, redirect_stderr
from pathlib import Path
from typing import Any

import bare_api
import uvloop
from api_load import DOCUMENT, JSON, database
from litestar import Litestar
from shunter_service import log_setup
from shunter_service.app import create_app
from shunter_service.context import open_service
from shunter_service.prepare import prepare
from shunter_service.settings import load_settings

CONCURRENCY = 16
IN_A_ROW = 3
Ask = Callable[[], Awaitable[dict[str, str]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    with redirect_stderr(Path(os.devnull).open("w")):  # lines are written as ever, and kept by nobody
        log_setup.set_up()
    for kind in ("sqlite", "postgresql"):
        with tempfile.TemporaryDirectory(prefix="shunter-bench-") as folder, ExitStack() as stack:
            url = stack.enter_context(database(kind, Path(folder)))
            if url is not None:
                os.environ |= {"SHUNTER_DATA_DIR": folder, "SHUNTER_DATABASE_URL": url}
                uvloop.run(report(kind, options.rounds))


async def report(kind: str, rounds: int) -> None:
    """Measure on the database that the environment names, and print."""
    data, settings = load_settings()
    headers = {"Authorization": f"Bearer {prepare(data)}"}
    service = open_service(data, settings)
    ours, bare = create_app(service), bare_api.create_app(service.db)
    service.db.write(lambda conn: bare_api.TABLE.create(conn))
    asks: dict[str, Ask] = {
        "POST": lambda: ask(ours, "POST", "/v1/jobs", {**headers, "Idempotency-Key": secrets.token_hex(16)}, DOCUMENT),
        "bare ceiling": lambda: ask(bare, "POST", "/v1/jobs", {}, DOCUMENT),
    }
    known = (await asks["POST"]())["location"]
    asks["GET by id"] = lambda: ask(ours, "GET", known, headers)
    asks["list of 50"] = lambda: ask(ours, "GET", "/v1/jobs", headers)
    least_us = dict.fromkeys(asks, float("inf"))
    for _ in range(rounds):
        for name, one in asks.items():
            began = time.process_time()
            await asyncio.gather(*(several(one) for _ in range(CONCURRENCY)))
            least_us[name] = min(least_us[name], 1e6 * (time.process_time() - began) / (CONCURRENCY * IN_A_ROW))
    await service.close()
    print(f"\n{kind}: POST against the ceiling {least_us['bare ceiling'] / least_us['POST']:.2f}")
    for name, us in least_us.items():
        print(f"{name:14s} {us:6.0f} us of CPU")


async def several(one: Ask) -> None:
    for _ in range(IN_A_ROW):
        await one()


async def ask(app: Litestar, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> dict[str, str]:
    """One request; the head of its answer."""
    arriving = [{"type": "http.request", "body": body, "more_body": False}]
    head: dict[str, str] = {}

    async def receive() -> Any:
        return arriving.pop()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] in (200, 201), message
            head.update((name.decode(), value.decode()) for name, value in message["headers"])

    lines = {"Host": "bench", **headers, **(JSON if body else {}), "Content-Length": str(len(body))}
    scope: Any = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in lines.items()],
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "state": {},
    }
    await app(scope, receive, send)
    return head


if __name__ == "__main__":
    main()
