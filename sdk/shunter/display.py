"""A job's progress for people: one status line that is drawn anew on a terminal, plain lines of news elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from shunter_schemas.states import TERMINAL_STATES, Reason, State

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from shunter_schemas.api import Job, RecoveryTimes

    from shunter.retries import Away, Outage

_PLAIN_EVERY_S = 5.0
_AWAY_EVERY_S = 60.0
_BACK_IS_NEWS_FOR = timedelta(minutes=2)


class Display(Protocol):
    """Something that shows a job while it is looked at; used as a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def show(self, job: Job) -> None:
        """The job as it is now."""
        ...

    def away(self, outage: Outage | None) -> None:
        """The service does not answer; None: it does again."""
        ...


def make_display(stream: TextIO | None = None) -> Display:
    """What suits the stream (default: standard output): live on a terminal, plain lines otherwise.

    In a notebook the cell shows it, unless a stream is given.
    """
    from shunter.notebook import NotebookDisplay, in_notebook

    if stream is None and in_notebook():
        return NotebookDisplay()
    target: TextIO = sys.stdout if stream is None else stream
    return LiveDisplay(target) if target.isatty() else PlainDisplay(target)


@contextmanager
def shown(
    progress: Callable[[Job], None] | bool | None, away: Away | None
) -> Iterator[tuple[Callable[[Job], None] | None, Away | None]]:
    """What is called with the job and while the service is away: the caller's own, or with True a display."""
    if progress is not True:
        yield progress or None, away
        return
    with make_display() as display:
        yield display.show, away or display.away


def status_line(job: Job) -> str:
    """State, step, figures and time left in one line; while the job waits, why."""
    parts = [str(job.state)]
    if job.progress and job.state not in (State.QUEUED, State.PROVISIONING):
        parts += [steps(job), *figures(job)]
    if job.waiting and job.state in (State.QUEUED, State.PROVISIONING, State.RECOVERING):
        parts.append(waiting_words(job))
    if job.state in (State.STOPPING, *TERMINAL_STATES):
        parts.append(_why(job))
    if job.state not in TERMINAL_STATES:
        parts.append(_just_back(job))
        parts += ["its nodes do not report"] if job.health != "ok" else []
        parts += ["paused" if job.state == State.QUEUED else "pausing"] if job.pause_requested_at else []
    return "  ".join(part for part in parts if part)


def steps(job: Job) -> str:
    """`step 120/300`."""
    if job.progress is None:
        return ""
    total = f"/{job.progress.total_steps}" if job.progress.total_steps else ""
    return f"step {job.progress.step}{total}"


def figures(job: Job) -> list[str]:
    """The newest losses, the speed, and the time left while it runs."""
    progress = job.progress
    if progress is None:
        return []
    loss = progress.loss if progress.loss is not None else progress.values.get("loss")
    found = [("loss", loss), ("val_loss", progress.values.get("val_loss"))]
    words = [f"{name} {_loss(value)}" for name, value in found if value is not None]
    if job.state == State.RUNNING:
        if progress.tokens_per_s is not None:
            words.append(f"{_count(progress.tokens_per_s)} tokens/s")
        if progress.eta_s is not None:
            words.append(f"eta {duration(progress.eta_s)}")
    return words


def waiting_words(job: Job) -> str:
    """Why the job has no nodes yet."""
    waiting = job.waiting
    if waiting is None:
        return ""
    place = f" (place {waiting.position} in the queue)" if waiting.position else ""
    return f"waiting: {waiting.detail or waiting.reason}{place}"


def came_back(recovery: RecoveryTimes) -> str:
    """How long it took after a loss, and what it was spent on."""
    spent = ", ".join(f"{phase.name} {phase.seconds:.1f}" for phase in recovery.phases)
    so_far = "" if recovery.resumed_at is not None else " so far"
    return f"back at work {recovery.seconds:.1f} s after the loss{so_far} ({spent})"


def _just_back(job: Job) -> str:
    """For some minutes after a loss."""
    recovery = job.attempts[-1].recovery if job.attempts else None
    if job.state is not State.RUNNING or recovery is None or recovery.resumed_at is None:
        return ""
    is_news = datetime.now(UTC) - recovery.resumed_at < _BACK_IS_NEWS_FOR
    return f"back {recovery.seconds:.0f} s after a loss" if is_news else ""


