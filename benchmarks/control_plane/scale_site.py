"""A whole service for `scale.py`: a database, `shunter up`, and a simulated cloud whose agents a fleet plays.

And what each of these uses, and how to kill all of them at once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from idle_memory import descendants

REPOSITORY = Path(__file__).parents[2]
POSTGRES = REPOSITORY / "deploy" / "test-postgres.sh"
PARTS = ("api", "worker", "redis", "database", "agents", "supervisor")
_READY_WITHIN_S = 180.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Site:
    """What runs. Paths are below `home`."""

    home: Path
    database: str
    api_processes: int = 1
    up: subprocess.Popen[bytes] | None = None
    used_by_dead_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    @property
    def data_dir(self) -> Path:
        return self.home / "data"

    @property
    def postgres_dir(self) -> Path:
        return self.home / "pg"

    @property
    def database_url(self) -> str:
        if self.database == "sqlite":
            return f"sqlite:///{self.data_dir / 'shunter.db'}"
        return f"postgresql://postgres@/postgres?host={self.postgres_dir}"

    @property
    def url(self) -> str:
        return (self.data_dir / "api-url").read_text().strip()

    @property
    def api_key(self) -> str:
        return (self.data_dir / "api-key").read_text().strip()

    @property
    def books(self) -> Path:
        return self.data_dir / "simulated" / "sim.sqlite"

    def start_up(self) -> float:
        """Start `shunter up`; seconds until it was ready.

        Raises:
            RuntimeError: it ended or was not ready in time.
        """
        began = time.monotonic()
        log = self.home / "up.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}
        command = [sys.executable, "-m", "shunter_service", "up", "--data-dir", str(self.data_dir)]
        command += ["--api-processes", str(self.api_processes)]
        at = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            self.up = subprocess.Popen(command, env=kept, stdout=out, stderr=out)
        while b"\nready" not in log.read_bytes()[at:]:
            if self.up.poll() is not None or time.monotonic() > began + _READY_WITHIN_S:
                raise RuntimeError(f"`shunter up` did not become ready: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        return time.monotonic() - began

    def kill_everything(self, *, and_agents: bool = False) -> None:
        """SIGKILL to every process of the service and to the database. The agents live on: they are other machines."""
        assert self.up is not None
        fleet = self.fleet_pid() if and_agents else None
        for part, used_s in self.used_s().items():
            if part != "agents" or fleet is not None:
                self.used_by_dead_s[part] = used_s
        for pid in (*self._pids(self.up.pid), *self._postgres_pids(), *((fleet,) if fleet is not None else ())):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.up.wait(10)
        time.sleep(1.0)

    def restart_database(self) -> None:
        """PostgreSQL again after a kill; it recovers."""
        if self.database == "sqlite":
            return
        data = self.postgres_dir / "data"
        for left in (data / "postmaster.pid", self.postgres_dir / ".s.PGSQL.5432.lock"):
            left.unlink(missing_ok=True)  # the dead one may stay as a zombie, which PostgreSQL takes for alive
        options = f"-k '{self.postgres_dir}' -c listen_addresses= {_POSTGRES_OPTIONS}"
        start = [_pg_ctl(), "--pgdata", str(data), "--log", str(data / "server.log"), "--wait", "--timeout", "120"]
        as_owner = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        with (data / "start.log").open("wb") as out:
            subprocess.run([*as_owner, *start, "--options", options, "start"], check=True, stdout=out, stderr=out)

    def used_s(self) -> dict[str, float]:
        """Processor seconds of each part so far."""
        used = dict(self.used_by_dead_s)
        if self.up is not None and self.up.poll() is None:
            for process in descendants(self.up.pid):
                used[_part_of(process.name)] += _used_s(process.pid)
        for pid in self._postgres_pids():
            used["database"] += _used_s(pid)
        if (fleet := self.fleet_pid()) is not None:
            used["agents"] += _used_s(fleet)
        return used

    def worker_pss_mb(self) -> float:
        """Of the worker group."""
        assert self.up is not None
        return sum(process.pss_mb for process in descendants(self.up.pid) if _part_of(process.name) == "worker")

    def api_pss_mb(self) -> float:
        """Of the API process."""
        assert self.up is not None
        return sum(process.pss_mb for process in descendants(self.up.pid) if _part_of(process.name) == "api")

    def fleet_pid(self) -> int | None:
        """The process that plays the agents."""
        with suppress(OSError, ValueError, StopIteration):
            pid = int(next(self.data_dir.rglob("*.fleet.lock")).read_text())
            return pid if b"simulated.fleet" in Path(f"/proc/{pid}/cmdline").read_bytes() else None
        return None

    def _pids(self, root: int) -> list[int]:
        return [process.pid for process in descendants(root)]

    def _postgres_pids(self) -> list[int]:
        if self.database == "sqlite":
            return []
        with suppress(OSError, ValueError):
            main = int((self.postgres_dir / "data" / "postmaster.pid").read_text().split()[0])
            return self._pids(main) if Path(f"/proc/{main}").exists() else []
        return []


@contextmanager
def site(home: Path, database: str, cloud: dict[str, Any], settings: str, api_processes: int = 1) -> Iterator[Site]:
    """Everything started; at the end everything stopped, the agents too."""
    made = Site(home, database, api_processes)
    made.data_dir.mkdir(parents=True)
    if database == "postgresql":
        subprocess.run([str(POSTGRES), "start", str(made.postgres_dir)], check=True, stdout=subprocess.DEVNULL)
    lines = [f"database_url = {json.dumps(made.database_url)}", settings, '[providers.sim]\nplugin = "simulated"']
    lines += ["[providers.sim.settings]", *(f"{name} = {_toml(value)}" for name, value in cloud.items())]
    (made.data_dir / "shunter.toml").write_text("\n".join(lines) + "\n")
    try:
        made.start_up()
        yield made
    finally:
        if made.up is not None and made.up.poll() is None:
            made.up.send_signal(signal.SIGTERM)
            made.up.wait(60)
        if (fleet := made.fleet_pid()) is not None:
            os.kill(fleet, signal.SIGKILL)
        if database == "postgresql":
            subprocess.run([str(POSTGRES), "stop", str(made.postgres_dir)], check=False)


_POSTGRES_OPTIONS = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=200"


def _pg_ctl() -> str:
    return str(max(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3])))


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def _part_of(command: str) -> str:
    marks = {"shunter_workers": "worker", "shunter_service api": "api", "unixsocket": "redis"}
    return next((part for mark, part in marks.items() if mark in command), "supervisor")


def _used_s(pid: int) -> float:
    """Of the process, and of its children that have ended."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(fields[index]) for index in (11, 12, 13, 14)) / _TICKS
    return 0.0
