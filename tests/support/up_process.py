"""`shunter up` as a user starts it: API, worker and Redis, from ready to stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class UpProcess:
    """Where it is."""

    url: str
    key: str
    data_dir: Path
    process: subprocess.Popen[str]


@contextmanager
def running_up(data_dir: Path) -> Iterator[UpProcess]:
    """The whole service on loopback. Jobs that a test leaves behind should have ended: agents outlive the service."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}
    command = [sys.executable, "-m", "shunter", "up", "--data-dir", str(data_dir)]
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    try:
        _wait_until_ready(process, data_dir)
        url, key = ((data_dir / name).read_text().strip() for name in ("api-url", "api-key"))
        yield UpProcess(url, key, data_dir, process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _wait_until_ready(process: subprocess.Popen[str], data_dir: Path) -> None:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("ready"):
            return
    logs = "\n".join(f"{log.name}: {log.read_text()[-2000:]}" for log in (data_dir / "logs").glob("*.log"))
    raise AssertionError(f"`shunter up` ended with {process.wait()}:\n{said}\n{logs}")
