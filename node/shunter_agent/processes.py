"""Processes: started so that they die with the agent, signalled by group, found again by a mark they carry."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from typing import IO, Callable, Sequence

from shunter_agent.trace import trace

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
MARK = "SHUNTER_AGENT_DIR"
OOM_SCORE = 500
"""Ranks are killed before the agent when the machine's memory runs out."""


def start(
    argv: Sequence[str], folder: str, environment: dict[str, str], stdout: IO[bytes], stderr: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a process in a session (and process group) of its own that gets SIGKILL when its parent thread ends.

    The kernel ties the signal to the *thread* that forked: ranks are started by the agent's main thread only.

    Raises:
        OSError: the program cannot be started.
    """
    process = subprocess.Popen(
        list(argv),
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=dying_with(os.getpid()),
    )
    try:
        with open(f"/proc/{process.pid}/oom_score_adj", "w", encoding="ascii") as file:
            file.write(str(OOM_SCORE))
    except OSError:
        pass
    return process


def power_off(command: str) -> None:
    """End the machine by this command of a shell, once the lease is over."""
    trace("the lease is over: powering off")
    subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, check=False)


def dying_with(parent: int) -> Callable[[], None]:
    """What a child of this process calls first, so that it gets SIGKILL when its parent thread ends."""
    prctl, getppid, kill, getpid = _LIBC.prctl, os.getppid, os.kill, os.getpid

    def between_fork_and_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if getppid() != parent:  # it died before the line above
            kill(getpid(), signal.SIGKILL)

    return between_fork_and_exec


def signal_process(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the process alone, unless it has been reaped."""
    if process.poll() is None:
        _quietly(os.kill, process.pid, number)


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the process and everything in its group; the group may outlive the process."""
    _quietly(os.killpg, process.pid, number)


def marked(folder: str, generation: int | None = None) -> list[int]:
    """Processes whose environment says that they belong to the agent of this folder (and to this generation).

    Children of a rank may sit in sessions of their own (torchrun's workers do), where no group signal reaches them.
    """
    wanted = [f"{MARK}={folder}".encode()]
    if generation is not None:
        wanted.append(f"SHUNTER_GENERATION={generation}".encode())
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:
            continue
        if all(variable in variables for variable in wanted):
            found.append(int(name))
    return found


def kill_marked(folder: str, generation: int | None = None) -> int:
    """SIGKILL to all of them; how many there were."""
    found = marked(folder, generation)
    for pid in found:
        _quietly(os.kill, pid, signal.SIGKILL)
    return len(found)


def signal_name(number: int) -> str:
    """`SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _quietly(act: Callable[[int, int], object], pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
        act(pid, number)


class OrphanReaper:
    """For an agent that is process 1 of a container, where every orphan becomes its child.

    A child that somebody here waits for is collected within moments, so only what stays dead for long is an orphan.
    """

    LINGERS_S = 5.0

    def __init__(self) -> None:
        self._pid = 0
        self._since = 0.0

    def reap(self) -> None:
        """Collect a dead orphan; to be called now and then."""
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        pid = dead.si_pid if dead is not None else 0
        if pid != self._pid:
            self._pid, self._since = pid, time.monotonic()
        elif pid and time.monotonic() - self._since >= self.LINGERS_S:
            _quietly(os.waitpid, pid, os.WNOHANG)
