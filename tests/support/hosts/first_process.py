"""The first process of a host: puts the host's own folders in place, then collects orphans until it is ended.

    python -I first_process.py FOLDER        (in fresh mount, pid, uts and net namespaces)

`FOLDER/machine.json` says what to do; standard output gets `up` when it is done. Only the standard library: it runs
before anything else does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any


def main(folder: Path) -> None:
    """Never returns."""
    machine: dict[str, Any] = json.loads((folder / "machine.json").read_text())
    _mount("-t", "proc", "proc", "/proc")
    socket.sethostname(machine["name"])
    _run("ip", "link", "set", "lo", "up")
    for place, inside in machine["shown"]:
        _mount("--bind", place, inside)
    for source, target in machine["binds"]:
        _mount("--rbind", str(folder / source), target)
    _mount("-t", "tmpfs", "-o", "size=1g,mode=1777", "tmpfs", "/dev/shm")
    if machine["disk_mib"]:
        _mount("-t", "tmpfs", "-o", f"size={machine['disk_mib']}m,mode=755", "tmpfs", "/srv")
    else:
        _mount("--rbind", str(folder / "srv"), "/srv")
    _mount("--rbind", str(folder / "tmp"), "/tmp")  # last: the folder itself may lie below /tmp
    os.chdir("/")
    sys.stdout.write("up\n")
    sys.stdout.flush()
    _collect_orphans()


def _mount(*arguments: str) -> None:
    _run("mount", *arguments)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def _collect_orphans() -> None:
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    while True:
        signal.sigtimedwait([signal.SIGCHLD], 1.0)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            continue


if __name__ == "__main__":
    main(Path(sys.argv[1]))
