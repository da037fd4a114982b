"""The process outside the container, which for whoever looks after the node is its agent.

It has the image brought by an agent that speaks for the node meanwhile, and runs the container with the agent inside,
again and again until the service releases the node. Ranks are children of the agent inside, so that their signals, ends
and exit codes are what they are without a container; through docker they would not be. The keeper holds nothing that is
not on the disk: when it is killed the container goes on, and the next keeper attaches itself to it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any, Sequence

from shunter_agent import processes
from shunter_agent.containing import docker
from shunter_agent.containing.bringing import Bringer, container_of
from shunter_agent.containing.container import LABEL, Container, Wanted, handed_on
from shunter_agent.containing.statuses import ENDS_MACHINE, HANDED_OVER, RELEASED
from shunter_agent.files import read_json, tail
from shunter_agent.keeping.launchfile import LaunchFile
from shunter_agent.keeping.layout import Layout
from shunter_agent.keeping.tuning import Tuning
from shunter_agent.trace import trace, trace_exception

_DOCKER_FAILED = (125, 126, 127)
"""Statuses of `docker run` that are not the agent's."""
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_STEADY_S = 60.0
_AT_ONCE_S = 10.0
_MOST_FAILURES = 3
"""Containers in a row that end at once: then the service is told."""
_BETWEEN_POWER_OFFS_S = 60.0
_REMOVED_WITHIN_S = 10.0
_SILENT_FOR_S = 120.0


class Keeper:
    """One a folder, like the agent whose place it takes."""

    def __init__(self, root: str) -> None:
        """Read the launch file; nothing is started yet.

        Raises:
            ValueError: it is missing or lacks a field.
        """
        self._layout = Layout(root)
        self._launch = LaunchFile(self._layout.launch)
        self._wanted = Wanted.of(self._launch.container or {})
        self._child = 0
        self._terminations = 0
        self._failures = 0

    def run(self) -> int:
        """Until the service releases the node; returns the exit status."""
        signal.signal(signal.SIGTERM, self._pass_on)
        signal.signal(signal.SIGINT, self._pass_on)
        signal.signal(signal.SIGHUP, lambda number, frame: None)
        pause_s, here = _FIRST_PAUSE_S, self._running() is not None
        while True:
            began = time.monotonic()
            status = self._contain() if here else self._bring()
            if status == RELEASED or self._terminations:
                self._see_it_gone()
                return RELEASED
            lasted_s = time.monotonic() - began
            here = self._serves(status, lasted_s) if here else status == HANDED_OVER
            if status != HANDED_OVER and self._failures < _MOST_FAILURES:
                pause_s = _FIRST_PAUSE_S if lasted_s > _STEADY_S else min(2 * pause_s, _LONGEST_PAUSE_S)
                self._rest(status, pause_s)

    def _serves(self, status: int, lasted_s: float) -> bool:
        """Whether the image is good for another container, after one that ended so."""
        at_once = lasted_s < _AT_ONCE_S and status != ENDS_MACHINE
        self._failures = self._failures + 1 if at_once else 0
        return status not in _DOCKER_FAILED and self._failures < _MOST_FAILURES

    def _rest(self, status: int, pause_s: float) -> None:
        """Between two of them; and where the lease is over, end the machine."""
        if status == ENDS_MACHINE:
            processes.power_off(self._launch.power_off or Tuning.from_environment(os.environ).power_off)
            pause_s = _BETWEEN_POWER_OFFS_S
        trace(f"keeper: ended with {status}; again in {pause_s:.0f} s")
        until = time.monotonic() + pause_s
        while time.monotonic() < until and not self._terminations:
            time.sleep(0.2)

    def _bring(self) -> int:
        """In a process of its own: that has threads, and the journal open."""
        flaw = ""
        if self._failures >= _MOST_FAILURES:
            flaw = f"{self._failures} containers in a row ended at once\n{tail(self._layout.log, lines=10)}"
            self._failures = 0
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                processes.dying_with(parent)()
                status = _bring(self._layout, self._wanted, flaw)
            except BaseException:
                trace_exception("image")
            os._exit(status)
        self._child = child
        _, ended = os.waitpid(child, 0)
        self._child = 0
        return os.WEXITSTATUS(ended) if os.WIFEXITED(ended) else -os.WTERMSIG(ended)

    def _contain(self) -> int:
        """The container, from its start to its end, or from now on where it runs already."""
        container = self._running()
        if container is not None:
            trace("keeper: the container runs: attaching")
            return self._attend(container.attach_argv())
        container = self._container()
        if container is None:
            return _DOCKER_FAILED[0]
        self._sweep(container)
        # What set-up commands changed in the container's own files went with the last one.
        with suppress(FileNotFoundError):
            os.unlink(self._layout.mark("setup"))
        self._write_environment()
        return self._attend(container.run_argv())

    def _attend(self, argv: Sequence[str]) -> int:
        """Docker's client hands signals on to the container."""
        client = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=processes.dying_with(os.getpid()),
        )
        self._child = client.pid
        status = client.wait()
        self._child = 0
        return status

    def _container(self) -> Container | None:
        """As it was brought; None: it was not yet."""
        brought = read_json(self._layout.image)
        if brought is None:
            return None
        return container_of(self._layout, self._launch, tuple(brought["docker"]), str(brought["id"]))

    def _running(self) -> Container | None:
        """The node's container, if one runs. A docker that says nothing is asked again: it may run all the same."""
        container = self._container()
        until = time.monotonic() + _SILENT_FOR_S
        while container is not None:
            state = docker.call((*container.docker, "inspect", "--format", "{{.State.Running}}", container.name))
            if state.status == 0:
                return container if state.words == "true" else None
            if "no such" in state.words.lower() or time.monotonic() > until or self._terminations:
                return None
            trace(f"keeper: docker does not say whether the container runs: {state.words}")
            time.sleep(_FIRST_PAUSE_S)
        return None

    def _sweep(self, container: Container) -> None:
        """Remove what is left of earlier containers, of this node and, after a crash, of others."""
        docker.call((*container.docker, "rm", "--force", container.name))
        ended = ("--filter", "status=exited", "--filter", "status=dead")
        found = docker.call((*container.docker, "ps", "--all", "--quiet", "--filter", f"label={LABEL}", *ended))
        if found.status == 0 and found.words:
            docker.call((*container.docker, "rm", *found.words.split()))

    def _see_it_gone(self) -> None:
        """Wait until docker has removed the container, which it does by itself when that ends."""
        container = self._container()
        until = time.monotonic() + _REMOVED_WITHIN_S
        while container is not None and time.monotonic() < until:
            if docker.call((*container.docker, "inspect", "--format", "{{.Id}}", container.name)).status != 0:
                return
            time.sleep(0.1)

    def _write_environment(self) -> None:
        path = self._layout.container_environment
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(handed_on(os.environ))

    def _pass_on(self, number: int, frame: Any) -> None:
        self._terminations += 1
        if self._child:
            with suppress(ProcessLookupError):
                os.kill(self._child, number)


def _bring(layout: Layout, wanted: Wanted, flaw: str) -> int:
    from shunter_agent.daemon import hold

    hold(layout.agent_lock)
    return Bringer(layout.root, wanted, flaw).run()
