"""Collects what is known of a job for whoever looks for a fault. Secrets are taken out before anything leaves."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from shunter_schemas.api import DebugReport, rfc3339
from shunter_schemas.scrubbing import scrub
from shunter_store.accounts import providers
from shunter_store.job import events
from shunter_store.job.jobs import JobRow
from shunter_store.node import gang, ledger, reaching
from shunter_store.node.ledger import NodeRow
from shunter_store.report import checkpoints
from sqlalchemy import Connection

MOST_EVENTS: Final = 2000
MOST_CHECKPOINTS: Final = 50
TAIL_BYTES: Final = 64 << 10
_NODE_FILES: Final = ("agent.json", "agent.log", "journal/journal.jsonl", "node.json")
_PACKAGES: Final = ("shunter", "litestar", "sqlalchemy", "celery", "redis", "asyncssh", "pydantic", "uvicorn", "torch")


def collect(conn: Connection, job: JobRow, data_dir: Path) -> DebugReport:
    """Everything in the database, and the files of nodes that lie on this machine."""
    nodes = ledger.of_job(conn, job.id)
    parts = {
        "job": job,
        "ledger": nodes,
        "bootstraps": reaching.bootstraps_of(conn, job.id),
        "events": events.page(conn, job.id, 0, MOST_EVENTS),
        "transitions": events.transitions(conn, job.id),
        "ends": gang.ends(conn, job.id),
        "checkpoints": checkpoints.page(conn, job.id, limit=MOST_CHECKPOINTS),
        "providers": providers.list_all(conn),
        "node_files": _node_files(data_dir, nodes),
    }
    plain = {name: _plain(value) for name, value in parts.items()}
    return DebugReport(job_id=job.id, collected_at=datetime.now(UTC), versions=_versions(), parts=scrub(plain))


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def _node_files(data_dir: Path, nodes: Sequence[NodeRow]) -> dict[str, dict[str, str]]:
    found = {}
    for node in nodes:
        folder = data_dir / "nodes" / node.token
        files = {name: _tail(folder / name) for name in _NODE_FILES if (folder / name).is_file()}
        if files:
            found[node.id] = files
    return found


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found
