"""The one runtime of a worker child, and the three moments in which Celery touches it. Empty in every other process."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from shunter_workers.settings import WorkerSettings

if TYPE_CHECKING:
    from celery import Celery

    from shunter_workers.runtime import Runtime

_INHERITED_SILENCE = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

_runtime: Runtime | None = None


def begin(settings: WorkerSettings, app: Celery) -> None:
    """After the fork."""
    from shunter_workers.runtime import Runtime

    global _runtime
    _do_not_bequeath_ignored_signals()
    _runtime = Runtime(settings, app)
    _runtime.start()


def take_hint() -> None:
    """Something may be due."""
    if _runtime is not None:
        _runtime.hint()


def end() -> None:
    """The child is about to exit."""
    global _runtime
    runtime, _runtime = _runtime, None
    if runtime is not None:
        runtime.stop()


def _do_not_bequeath_ignored_signals() -> None:
    """An ignored signal stays ignored through exec, so agents and ranks would never see it; a handler does not."""
    for number in _INHERITED_SILENCE:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _nothing)


def _nothing(*_: object) -> None:
    """Handled, by doing nothing."""
