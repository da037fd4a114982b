"""What chaos is played on: a control plane in one of two settings, with everything that can be made to go wrong.

`embedded`: SQLite, one API, one worker group, Redis on a socket, as `shunter up` has it. `deployed`: PostgreSQL, two
APIs, two worker groups and Redis over TCP, and a line with weather wherever two of them talk.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
from shunter_service.up import broker
from shunter_store.installation.settings import DataSettings
from shunter_store.sql.database import Database
from support import proc
from support.clocks import set_clock, settable_clock
from support.control_plane import ControlPlane
from support.faulty_line import CLEAR, FaultyLine, faulty_line
from support.own_namespaces import FarNetwork
from support.postgres_server import PostgresServer, make_server, remove_server
from support.waiting import wait_until

Setting = Literal["embedded", "deployed"]

STEP_LEASE_S = 8.0
"""Of the settings below: a worker that stands still for longer has lost its claims."""
_QUICK = {
    "SHUNTER_TIMING__STEP_LEASE_S": str(STEP_LEASE_S),
    "SHUNTER_TIMING__SINGLETON_LEASE_S": "4",
    "SHUNTER_PACE__QUIET_S": "1",
}
_ANSWERS_WITHIN_S = 600.0
"""A process takes minutes to start on a machine that is busy with much else."""
_LOOK_EVERY_S = 0.2
"""A request costs the processor about as much as a step of a job: it is not the players' to use up."""


