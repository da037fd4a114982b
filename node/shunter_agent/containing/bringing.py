"""An agent whose image is not here yet: it brings it, speaks for the node meanwhile, and says what keeps it."""

from __future__ import annotations

import os
import threading
import time
from typing import Callable, Sequence, TypeVar

from shunter_agent import processes
from shunter_agent.agent import Agent
from shunter_agent.containing import docker
from shunter_agent.containing.container import Container, Wanted
from shunter_agent.containing.docker import ImageFault, Passing
from shunter_agent.containing.statuses import HANDED_OVER
from shunter_agent.files import cut, tail, write_json
from shunter_agent.keeping.launchfile import LaunchFile
from shunter_agent.keeping.layout import Layout
from shunter_agent.trace import trace, trace_exception

_T = TypeVar("_T")
PART = "image"
_DONE = "done"
_LOOK_S = 0.5
_TOLD_EVERY_S = 5.0
_TRIES = 10
_LONGEST_WAIT_S = 60.0


class Bearer(threading.Thread):
    """Brings the image onto the machine and tries it. Its attributes are for any thread."""

    def __init__(
        self, layout: Layout, launch: LaunchFile, wanted: Wanted, changed: Callable[[], None], flaw: str = ""
    ) -> None:
        """`changed` is called when it is further, here, or given up. `flaw`: why it is no use although it is here."""
        super().__init__(name="image", daemon=True)
        self._layout = layout
        self._launch = launch
        self._wanted = wanted
        self._changed = changed
        self._flaw = flaw
        self.progress = ""
        self.here = False
        self.fault: ImageFault | None = None

    def run(self) -> None:
        try:
            self._bring()
            self.here = True
        except ImageFault as fault:
            self.fault = fault
        except Exception as error:
            trace_exception("image")
            self.fault = ImageFault("agent_error", f"{type(error).__name__}: {error}")
        self._changed()

    def _bring(self) -> None:
        self._note("looking for docker")
        found = self._persist(docker.NO_DOCKER, lambda: docker.find(self._wanted.may_install))
        self._note("pulling")
        image = self._persist(docker.UNREACHABLE, lambda: self._pull(found))
        self._note("trying it")
        container = container_of(self._layout, self._launch, found, image)
        self._persist(docker.NO_DOCKER, lambda: _try(container))
        if self._flaw:
            raise ImageFault(docker.NOT_STARTED, self._flaw)
        write_json(self._layout.image, {"docker": list(found), "id": image})

    def _pull(self, found: Sequence[str]) -> str:
        """The id of the image, as its registry has it now; as the machine has it, where no registry gives it."""
        log, image = self._layout.image_log, self._wanted.image
        with open(log, "wb") as output:
            child = processes.start((*found, "pull", image), self._layout.root, dict(os.environ), output, output)
        while child.poll() is None:
            time.sleep(_LOOK_S)
            self._note(docker.layers(tail(log, lines=10_000, limit=1 << 20)) or "pulling")
        words = "" if child.returncode == 0 else tail(log, lines=5)
        known = docker.call((*found, "image", "inspect", "--format", "{{.Id}}", image))
        if known.status == 0:
            if words:
                trace(f"image: {words}; the one that this machine has is taken")
            return known.words
        fault = docker.pull_fault(words)
        raise fault or Passing(words)

    def _persist(self, reason: str, act: Callable[[], _T]) -> _T:
        """Do `act` until it goes well, for some minutes; then it is for `reason` that it does not."""
        told = ""
        for attempt in range(_TRIES):
            if attempt:
                wait_s = min(2.0 ** (attempt - 1), _LONGEST_WAIT_S)
                trace(f"image: {told}; trying again in {wait_s:.0f} s")
                self._note((told.splitlines() or [""])[-1])
                time.sleep(wait_s)
            try:
                return act()
            except Passing as passing:
                told = str(passing)
        raise ImageFault(reason, f"tried {_TRIES} times\n{told}")

    def _note(self, progress: str) -> None:
        if progress != self.progress:
            self.progress = progress
            self._changed()


class Bringer(Agent):
    """What it is told to run is run by the agent inside the container, which hears of it again: nothing is accepted."""

    def __init__(self, root: str, wanted: Wanted, flaw: str = "") -> None:
        """`flaw`: what the image did when it was here before."""
        super().__init__(root)
        self._wanted = wanted
        self._bearer = self._send_bearer(flaw)
        self._told = ("", 0.0)
        self._gave_up = False

    def run(self) -> int:
        """Until the service releases the node, or the image is here."""
        super().run()
        return HANDED_OVER if self._leave_by is None else 0

    def status(self) -> dict[str, object]:
        """See `Agent.status`."""
        waits = self._next is not None
        return {**super().status(), **({"phase": "preparing"} if waits else {})}

    def _send_bearer(self, flaw: str = "") -> Bearer:
        shared = self._shared
        bearer = Bearer(shared.layout, shared.launch, self._wanted, lambda: shared.post(lambda: None), flaw)
        bearer.start()
        return bearer

    def _start_next(self) -> bool:
        """Tell how far the image is, or that it never comes."""
        if self._next is None:
            return False
        if self._gave_up:  # this generation may find it mended
            self._bearer, self._gave_up = self._send_bearer(), False
        number, fault = int(self._next["generation"]), self._bearer.fault
        if fault is not None:
            self._next, self._newest, self._gave_up = None, number, True
            self._give_up(number, fault)
            return True
        before, at = self._told
        if self._bearer.here:
            self._end_meeting()
            if before != _DONE:
                self._told = (_DONE, at)
                self._prepared(number, _DONE, "")
            return False
        if self._bearer.progress != before and time.monotonic() - at >= _TOLD_EVERY_S:
            self._told = (self._bearer.progress, time.monotonic())
            self._prepared(number, "started", f"{self._wanted.image}: {self._bearer.progress}")
        return False

    def _give_up(self, number: int, fault: ImageFault) -> None:
        message = cut(f"environment.image {self._wanted.image}: {fault}")
        failure_class = docker.CLASSES.get(fault.reason, "node")
        failed = {"failure_class": failure_class, "reason": fault.reason, "message": message}
        self._prepared(number, "failed", message)
        self._shared.recorder.record("failed", number, failed)
        self._shared.recorder.record("drained", number, {})

    def _prepared(self, number: int, status: str, message: str) -> None:
        data = {"part": PART, "status": status, "message": message, "facts": {}}
        self._shared.recorder.record("prepare", number, data, within_s=0.0)

    def _may_leave(self) -> bool:
        """Also once the image is here, but for a gathering, which goes on here until it has led to an assignment."""
        if self._leave_by is None and self._bearer.here and self._meeting is None:
            self._farewell = "the agent in the container goes on"
            return True
        return super()._may_leave()


def container_of(layout: Layout, launch: LaunchFile, found: Sequence[str], image: str) -> Container:
    """The node's container of the image of this id."""
    wanted = Wanted.of(launch.container or {})
    return Container(found, image, layout, launch.node, str(launch.labels.get("job", "")), wanted.gpus)


def _try(container: Container) -> None:
    """Start it once.

    Raises:
        ImageFault: the image cannot run here.
        Passing: docker cannot start it now.
    """
    answer = docker.call(container.check_argv(), within_s=300.0)
    fault = docker.start_fault(answer)
    if fault is not None:
        raise fault
    if answer.status != 0:
        raise Passing(answer.words or f"docker run: exit {answer.status}")
