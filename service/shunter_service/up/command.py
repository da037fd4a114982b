"""The `up` command: from a data directory to three working roles and back."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from shunter_store.installation.exit_codes import UNUSABLE, WRONG_SETTINGS

from shunter_service.up import address, broker, secret_files
from shunter_service.up.child import Child
from shunter_service.up.layout import Layout, configured_redis, default_data_dir, redis_socket
from shunter_service.up.local_nodes import count_live
from shunter_service.up.lock import AlreadyUp, Lock
from shunter_service.up.roles import api_roles, child_environment, python, redis_role, worker_role
from shunter_service.up.supervisor import RoleFails, Supervisor

_PREPARE_WITHIN_S = 300.0
_MOST_PROCESSES = 64


def run(arguments: Sequence[str]) -> int:
    """Run until told to stop; the exit code (0 for a clean stop)."""
    options = _parse(arguments)
    layout = Layout(Path(options.data_dir or default_data_dir()).expanduser().absolute())
    try:
        layout.make()
    except OSError as error:
        return _fail(f"{layout.data_dir} cannot be a data directory: {error.strerror}; give another --data-dir")
    try:
        lock = Lock(layout.lock)
        listener = address.listen(options.host, options.port, address.read_url(layout.api_url))
        url = address.url_of(listener)
        lock.describe(url)
        secret_files.ensure(layout.api_key, prefix="shk_")
        secret_files.ensure(layout.signing_key)
        address.write_url(layout.api_url, url)
    except (AlreadyUp, address.PortTaken, OSError) as error:
        return _fail(str(error))
    _say(f"Shunter on {layout.data_dir}\n  API      {url}\n  API key  {layout.api_key}\n  logs     {layout.logs}")
    if not address.is_loopback(listener):
        _say("  warning  the API is reachable from other machines over plain HTTP; put TLS in front of it")
    return _supervise(layout, listener, Supervisor(_report), options.api_processes)


def _supervise(layout: Layout, listener: socket.socket, supervisor: Supervisor, api_processes: int) -> int:
    began = time.monotonic()
    supervisor.listen_to_signals()
    try:
        try:
            external_redis = os.environ.get("SHUNTER_REDIS_URL") or configured_redis(layout)
            socket_path = redis_socket(layout)
            env = child_environment(layout, external_redis or broker.url_of(socket_path))
            log = layout.logs / "prepare.log"
            log.unlink(missing_ok=True)
            prepare = Child("prepare", python("shunter_service", "prepare"), env, log)
            if not external_redis:
                supervisor.add(redis_role(layout, socket_path))
            # Beside each other: what takes time in each of them is its imports.
            for spec in api_roles(layout, env, listener, api_processes):
                supervisor.add(spec)
            supervisor.add(worker_role(layout, env))
            if code := supervisor.wait_for(prepare, _PREPARE_WITHIN_S):
                return _fail(_in_words(code, prepare.said()))
            for text in prepare.said().splitlines():
                _say(f"  warning  {text}")
            if supervisor.wait_until_ready():
                _say(f"ready ({time.monotonic() - began:.1f} s)")
                supervisor.keep_running()
        except (RoleFails, broker.NoServer, OSError) as error:
            return _fail(str(error))
        _say("stopping")
    finally:
        supervisor.stop()
    _say(_farewell(count_live(layout.nodes)))
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="shunter up", description="Run the API, the worker and an embedded Redis on this machine."
    )
    parser.add_argument(
        "--data-dir", help="where everything is kept (default: $SHUNTER_DATA_DIR, .shunter, ~/.shunter)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=_port, help="the port to listen on (default: the last one, else a free one)")
    parser.add_argument(
        "--api-processes",
        type=_processes,
        default=1,
        help="how many processes serve the API; one serves some thousand jobs (default: %(default)s)",
    )
    return parser.parse_args(arguments)


def _processes(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= _MOST_PROCESSES:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of processes (1 to {_MOST_PROCESSES})")


def _port(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port (1 to 65535)")


def _in_words(code: int, said: str) -> str:
    """Why the data directory is not prepared; settings and databases that are no good name themselves."""
    if code in (UNUSABLE, WRONG_SETTINGS):
        return said
    return f"the data directory cannot be prepared (exit code {code}):\n{said}"


def _farewell(live: int) -> str:
    if not live:
        return "stopped"
    trainings = "1 local training goes" if live == 1 else f"{live} local trainings go"
    return f"stopped; {trainings} on, and `shunter up` on the same data directory will pick up what they did"


def _say(text: str) -> None:
    with suppress(OSError):  # a full disk loses the line, and stops nothing
        print(text, flush=True)


def _report(text: str) -> None:
    with suppress(OSError):
        print(f"shunter up: {text}", file=sys.stderr, flush=True)


def _fail(text: str) -> int:
    _report(text)
    return 1
