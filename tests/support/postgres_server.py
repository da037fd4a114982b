"""A PostgreSQL server of a test's own, to be killed: its files are copied from one that was made once a test run."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

import psycopg
import pytest
from shunter_store.migrate import upgrade
from support import proc
from support.clocks import set_clock
from support.waiting import wait_until

_OWNER = "postgres"
"""PostgreSQL refuses to run as root."""
_OPTIONS = {
    "max_connections": "200",
    "shared_buffers": "32MB",
    # Whatever is killed here, the kernel lives on and keeps what was written; a commit that was told is in its hands.
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
}


@dataclass
class PostgresServer:
    """One server on loopback."""

    folder: Path
    port: int
    environ: dict[str, str] = field(default_factory=dict)
    """Added to the environment in which it starts."""
    host: str = "127.0.0.1"
    """Where it listens, besides loopback."""
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://{_OWNER}@{self.host}:{self.port}/shunter"

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def url_by(self, port: int) -> str:
        """By way of a line on another port."""
        return f"postgresql://{_OWNER}@127.0.0.1:{port}/shunter"

    def start(self) -> None:
        """Start it, also after a kill, and wait until it answers."""
        wait_until(self._started, timeout_s=60, description="PostgreSQL answers")

    def kill(self) -> None:
        """SIGKILL to the postmaster and every process of its own."""
        assert self._process is not None
        self._signal_all(signal.SIGKILL)
        self._process.wait(10)
        self._process = None

    def stop(self) -> None:
        """An orderly stop that breaks every connection."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(30)
            self._process = None

    def kill_backend(self, random: Random) -> None:
        """SIGKILL to one of its processes: it throws all of them out and starts again by itself."""
        assert self._process is not None
        backends = sorted(proc.children(self._process.pid))
        if backends:
            with suppress(ProcessLookupError):
                os.kill(random.choice(backends), signal.SIGKILL)

    def pause(self) -> None:
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _started(self) -> bool:
        if not self.is_up:
            # One that was killed just now may still hold its memory: then this one ends at once and is tried again.
            self._process = _spawn(self)
        with suppress(psycopg.Error), closing(psycopg.connect(self.url, connect_timeout=2)):
            return True
        return False

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        pids = [self._process.pid, *proc.children(self._process.pid)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def make_server(environ: dict[str, str] | None = None, host: str = "127.0.0.1") -> PostgresServer:
    """A new server, not started, with an empty database of the newest schema. `remove_server` takes it away.

    Skips the test where PostgreSQL is not installed; fails instead under CI=true.
    """
    folder = _new_folder("shpg")
    shutil.rmtree(folder)
    shutil.copytree(_template(), folder, copy_function=shutil.copyfile)
    with (folder / "pg_hba.conf").open("a") as rules:
        rules.write(f"host all all {host}/24 trust\n")
    if environ:
        # From the start: a backend that finds the file later than another would read another time until then.
        set_clock(folder, 0.0)
    _give_away(folder)
    return PostgresServer(folder, _free_port(), environ or {}, host)


def remove_server(server: PostgresServer) -> None:
    if server.is_up:
        server.resume()
        server.kill()
    shutil.rmtree(server.folder, ignore_errors=True)


@cache
def _template() -> Path:
    folder = _new_folder("shpgt")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _give_away(folder)
    options = ("--username", _OWNER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync")
    subprocess.run(
        [_program("initdb"), "--pgdata", str(folder), *options],
        check=True,
        capture_output=True,
        user=_owner(),
        group=_owner(),
    )
    server = PostgresServer(folder, _free_port())
    _create_database(server)
    upgrade(server.url)
    server.stop()
    return folder


def _create_database(server: PostgresServer) -> None:
    admin = server.url.removesuffix("shunter") + "postgres"
    server._process = _spawn(server)

    def created() -> bool:
        with suppress(psycopg.OperationalError), closing(psycopg.connect(admin, autocommit=True)) as connection:
            connection.execute("CREATE DATABASE shunter")
            return True
        return False

    wait_until(created, timeout_s=60, description="PostgreSQL takes its first database")


def _spawn(server: PostgresServer) -> subprocess.Popen[bytes]:
    folder, addresses = server.folder, sorted({"127.0.0.1", server.host})
    options = {
        **_OPTIONS,
        "port": str(server.port),
        "unix_socket_directories": str(folder),
        "listen_addresses": ",".join(addresses),
    }
    argv = [_program("postgres"), "-D", str(folder)]
    argv += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    with (folder / "server.log").open("ab") as log:
        return subprocess.Popen(
            argv, stdout=log, stderr=log, cwd="/", env={**os.environ, **server.environ}, user=_owner(), group=_owner()
        )


def _owner() -> str | None:
    return _OWNER if os.geteuid() == 0 else None


def _give_away(folder: Path) -> None:
    if os.geteuid() == 0:
        owner = pwd.getpwnam(_OWNER)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    folder.chmod(0o700)


def _new_folder(prefix: str) -> Path:
    """Not below a test's own folder, which only root may enter."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))  # a socket's path is short


def _program(name: str) -> str:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    found = str(installed[-1]) if installed else shutil.which(name)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"PostgreSQL is not installed: there is no {name}")
        pytest.skip(f"PostgreSQL is not installed: there is no {name}")
    return found


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
