"""What the parts of an agent share, and whose work they do."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Callable, NamedTuple

from shunter_agent.exchange.link import Link
from shunter_agent.exchange.objects import Objects
from shunter_agent.exchange.uploads import Uploader
from shunter_agent.keeping.journal import Journal
from shunter_agent.keeping.launchfile import LaunchFile
from shunter_agent.keeping.layout import Layout
from shunter_agent.keeping.recorder import Recorder
from shunter_agent.keeping.state import State
from shunter_agent.keeping.tuning import Tuning


class Shared(NamedTuple):
    """Made once at the agent's start."""

    layout: Layout
    launch: LaunchFile
    tuning: Tuning
    journal: Journal
    state: State
    recorder: Recorder
    log_uploader: Uploader
    file_uploader: Uploader
    post: Callable[[Callable[[], None]], None]
    """Brings a call from any thread to the main thread."""

    def post_call(self, call: Callable[..., None], *arguments: Any) -> None:
        """Have the main thread do `call(*arguments)`, soon."""
        self.post(partial(call, *arguments))

    def connect(self, cancelled: threading.Event) -> Objects:
        """A thread's own way to the objects, until `cancelled`."""
        return Objects(Link(self.launch, self.tuning.sync_timeout_s), cancelled, self.tuning)


class Place(NamedTuple):
    """Which part of which generation this is."""

    job: str
    generation: int
    node_rank: int

    @classmethod
    def of(cls, assignment: dict[str, Any]) -> Place:
        return cls(assignment["job_id"], int(assignment["generation"]), int(assignment["ranks"]["node_rank"]))

    def key(self, kind: str, name: str) -> str:
        """The object key of something of this generation."""
        return f"{self.job}/{self.generation}/{kind}/{name}"
