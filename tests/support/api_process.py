"""A real API process on loopback with a data directory of its own, and no worker: jobs stay as tests put them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from shunter_store.installation.settings import DataSettings
from shunter_store.sql.database import Database
from shunter_store.storage.objects import ObjectStore
from support.waiting import wait_until
from support.worker_part import WorkerPart


@dataclass(frozen=True, slots=True)
class ApiProcess:
    """Where it is, and its database for tests that play the worker's part."""

    url: str
    key: str
    data_dir: Path
    database: Database
    start: Callable[[], subprocess.Popen[bytes]]
    processes: list[subprocess.Popen[bytes]]

    def kill(self) -> None:
        """End the process without a word to it."""
        self.processes[-1].kill()
        self.processes[-1].wait()

    def start_again(self) -> None:
        """A new process at the same address; it is waited for by whoever asks it something."""
        self.processes.append(self.start())

    def worker_part(self, job_id: str) -> WorkerPart:
        """The hand that moves a job, in place of a worker and a node."""
        return WorkerPart(self.database, ObjectStore(DataSettings(data_dir=self.data_dir).objects_url), job_id)


@contextmanager
def running_api(data_dir: Path, database_url: str | None = None) -> Iterator[ApiProcess]:
    """The API, from ready to ended; its address and key lie in the data directory as `shunter up` leaves them.

    Args:
        data_dir: what the process calls its own.
        database_url: another database than the SQLite file in `data_dir`.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}
    environ["SHUNTER_DATA_DIR"] = str(data_dir)
    if database_url is not None:
        environ["SHUNTER_DATABASE_URL"] = database_url
    subprocess.run([sys.executable, "-m", "shunter_service", "prepare"], env=environ, check=True)
    with socket.create_server(("127.0.0.1", 0)) as listener, (data_dir / "api.log").open("wb") as log:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        (data_dir / "api-url").write_text(f"{url}\n")
        command = [sys.executable, "-m", "shunter_service", "api", "--fd", str(listener.fileno())]

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(command, env=environ, pass_fds=(listener.fileno(),), stdout=log, stderr=log)

        processes = [start()]
        try:
            wait_until(lambda: _is_ready(url), timeout_s=120, description="the API answers")
            database = Database.connect(database_url or DataSettings(data_dir=data_dir).database_url)
            key = (data_dir / "api-key").read_text().strip()
            yield ApiProcess(url, key, data_dir, database, start, processes)
            database.close()
        finally:
            processes[-1].terminate()
            processes[-1].wait(20)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=2, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