def away_words(outage: Outage) -> str:
    """That the service does not answer, since when, and why."""
    since = outage.since.astimezone().strftime("%H:%M:%S")
    return f"no answer from the service since {since} ({duration(outage.lasted_s)}); trying on: {outage.error}"


def summary(job: Job) -> str:
    """How an ended job ended, in one line."""
    begun = job.started_at or job.created_at
    took = f" after {duration((job.finished_at - begun).total_seconds())}" if job.finished_at else ""
    figures_ = [steps(job), *figures(job)]
    return "  ".join(part for part in (f"{job.state}{took}", _why(job), *figures_) if part)


def duration(seconds: float) -> str:
    """`4:07`, or `1:02:03`."""
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


class AwayLines:
    """Says on a stream when the service is away, again each minute, and when it is back."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._outage: Outage | None = None
        self._told_at_s = 0.0

    def __call__(self, outage: Outage | None) -> None:
        """Print a line if there is news."""
        now, stream = time.monotonic(), self._stream or sys.stderr
        if outage is None:
            if self._outage is not None:
                print(f"the service answers again after {duration(self._outage.lasted_s)}", file=stream, flush=True)
        elif self._outage is None or now - self._told_at_s >= _AWAY_EVERY_S:
            print(away_words(outage), file=stream, flush=True)
            self._told_at_s = now
        self._outage = outage


class PlainDisplay:
    """A line for each change of state or of the reason to wait, and every few seconds while the training moves.

    That the service is away is said on standard error.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last_line = ""
        self._last_news: tuple[str, str] = ("", "")
        self._last_at_s = 0.0
        self._away_lines = AwayLines()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stream.flush()

    def show(self, job: Job) -> None:
        """Print a line if there is news."""
        news = (str(job.state), waiting_words(job))
        due = time.monotonic() - self._last_at_s >= _PLAIN_EVERY_S
        line = status_line(job)
        if line == self._last_line or not (due or news != self._last_news):
            return
        self._last_line, self._last_news, self._last_at_s = line, news, time.monotonic()
        print(f"{job.id}  {line}", file=self._stream, flush=True)

    def away(self, outage: Outage | None) -> None:
        """Say it, if it is news."""
        self._away_lines(outage)


class LiveDisplay:
    """Lines that stay in place: name, state and clock; a bar with the figures; why it waits; an outage."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._job: Job | None = None
        self._outage: Outage | None = None
        console = Console(file=stream)
        self._live: Live = Live(console=console, get_renderable=self._drawn, refresh_per_second=4, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, job: Job) -> None:
        """Draw the job anew."""
        self._job = job

    def away(self, outage: Outage | None) -> None:
        """Draw that the service does not answer; the clock goes on."""
        self._outage = outage

    def _drawn(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        lines = [] if self._job is None else _drawn(self._job)
        if self._outage is not None:
            lines.append(Text(away_words(self._outage), style="red"))
        return Group(*lines)


_COLOURS: Mapping[State, str] = {
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.CANCELLED: "yellow",
    State.RUNNING: "cyan",
    State.RECOVERING: "yellow",
}


def _drawn(job: Job) -> list[RenderableType]:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    clock = duration(((job.finished_at or datetime.now(UTC)) - job.created_at).total_seconds())
    head = Text.assemble(
        (job.name, "bold"),
        "  ",
        (job.id, "dim"),
        "  ",
        (str(job.state), _COLOURS.get(job.state, "")),
        "  ",
        (clock, "dim"),
    )
    lines: list[RenderableType] = [head]
    if job.progress:
        figures_ = Table.grid(padding=(0, 2, 0, 0))
        bar = ProgressBar(total=job.progress.total_steps or 1, completed=job.progress.step, width=12)
        shown = Text("  ".join((steps(job), *figures(job))))
        figures_.add_row(*([bar, shown] if job.progress.total_steps else [shown]))
        lines.append(figures_)
    if job.waiting and job.state not in TERMINAL_STATES:
        lines.append(Text(waiting_words(job), style="yellow"))
    return lines


def _why(job: Job) -> str:
    """The reason, where the state does not say it already."""
    return "" if job.reason in (None, Reason.DONE, Reason.CANCELLED_BY_USER) else str(job.reason)


def _loss(value: float) -> str:
    return f"{value:.3f}" if 0.01 <= abs(value) < 1000 else f"{value:.3g}"


def _count(value: float) -> str:
    for bound, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= bound:
            return f"{value / bound:.3g}{unit}"
    return f"{value:.3g}"
