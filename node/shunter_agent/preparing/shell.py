"""Commands of the set-up: their output goes to the set-up log, and stopping the generation ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import Sequence

from shunter_agent import processes
from shunter_agent.exchange.objects import Cancelled
from shunter_agent.files import tail


class SetupFailed(Exception):
    """The generation cannot start; the text tells the user why."""


class Shell:
    """Runs commands one after another, from the thread that prepares."""

    def __init__(self, log: str, cancelled: threading.Event) -> None:
        self.log = log
        self._cancelled = cancelled
        self._running: subprocess.Popen[bytes] | None = None

    def say(self, text: str) -> None:
        """Write a line of the agent's own into the set-up log."""
        with open(self.log, "ab") as file:
            file.write((text + "\n").encode("utf-8", "replace"))

    def run(self, argv: Sequence[str], folder: str, environment: dict[str, str], shown: str = "") -> None:
        """Run a command to its end.

        Raises:
            SetupFailed: it cannot be started or exits with another status than 0; holds its last lines.
            Cancelled: the generation was stopped meanwhile.
        """
        shown = shown or " ".join(argv)
        self.say(f"$ {shown}")
        before = os.path.getsize(self.log)
        try:
            with open(self.log, "ab", buffering=0) as log:
                self._running = processes.start(argv, folder, environment, log, log)
            if self._cancelled.is_set():  # `cancel` came before there was anything to kill
                self.cancel()
            status = self._running.wait()
        except OSError as error:
            raise SetupFailed(f"`{shown}` cannot be started: {error}") from error
        finally:
            self._running = None
        if self._cancelled.is_set():
            raise Cancelled(shown)
        if status != 0:
            lines = tail(self.log) if os.path.getsize(self.log) > before else ""
            ending = f"exited with code {status}" if status > 0 else f"was killed by {processes.signal_name(-status)}"
            raise SetupFailed(f"`{shown}` {ending}\n{lines}".rstrip())

    def cancel(self) -> None:
        """End the running command, if any; called from another thread."""
        running = self._running
        if running is not None:
            processes.signal_group(running, signal.SIGKILL)
