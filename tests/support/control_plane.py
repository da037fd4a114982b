"""A whole control plane of real processes on loopback: Valkey, the API, a worker group; each can be killed and started.

Not the supervisor's: a test says itself what dies and what comes back.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from shunter_providers.machine import folders, processes
from shunter_service.up import broker
from shunter_store.installation.settings import DataSettings
from shunter_store.sql.database import Database
from support import proc
from support.fleets import end_fleets
from support.waiting import wait_until

_LOOPBACK = "127.0.0.1"
_EVENTS = 500
"""As many the API gives at once."""
_NO_REUSE = httpx.Limits(max_keepalive_connections=0)
TERMINAL = {"succeeded", "failed", "cancelled"}


def plain(*command: str, **parts: Any) -> dict[str, Any]:
    """A job document that runs one command as one process on one CPU slot."""
    return {
        "version": "1",
        "name": "plain",
        "workload": {"kind": "script", "launcher": "plain", "command": list(command)},
        "resources": {"cpu_processes": 1},
        **parts,
    }


@dataclass
class ControlPlane:
    """One data directory and the processes that serve it."""

    data_dir: Path
    redis_dir: Path
    environ: dict[str, str]
    port: int = 0
    address: str = _LOOPBACK
    """Where the API listens; nodes on hosts of their own reach no loopback."""
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60, trust_env=False, limits=_NO_REUSE))
    """Made once: that takes longer than a request. Each request has a connection of its own."""
    roles: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    # --- processes ---------------------------------------------------------------------------------------------

    def start_redis(self) -> None:
        argv = broker.server_argv(broker.find_server(), self.socket, self.data_dir / "redis")
        self.roles["redis"] = self._start("redis", argv)
        wait_until(lambda: broker.ping(self.socket), description="Valkey answers")

    def start_api(self) -> None:
        with socket.create_server((self.address, self.port)) as listener:
            self.port = listener.getsockname()[1]
            if self.address != _LOOPBACK:
                self.environ["SHUNTER_PUBLIC_URL"] = self.url
            (self.data_dir / "api-url").write_text(f"{self.url}\n")
            command = (sys.executable, "-m", "shunter_service", "api", "--fd", str(listener.fileno()))
            self.roles["api"] = self._start("api", command, pass_fds=(listener.fileno(),))
        wait_until(self._is_ready, timeout_s=90, description="the API answers")

    def start_worker(self) -> None:
        self.roles["worker"] = self._start("worker", (sys.executable, "-m", "shunter_workers"))
        wait_until(lambda: len(self.children()) == 2, timeout_s=90, description="both worker children live")

    def kill(self, role: str) -> None:
        """SIGKILL; what lives on by its own design does."""
        process = self.roles.pop(role)
        process.kill()
        process.wait(10)

    def stop(self, role: str) -> int:
        """SIGTERM; returns the exit status."""
        process = self.roles.pop(role)
        process.terminate()
        return process.wait(20)

    def children(self) -> list[int]:
        """The pids of the worker's children that show life."""
        run = self.data_dir / "run"
        return [pid for pid in proc.children(self.roles["worker"].pid) if (run / f"alive-{pid}").exists()]

    def agents(self) -> dict[str, processes.ProcessIdentity]:
        """Living agents by their node's token."""
        found = {}
        for folder in self._node_folders():
            agent = folder.agent()
            if agent is not None and processes.is_alive(agent):
                found[folder.token] = agent
        return found

    def ranks(self) -> list[int]:
        """The pids of living ranks."""
        return [rank for agent in self.agents().values() for rank in self.ranks_of(agent.pid)]

    def ranks_of(self, agent: int) -> list[int]:
        """The pids of living ranks of the agent with this pid."""
        started = proc.children(agent)
        return [pid for pid in started if "SHUNTER_GENERATION" in proc.environ(pid) and proc.lives(pid)]

    # --- the API -----------------------------------------------------------------------------------------------

    def submit(self, document: dict[str, Any]) -> str:
        answer = self.http("POST", "/v1/jobs", json=document)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        answer = self.http("GET", f"/v1/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def cancel(self, job_id: str) -> None:
        answer = self.http("POST", f"/v1/jobs/{job_id}/cancel")
        assert answer.status_code == 202, answer.text

    def events(self, job_id: str) -> list[dict[str, Any]]:
        """All of them, the oldest first."""
        items: list[dict[str, Any]] = []
        while True:
            query = {"limit": _EVENTS, "after": items[-1]["seq"] if items else 0}
            answer = self.http("GET", f"/v1/jobs/{job_id}/events", params=query)
            assert answer.status_code == 200, answer.text
            page = answer.json()["items"]
            items += page
            if len(page) < _EVENTS:
                return items

    def lines(self, job_id: str) -> list[str]:
        """Everything that the ranks wrote, in order."""
        answer = self.http("GET", f"/v1/jobs/{job_id}/logs")
        assert answer.status_code == 200, answer.text
        return [str(line["text"]) for line in answer.json()["items"]]

    def wait_for(self, job_id: str, *states: str, timeout_s: float = 30.0) -> dict[str, Any]:
        """The job once it is in one of the states; fails at once when it ended otherwise."""
        seen: dict[str, Any] = {}

        def reached() -> bool:
            seen.update(self.job(job_id))
            assert seen["state"] in states or seen["state"] not in TERMINAL, json.dumps(seen, indent=1)
            return seen["state"] in states

        wait_until(reached, timeout_s=timeout_s, description=f"{job_id} is {' or '.join(states)}")
        return seen

    def http(self, method: str, path: str, headers: Mapping[str, str] | None = None, **parts: Any) -> httpx.Response:
        key = (self.data_dir / "api-key").read_text().strip()
        sent = {"Authorization": f"Bearer {key}", **(headers or {})}
        return self.client.request(method, f"{self.url}{path}", headers=sent, **parts)

    @contextmanager
    def database(self) -> Iterator[Database]:
        with closing(Database.connect(DataSettings(data_dir=self.data_dir).database_url)) as opened:
            yield opened

    # --- plumbing ----------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"

    @property
    def socket(self) -> Path:
        return self.redis_dir / "redis.sock"

    def log(self, role: str) -> str:
        return (self.data_dir / "logs" / f"{role}.log").read_text(errors="replace")

    def end(self) -> None:
        """Everything, nodes included."""
        for role in list(self.roles):
            process = self.roles.pop(role)
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
        for folder in self._node_folders():
            for left in folder.remains():
                processes.send(left, signal.SIGKILL)
        end_fleets(self.data_dir)
        self.client.close()

    def _node_folders(self) -> list[folders.NodeFolder]:
        """Of `local` nodes and of simulated ones."""
        paths = [*self.data_dir.glob("nodes/shn-*"), *self.data_dir.glob("simulated/*.nodes/sim-*")]
        return [folders.NodeFolder(path) for path in paths]

    def _start(self, role: str, argv: tuple[str, ...], pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        with (self.data_dir / "logs" / f"{role}.log").open("ab") as log:
            return subprocess.Popen(argv, env=self.environ, stdout=log, stderr=log, pass_fds=pass_fds)

    def _is_ready(self) -> bool:
        with suppress(httpx.TransportError):
            return self.client.get(f"{self.url}/readyz", timeout=2).status_code == 200
        return False


@contextmanager
def control_plane(data_dir: Path, address: str = _LOOPBACK, **settings: str) -> Iterator[ControlPlane]:
    """Everything up; `settings` are variables of the environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}
    with tempfile.TemporaryDirectory(prefix="shn") as redis_dir:  # short: a socket's path holds 108 bytes
        for folder in ("logs", "redis", "run"):
            (data_dir / folder).mkdir(mode=0o700, parents=True)
        environ = kept | {
            "SHUNTER_DATA_DIR": str(data_dir),
            "SHUNTER_REDIS_URL": broker.url_of(Path(redis_dir) / "redis.sock"),
            "PYTHONWARNINGS": "error",
            **settings,
        }
        plane = ControlPlane(data_dir, Path(redis_dir), environ, address=address)
        try:
            subprocess.run([sys.executable, "-m", "shunter_service", "prepare"], env=environ, check=True)
            plane.start_redis()
            plane.start_api()
            plane.start_worker()
            yield plane
        finally:
            plane.end()
