"""Settings of the worker role, beside those that both roles share."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from pydantic import Field
from shunter_store.installation.settings import DataSettings


class WorkerSettings(DataSettings):
    """`SHUNTER_…`, or `shunter.toml` in the data directory."""

    worker_children: int = Field(default=2, ge=1, le=64)
    """Processes that step jobs; each does a few at a time."""
    public_url: str = ""
    """Where nodes on other machines reach the API; empty: only nodes that share the file system can run."""
    price_tolerance: float = Field(default=0.1, ge=0, le=10)
    """By which share the price of an offer may have risen between the plan and the call that makes a node: the price is
    read again then, and above this the node is not made and the job is planned anew. 0.1: 10 %. The caps of a document
    have no tolerance."""
    log_level: str = "INFO"
    """`DEBUG`, `INFO`, `WARNING` or `ERROR`."""

    @property
    def run_dir(self) -> Path:
        """Where processes show that they live."""
        return self.data_dir / "run"

    @property
    def epoch_file(self) -> Path:
        """How far the database had come when this machine last saw it."""
        return self.data_dir / "epoch.json"

    @property
    def api_url_file(self) -> Path:
        """Where the API leaves its address."""
        return self.data_dir / "api-url"


def signing_secret(data_dir: Path) -> bytes:
    """The installation's secret; made by whoever comes first, and never half written."""
    path = data_dir / "signing-key"
    with suppress(FileNotFoundError):
        return path.read_text().strip().encode()
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{secrets.token_urlsafe(32)}\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return path.read_text().strip().encode()