@dataclass
class Site(ControlPlane):
    """A control plane whose every part can die, pause, be cut off, or have its clock set."""

    postgres: PostgresServer | None = None
    wires: dict[str, FaultyLine] = field(default_factory=dict)
    """By name: `nodes-api`, and in a deployed setting `workers-redis`, `api-sql`, `worker-sql`, `worker-2-sql`."""
    ports: dict[str, int] = field(default_factory=dict)
    host: str = "127.0.0.1"
    """Where everything listens, besides loopback."""
    ways: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What comes before the command of a role, e.g. to run it in another network."""
    has_clocks: bool = False
    broker_program: Path = field(default_factory=broker.find_server)
    deaths: list[str] = field(default_factory=list)
    """Roles that ended by themselves and were started again, as a supervisor does."""

    # --- what there is -----------------------------------------------------------------------------------------

    @property
    def apis(self) -> list[str]:
        return ["api", "api-2"] if self.postgres else ["api"]

    @property
    def group_size(self) -> int:
        """Processes of a worker group that step jobs; there are two in all."""
        return 2 // len(self.workers)

    @property
    def workers(self) -> list[str]:
        return ["worker", "worker-2"] if self.postgres else ["worker"]

    def children(self) -> list[int]:
        """Of all worker groups."""
        return [pid for name in self.workers if name in self.roles for pid in self.children_of(name)]

    def children_of(self, worker: str) -> list[int]:
        run = self.data_dir / "run"
        return [pid for pid in proc.children(self.roles[worker].pid) if (run / f"alive-{pid}").exists()]

    def ranks_by_node(self) -> dict[int, str]:
        """The handle of its node for each living rank, by its pid."""
        agents = self.agents().items()
        return {rank: handle for handle, agent in agents for rank in self.ranks_of(agent.pid)}

    def handles(self) -> set[str]:
        """Of every node that was ever started."""
        return {folder.token for folder in self._node_folders()}

    # --- start, end, revive ------------------------------------------------------------------------------------

    def start_redis(self) -> None:
        argv = broker.server_argv(self.broker_program, self.socket, self.data_dir / "redis")
        if "redis" in self.ports:
            argv = (*argv, "--port", str(self.ports["redis"]), "--bind", self.host, "--protected-mode", "no")
        self.roles["redis"] = self._start("redis", argv)
        wait_until(lambda: broker.ping(self.socket), description="the broker answers")

    def start_api(self, name: str = "api") -> None:
        command = (sys.executable, "-m", "shunter_service", "api", "--host", self.host, "--port", str(self.ports[name]))
        self.roles[name] = self._start(name, command)

    def start_worker(self, name: str = "worker") -> None:
        self.roles[name] = self._start(name, (sys.executable, "-m", "shunter_workers"))

    def lead_nodes_by(self, line: FaultyLine) -> None:
        """Nodes reach the API by this line."""
        self.wires["nodes-api"] = line
        (self.data_dir / "api-url").write_text(f"{line.url}\n")

    def start(self, role: str) -> None:
        """Start a role by its name, if it does not run."""
        if role in self.roles:
            return
        if role == "redis":
            self.start_redis()
        elif role in self.apis:
            self.start_api(role)
        else:
            self.start_worker(role)

    def revive(self) -> None:
        """Start what ended by itself, as every supervisor does."""
        for role, process in list(self.roles.items()):
            if process.poll() is not None:
                self.deaths.append(role)
                del self.roles[role]
                self.start(role)

    def wait_until_it_works(self) -> None:
        """Every part runs and answers."""
        wait_until(
            self._works, timeout_s=_ANSWERS_WITHIN_S, every_s=_LOOK_EVERY_S, description="every API and worker works"
        )

    # --- the API -----------------------------------------------------------------------------------------------

    def http(self, method: str, path: str, headers: Mapping[str, str] | None = None, **parts: Any) -> httpx.Response:
        """By the first API that takes the call; raises `httpx.TransportError` when none does."""
        key = (self.data_dir / "api-key").read_text().strip()
        sent = {"Authorization": f"Bearer {key}", **(headers or {})}
        for port in [self.ports[name] for name in self.apis]:
            with suppress(httpx.ConnectError):
                url = f"http://{self.host}:{port}{path}"
                return self.client.request(method, url, headers=sent, timeout=10, **parts)
        raise httpx.ConnectError("no API takes connections")

    def ask(self, method: str, path: str, within_s: float = _ANSWERS_WITHIN_S, **parts: Any) -> httpx.Response:
        """Like a client that does not give up: until something answers that is not 5xx."""
        found: list[httpx.Response] = []

        def answered() -> bool:
            with suppress(httpx.TransportError):
                found[:] = [self.http(method, path, **parts)]
            return bool(found) and found[0].status_code < 500

        wait_until(answered, timeout_s=within_s, every_s=_LOOK_EVERY_S, description=f"{method} {path} is answered")
        return found[0]

    def submit(self, document: dict[str, Any]) -> str:
        key = {"Idempotency-Key": f"chaos-{document['name']}"}
        answer = self.ask("POST", "/v1/jobs", json=document, headers=key)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        answer = self.ask("GET", f"/v1/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def lines_of(self, job_id: str) -> list[str]:
        """Everything that the ranks wrote, in order of arrival."""
        answer = self.ask("GET", f"/v1/jobs/{job_id}/logs", params={"limit": 1000})
        return [str(line["text"]) for line in answer.json()["items"]]

    def states(self) -> dict[str, str]:
        """The state of every job by its id, in one call."""
        answer = self.ask("GET", "/v1/jobs?limit=500")
        return {item["id"]: item["state"] for item in answer.json()["items"]}

    @contextmanager
    def database(self) -> Iterator[Database]:
        """The service's, without any line between."""
        url = self.postgres.url if self.postgres else DataSettings(data_dir=self.data_dir).database_url
        with closing(Database.connect(url)) as opened:
            yield opened

    # --- clocks ------------------------------------------------------------------------------------------------

    def set_clock(self, role: str, ahead_s: float) -> None:
        """Of a role, or of the server `postgres`."""
        set_clock(self._clock_folder(role), ahead_s)

    def set_agent_clock(self, token: str, ahead_s: float) -> None:
        """Of one node."""
        for folder in self._node_folders():
            if folder.token == token:
                with suppress(FileNotFoundError):
                    set_clock(folder.path, ahead_s)

    # --- plumbing ----------------------------------------------------------------------------------------------

    def end(self) -> None:
        for line in self.wires.values():
            line.turn(CLEAR)
        super().end()

    def _works(self) -> bool:
        self.revive()
        apis = all(self._is_ready_at(self.ports[name]) for name in self.apis)
        return apis and all(len(self.children_of(name)) == self.group_size for name in self.workers)

    def _is_ready_at(self, port: int) -> bool:
        with suppress(httpx.TransportError):
            return self.client.get(f"http://{self.host}:{port}/readyz", timeout=2).status_code == 200
        return False

    def _clock_folder(self, role: str) -> Path:
        return self.postgres.folder if role == "postgres" and self.postgres else self.data_dir / "clocks" / role

    def _start(self, role: str, argv: tuple[str, ...], pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        line = self.wires.get("api-sql" if role in self.apis else f"{role}-sql")
        environ = dict(self.environ)
        if line is not None and self.postgres is not None:
            environ["SHUNTER_DATABASE_URL"] = self.postgres.url_by(line.port)
        folder = self._clock_folder(role)
        folder.mkdir(parents=True, exist_ok=True)
        with (self.data_dir / "logs" / f"{role}.log").open("ab") as log:
            argv = (*self.ways.get(role, ()), *argv)
            return subprocess.Popen(argv, env=environ, stdout=log, stderr=log, pass_fds=pass_fds, cwd=folder)


@contextmanager
def site(
    data_dir: Path,
    setting: Setting,
    *,
    clouds: Mapping[str, Mapping[str, Any]],
    clocks: bool = False,
    broker_program: Path | None = None,
    network: FarNetwork | None = None,
    redis_port: int | None = None,
    **settings: str,
) -> Iterator[Site]:
    """Everything up. `clouds`: providers by name; `clocks`: wall clocks can be set; `network`: `worker-2` is
    over there, and no line has weather but the cable; `redis_port`: where the broker listens besides its socket;
    `settings`: of the service."""
    with ExitStack() as stack:
        made = _make(data_dir, stack, clocks=clocks)
        if setting == "embedded":
            _embed(made, stack)
        else:
            _deploy(made, stack, network)
        made.broker_program = broker_program or made.broker_program
        made.ports |= {} if redis_port is None else {"redis": redis_port}
        made.environ |= {
            **_QUICK,
            "SHUNTER_WORKER_CHILDREN": str(made.group_size),
            "SHUNTER_PROVIDERS": json.dumps(clouds),
            **settings,
        }
        stack.callback(made.end)
        prepare = subprocess.Popen([sys.executable, "-m", "shunter_service", "prepare"], env=made.environ)
        made.start_redis()
        assert prepare.wait(60) == 0, "`prepare` failed"
        for role in (*made.apis, *made.workers):
            made.start(role)
        made.wait_until_it_works()
        yield made


def _make(data_dir: Path, stack: ExitStack, *, clocks: bool) -> Site:
    redis_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shn")))
    for folder in ("logs", "redis", "run", "clocks"):
        (data_dir / folder).mkdir(mode=0o700, parents=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}
    clock = settable_clock() if clocks else {}
    environ = kept | {"SHUNTER_DATA_DIR": str(data_dir), "PYTHONWARNINGS": "error"} | clock
    return Site(data_dir, redis_dir, environ, has_clocks=clocks)


def _embed(made: Site, stack: ExitStack) -> None:
    made.ports = {"api": free_port()}
    made.environ["SHUNTER_REDIS_URL"] = broker.url_of(made.socket)
    made.lead_nodes_by(stack.enter_context(faulty_line(made.ports["api"])))


def _deploy(made: Site, stack: ExitStack, network: FarNetwork | None) -> None:
    made.ports = {name: free_port() for name in ("api", "api-2", "redis")}
    if network is not None:
        made.host, made.ways = network.near_address, {"worker-2": network.there}
    clock = {name: value for name, value in made.environ.items() if name == "LD_PRELOAD"}
    made.postgres = make_server(clock, made.host)
    stack.callback(remove_server, made.postgres)
    made.postgres.start()
    made.environ["SHUNTER_DATABASE_URL"] = made.postgres.url
    redis_port = made.ports["redis"]
    if network is None:
        for name in ("api-sql", "worker-sql", "worker-2-sql"):
            made.wires[name] = stack.enter_context(faulty_line(made.postgres.port))
        line = made.wires["workers-redis"] = stack.enter_context(faulty_line(redis_port))
        made.lead_nodes_by(stack.enter_context(faulty_line(*[made.ports[name] for name in made.apis])))
        redis_port = line.port
    else:
        (made.data_dir / "api-url").write_text(f"http://{made.host}:{made.ports['api']}\n")
    made.environ["SHUNTER_REDIS_URL"] = f"redis://{made.host}:{redis_port}/0"


def free_port() -> int:
    """A port of loopback on which nobody listens, below those that connections go out from."""
    while True:
        port = 12_000 + int.from_bytes(os.urandom(2), "big") % 8_000
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
