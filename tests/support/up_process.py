"""`shunter up` as a real process, and what it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from support.waiting import wait_until

COMMAND = (sys.executable, "-P", "-m", "shunter_service", "up")


@dataclass(frozen=True, slots=True)
class Up:
    """A running supervisor."""

    process: subprocess.Popen[bytes]
    data_dir: Path
    output: Path

    @property
    def url(self) -> str:
        return (self.data_dir / "api-url").read_text().strip()

    @property
    def said(self) -> str:
        return self.output.read_text()

    def child(self, name: str) -> int | None:
        """The pid of a role's process."""
        marks = {"api": "shunter_service\0api", "worker": "shunter_workers", "redis": "unixsocket:"}
        found = [pid for pid in children_of(self.process.pid) if marks[name] in command_of(pid)]
        return found[0] if found else None

    def readiness(self) -> httpx.Response:
        return httpx.get(f"{self.url}/readyz", timeout=10, trust_env=False)

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 20) -> int:
        """Signal it and wait for its end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout_s)


@contextmanager
def running_up(
    data_dir: Path,
    *arguments: str,
    ready: bool = True,
    environ: Mapping[str, str] | None = None,
    command: Sequence[str] = COMMAND,
) -> Iterator[Up]:
    """`shunter up` on a data directory, from ready to ended. Nothing that it started outlives the block."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}
    output = data_dir.with_name(f"{data_dir.name}-{len(list(data_dir.parent.glob('*.out')))}.out")
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--data-dir", str(data_dir), *arguments],
            env=kept | dict(environ or {}),
            stdout=file,
            stderr=file,
        )
    up = Up(process, data_dir, output)
    try:
        if ready:
            wait_until(
                lambda: "\nready" in up.said or process.poll() is not None, timeout_s=60, description="up is ready"
            )
            assert process.poll() is None, up.said
        yield up
    finally:
        started = descendants_of(process.pid)
        if process.poll() is None:
            process.kill()
            process.wait(10)
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """Processes whose parent this is."""
    return [child for child in _all_pids() if _parent_of(child) == pid]


def descendants_of(pid: int) -> list[int]:
    """Its children, theirs, and so on."""
    found = children_of(pid)
    return found + [grandchild for child in found for grandchild in descendants_of(child)]


def lives(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def command_of(pid: int) -> str:
    """Its command line, arguments separated by NUL."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def resident_mib(pid: int) -> float:
    """Its resident memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def _all_pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _parent_of(pid: int) -> int | None:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None
