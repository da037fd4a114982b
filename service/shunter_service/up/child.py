"""One child process of the supervisor: its own process group, its own log file, dead when the supervisor is."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_LOG_LIMIT_BYTES = 20 << 20


class Child:
    """A running process and all of its descendants that stay in its group."""

    def __init__(
        self, name: str, argv: tuple[str, ...], env: Mapping[str, str], log: Path, pass_fds: tuple[int, ...] = ()
    ) -> None:
        self.name = name
        self.started_at = time.time()
        self._began = time.monotonic()
        self._log = log
        with _open_log(log) as output:
            self._log_from = os.fstat(output.fileno()).st_size
            self._process = subprocess.Popen(
                argv,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=pass_fds,
                start_new_session=True,
                preexec_fn=_die_with(os.getpid()),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._began

    def exit_code(self) -> int | None:
        """How it ended (negative: by that signal); None while it runs."""
        return self._process.poll()

    def said(self) -> str:
        """The last lines of what it wrote itself: its log may hold what others wrote before."""
        return last_lines(self._log, since=self._log_from)

    def ask_to_stop(self) -> None:
        """SIGTERM to the process itself; it ends its own children in order."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL to the whole group, also to what is left of it after its leader ended."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)


def last_lines(log: Path, count: int = 15, *, since: int = 0) -> str:
    """The end of a log file, for messages; of what lies behind byte `since`."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since, size - 8192))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-count:])
    except OSError:
        return ""


def _open_log(path: Path):  # type: ignore[no-untyped-def]  # an open binary file
    with suppress(OSError):
        if path.stat().st_size > _LOG_LIMIT_BYTES:
            path.replace(path.with_suffix(".log.1"))
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab", buffering=0)


def _die_with(supervisor: int):  # type: ignore[no-untyped-def]  # what Popen calls after the fork
    def arm() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:  # it died between the fork and the line above
            os._exit(1)

    return arm
