"""A `shunter up` of its own for one benchmark: started in a fresh data directory, stopped at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

READY_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Running:
    """A service that is up."""

    pid: int
    data_dir: Path
    url: str
    api_key: str
    ready_after_s: float


@contextmanager
def service(data_dir: Path) -> Iterator[Running]:
    """Start `shunter up` on a free loopback port and wait until it says `ready`.

    Raises:
        RuntimeError: it ended or was not ready in time.
    """
    began = time.monotonic()
    env = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}
    argv = [sys.executable, "-m", "shunter_service", "up", "--data-dir", str(data_dir)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)
    try:
        _wait_until_ready(process, began + READY_WITHIN_S)
        yield Running(
            process.pid,
            data_dir,
            (data_dir / "api-url").read_text().strip(),
            (data_dir / "api-key").read_text().strip(),
            time.monotonic() - began,
        )
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _wait_until_ready(process: subprocess.Popen[str], deadline: float) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("ready"):
            return
        if time.monotonic() > deadline:
            break
    raise RuntimeError("`shunter up` did not become ready")
