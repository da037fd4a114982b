"""Keeps the roles running until it is told to stop; then stops them in order."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from types import FrameType

from shunter_service.up.child import Child
from shunter_service.up.role import Role, RoleSpec

_QUICK_TICK_S = 0.02
_TICK_S = 1.0
_CHECK_EVERY_S = 5.0
_GIVES_UP_AFTER = 5
_READY_WITHIN_S = 120.0
_STOP_WITHIN_S = 6.0


class RoleFails(Exception):
    """A role cannot be brought up at all."""


class Supervisor:
    """Runs in the main thread of its process: it owns the signals, and children are bound to this thread's life."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._roles: list[Role] = []
        self._asked_to_stop = 0
        self._is_quiet = False
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)

    def listen_to_signals(self) -> None:
        """SIGTERM, SIGHUP and Ctrl-C stop; a second one kills."""
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop_asked)

    @property
    def stopping(self) -> bool:
        return self._asked_to_stop > 0

    def add(self, spec: RoleSpec) -> None:
        """Start a role; it is kept running from now on."""
        role = Role(spec, self._tell)
        self._roles.append(role)
        role.tick()

    def wait_for(self, child: Child, timeout_s: float) -> int | None:
        """Let a one-off child end while the roles are looked after; its exit code, or None when it was stopped.

        Roles that end before it does are started again without a word: they may need what it prepares, and if it
        fails it says why.

        Raises:
            RoleFails: a role says that its settings are wrong.
        """
        deadline = time.monotonic() + timeout_s
        self._is_quiet = True
        while not self.stopping and child.exit_code() is None:
            if time.monotonic() > deadline:
                child.kill()
                break
            self._tick()
            self._raise_if_refused()
            self._sleep(_QUICK_TICK_S)
        self._is_quiet = False
        for role in self._roles:
            role.forgive()
        if self.stopping:
            child.kill()
            return None
        return child.exit_code()

    def wait_until_ready(self) -> bool:
        """Until every role works; False when it was told to stop before.

        Raises:
            RoleFails: a role says that its settings are wrong, one ends again and again, or one is not ready in time.
        """
        deadline = time.monotonic() + _READY_WITHIN_S
        while not self.stopping:
            self._tick()
            if all(role.ready for role in self._roles):
                return True
            self._raise_if_refused()
            for role in self._roles:
                if role.failures >= _GIVES_UP_AFTER:
                    raise RoleFails(f"{role.spec.name} does not start; the end of its log:\n{role.said}")
            if time.monotonic() > deadline:
                waiting = ", ".join(role.spec.name for role in self._roles if not role.ready)
                raise RoleFails(f"not ready after {_READY_WITHIN_S:.0f} s: {waiting}")
            self._sleep(_QUICK_TICK_S)
        return False

    def keep_running(self) -> None:
        """Until it is told to stop."""
        next_check = time.monotonic() + _CHECK_EVERY_S
        while not self.stopping:
            self._tick()
            self._tell_refusals()
            if time.monotonic() >= next_check:
                for role in self._roles:
                    role.check()
                next_check = time.monotonic() + _CHECK_EVERY_S
            self._sleep(_TICK_S if all(role.ready for role in self._roles) else 5 * _QUICK_TICK_S)

    def stop(self) -> None:
        """Stop the roles, those that others need last, all within a few seconds."""
        for last in (False, True):
            group = [role.child for role in self._roles if role.child and role.spec.stops_last is last]
            _stop_group(group, self._sleep)

    def _tick(self) -> None:
        for role in self._roles:
            looped = role.loops
            role.tick()
            if role.loops and not looped:
                self._tell(f"{role.spec.name} keeps ending; the end of its log:\n{role.said}")

    def _raise_if_refused(self) -> None:
        for role in self._roles:
            if role.refusal:
                raise RoleFails(role.refusal)

    def _tell_refusals(self) -> None:
        """Of a role that had run before: what it cannot begin again with, others may still run with."""
        for role in self._roles:
            if role.refusal:
                self._tell(f"{role.spec.name} cannot be started again until this is mended: {role.refusal}")
                role.refusal = ""

    def _tell(self, text: str) -> None:
        if not self._is_quiet:
            self._report(text)

    def _sleep(self, timeout_s: float) -> None:
        """Sleep until a signal comes (a child that ended is one)."""
        if select.select([self._wake_read], [], [], timeout_s)[0]:
            self._wake_read.recv(4096)

    def _stop_asked(self, number: int, _: FrameType | None) -> None:
        self._asked_to_stop += 1
        if self._asked_to_stop > 1:
            for role in self._roles:
                if role.child is not None:
                    role.child.kill()
            os._exit(128 + number)


def _stop_group(children: Sequence[Child], sleep: Callable[[float], None]) -> None:
    deadline = time.monotonic() + _STOP_WITHIN_S
    for child in children:
        child.ask_to_stop()
    while any(child.exit_code() is None for child in children) and time.monotonic() < deadline:
        sleep(0.1)
    for child in children:
        child.kill()
