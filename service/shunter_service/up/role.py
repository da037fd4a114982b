"""A role that the supervisor keeps running: how it is started, when it works, when it hangs, when it fails for good."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shunter_store.installation.exit_codes import WRONG_SETTINGS

from shunter_service.up.child import Child

Probe = Callable[[Child], bool]

_LOOPS_AFTER = 3
_STEADY_AFTER_S = 30.0
_FIRST_BACK_OFF_S = 0.2
_LONGEST_BACK_OFF_S = 10.0


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """What a role is made of. Probes answer within about a second."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path
    is_ready: Probe
    """Whether it can do its work; asked until it is true once."""
    is_alive: Probe
    """Whether it still reacts; a role that does not for `hangs_after_s` is killed and started again."""
    hangs_after_s: float = 60.0
    pass_fds: tuple[int, ...] = ()
    stops_last: bool = False
    on_crash_loop: Callable[[], None] | None = None
    """What may help a role that ends again and again; called once a loop, before the next start."""


@dataclass(slots=True)
class Role:
    """A role and its present process."""

    spec: RoleSpec
    report: Callable[[str], None]
    child: Child | None = None
    ready: bool = False
    failures: int = 0
    """Ends in a row without a steady run between them."""
    said: str = ""
    """The end of what the process wrote that ended last."""
    refusal: str = ""
    """What that one said of its settings, if it ended for them: nobody mends that by starting it again."""
    _next_start: float = 0.0
    _answered_at: float = field(default_factory=time.monotonic)

    @property
    def loops(self) -> bool:
        """Whether it ends again and again."""
        return self.failures >= _LOOPS_AFTER

    def tick(self) -> None:
        """Start it if it is due, note its end, learn whether it became ready."""
        if self.child is None:
            self._start_if_due()
        elif (code := self.child.exit_code()) is not None:
            self._note_end(f"ended with {_in_words(code)}", is_refused=code == WRONG_SETTINGS)
        elif not self.ready and self.spec.is_ready(self.child):
            self.ready = True
            self._answered_at = time.monotonic()
            if self.failures:
                self.report(f"{self.spec.name} works again")
        elif self.failures and self.child.age_s > _STEADY_AFTER_S:
            self.failures = 0

    def forgive(self) -> None:
        """Forget its ends: there was a reason, which is mended now."""
        self.failures, self._next_start = 0, 0.0

    def check(self) -> None:
        """Ask whether it still reacts; kill it when it has not for too long, so that the next tick starts it again."""
        if self.child is None or self.child.exit_code() is not None:
            return
        now = time.monotonic()
        if self.spec.is_alive(self.child):
            self._answered_at = now
        elif now - self._answered_at > self.spec.hangs_after_s:
            self.child.kill()
            self._note_end("hangs and was killed")

    def _start_if_due(self) -> None:
        now = time.monotonic()
        if now < self._next_start:
            return
        if self.failures == _LOOPS_AFTER and self.spec.on_crash_loop:
            self.spec.on_crash_loop()
        spec = self.spec
        self.ready = False
        self._answered_at = now
        self.child = Child(spec.name, spec.argv, spec.env, spec.log, spec.pass_fds)

    def _note_end(self, how: str, *, is_refused: bool = False) -> None:
        assert self.child is not None
        self.child.kill()  # what is left of its group
        self.said = self.child.said()
        self.refusal = self.said.removeprefix(f"shunter {self.spec.name}: ") if is_refused else ""
        self.failures = 1 if self.child.age_s > _STEADY_AFTER_S else self.failures + 1
        back_off_s = min(_LONGEST_BACK_OFF_S, _FIRST_BACK_OFF_S * 2 ** (self.failures - 1))
        self._next_start = time.monotonic() + back_off_s
        self.child = None
        self.ready = False
        if is_refused:
            return  # whoever looks after it says more
        again = f"; it has ended {self.failures} times in a row" if self.failures > 1 else ""
        self.report(f"{self.spec.name} {how}{again}; starting it again in {back_off_s:.1f} s (see {self.spec.log})")


def _in_words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
