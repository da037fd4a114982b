"""Uploads in the background: each `Uploader` is a thread that does one task after another."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import Any, Callable, NamedTuple

from shunter_agent.launchfile import LaunchFile
from shunter_agent.link import Link
from shunter_agent.objects import Objects
from shunter_agent.trace import trace_exception
from shunter_agent.tuning import Tuning


class Task(NamedTuple):
    """`work` runs in the uploader's thread; then `done` gets its result, or the exception it raised."""

    work: Callable[[Objects], Any]
    done: Callable[[Any, Any], None]


class Uploader(threading.Thread):
    """Two stand in an agent, one for logs and one for files, so that a large checkpoint holds up no log line."""

    def __init__(
        self, name: str, launch: LaunchFile, tuning: Tuning, post: Callable[[Callable[[], None]], None]
    ) -> None:
        """`post` brings a task's end back to the main thread."""
        super().__init__(name=name, daemon=True)
        self._launch = launch
        self._tuning = tuning
        self._post = post
        self._tasks: deque[Task] = deque()
        self._ready = threading.Semaphore(0)

    def submit(self, work: Callable[[Objects], Any], done: Callable[[Any, Any], None]) -> None:
        """Queue a task; the thread starts with the first one."""
        self._tasks.append(Task(work, done))
        self._ready.release()
        if self.ident is None:
            self.start()

    def run(self) -> None:
        objects = Objects(Link(self._launch, self._tuning.sync_timeout_s), threading.Event(), self._tuning)
        while True:
            self._ready.acquire()
            task = self._tasks.popleft()
            result, error = None, None
            try:
                result = task.work(objects)
            except Exception as raised:
                trace_exception(self.name)
                error = raised
            self._post(partial(task.done, result, error))
