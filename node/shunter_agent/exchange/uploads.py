"""Uploads in the background: each `Uploader` is a thread, or some, that do one task after another."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import Any, Callable, NamedTuple

from shunter_agent.exchange.link import Link
from shunter_agent.exchange.objects import Objects, no_grants
from shunter_agent.keeping.launchfile import LaunchFile
from shunter_agent.keeping.tuning import Tuning
from shunter_agent.trace import trace_exception


class Task(NamedTuple):
    """`work` runs in the uploader's thread; then `done` gets its result, or the exception it raised."""

    work: Callable[[Objects], Any]
    done: Callable[[Any, Any], None]


class Uploader:
    """Two stand in an agent, one for logs and one for files, so that a large checkpoint holds up no log line."""

    def __init__(
        self,
        name: str,
        launch: LaunchFile,
        tuning: Tuning,
        post: Callable[[Callable[[], None]], None],
        threads: int = 1,
    ) -> None:
        """`post` brings a task's end back to the main thread; `threads`: so many tasks are done at a time."""
        self._name = name
        self._launch = launch
        self._tuning = tuning
        self._post = post
        self._most = threads
        self._threads: list[threading.Thread] = []
        self._tasks: deque[Task] = deque()
        self._ready = threading.Semaphore(0)
        self._granted = no_grants()

    def submit(self, work: Callable[[Objects], Any], done: Callable[[Any, Any], None]) -> None:
        """Queue a task; threads start as there are tasks for them."""
        self._tasks.append(Task(work, done))
        self._ready.release()
        if len(self._threads) < self._most:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        link = Link(self._launch, self._tuning.sync_timeout_s)
        objects = Objects(link, threading.Event(), self._tuning, self._granted)
        while True:
            self._ready.acquire()
            task = self._tasks.popleft()
            result, error = None, None
            try:
                result = task.work(objects)
            except Exception as raised:
                trace_exception(self._name)
                error = raised
            self._post(partial(task.done, result, error))
