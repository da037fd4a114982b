"""The service: its data directory, whether it can be reached, whether the key is valid, how its parts are."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from shunter.client import Client
from shunter.connection import Connection, data_dirs, find_connection
from shunter.doctor.findings import Finding, note, ok, problem
from shunter.errors import NotConfigured, ServerError, ShunterError, Unauthorized
from shunter.retries import Retries

_ASK_WITHIN_S: Final = 5.0
_LEAST_FREE_GIB: Final = 2.0
_PART_FIXES: Final = {
    "database": "is the database up? `shunter up` runs SQLite; SHUNTER_DATABASE_URL names another",
    "migrations": "start the service anew: it migrates the database",
    "redis": "jobs go on without it, only slower; look at the service's redis.log",
    "workers": "start one: shunter worker (shunter up runs one too)",
}


def data_directory(data_dir: Path | None) -> Iterator[Finding]:
    """The folder where `shunter up` keeps everything, where there is one."""
    found = next((folder for folder in data_dirs(data_dir) if folder.is_dir()), None)
    if found is None:
        sought = ", ".join(str(folder) for folder in data_dirs(data_dir))
        yield note(
            "data directory", f"none yet ({sought})", "`shunter up` makes one; a service elsewhere needs none here"
        )
        return
    if not os.access(found, os.R_OK | os.W_OK | os.X_OK):
        yield problem("data directory", f"{found} cannot be read and written", f"chown -R $USER {found}")
        return
    mode = stat.S_IMODE(found.stat().st_mode)
    if mode & 0o077:
        yield problem("data directory", f"{found} is open to others (mode {mode:04o})", f"chmod 700 {found}")
    else:
        yield ok("data directory", f"{found} (mode {mode:04o})")
    yield from _key_file(found / "api-key")
    free_gib = shutil.disk_usage(found).free / 2**30
    if free_gib < _LEAST_FREE_GIB:
        yield problem("disk", f"{free_gib:.1f} GiB free in {found}", "make room: logs, checkpoints and files go there")
    else:
        yield ok("disk", f"{free_gib:.0f} GiB free")


def reachable(url: str | None, api_key: str | None, data_dir: Path | None) -> Iterator[Finding]:
    """The service, the key, and the parts around it."""
    try:
        connection = find_connection(url, api_key, data_dir)
    except NotConfigured as error:
        yield note("service", str(error), error.hint)
        return
    retries = Retries(tries=2)
    with Client(connection.url, connection.api_key, timeout_s=_ASK_WITHIN_S, retries=retries) as client:
        try:
            readiness = client.readiness()
        except ShunterError as error:
            yield problem("service", f"{error}", error.hint if isinstance(error, ServerError) else _way_to(connection))
            yield from _port(connection)
            return
        yield ok("service", f"{connection.url} answers (found by {connection.origin})")
        yield _key(client)
    for name, check in readiness.checks.items():
        if check.ok:
            yield ok(name, check.detail)
        elif check.required:
            yield problem(name, check.detail, _PART_FIXES.get(name, "look at the service's log"))
        else:
            yield note(name, check.detail, _PART_FIXES.get(name, "look at the service's log"))


def _port(connection: Connection) -> Iterator[Finding]:
    """Who listens where the service of a data directory was; for a service elsewhere that says nothing."""
    address = urlsplit(connection.url)
    if not connection.is_loopback or address.hostname is None:
        return
    port = address.port or 80
    try:
        socket.create_connection((address.hostname, port), timeout=1.0).close()
    except OSError:
        yield note("port", f"nobody listens on {address.hostname}:{port}; it is free")
        return
    fix = "end that program, or start the service on another port: shunter up --port N"
    yield problem("port", f"another program listens on {address.hostname}:{port}, or the service hangs", fix)


def _key(client: Client) -> Finding:
    try:
        me = client.me()
    except Unauthorized as error:
        return problem("key", f"the service refuses it ({client.connection.origin})", error.hint)
    except ShunterError as error:
        return problem("key", str(error), error.hint or "look at the service's log")
    return ok("key", f"{me.name} of project {me.project}: {', '.join(me.scopes)}")


def _key_file(path: Path) -> Iterator[Finding]:
    if not path.exists():
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        yield problem("key file", f"{path} can be read by others (mode {mode:04o})", f"chmod 600 {path}")
    else:
        yield ok("key file", f"{path} (mode {mode:04o})")


def _way_to(connection: Connection) -> str:
    if connection.origin == "arguments":
        return "is the address right, and the service up? a firewall or proxy may stand between"
    return f"start it: shunter up --data-dir {connection.origin}"
