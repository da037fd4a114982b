"""A job's progress in a notebook's cell, drawn anew in place; as text where a front end shows no HTML."""

from __future__ import annotations

import sys
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from shunter_schemas.states import State

if TYPE_CHECKING:
    from shunter_schemas.api import Job

    from shunter.retries import Outage

_COLOURS = {
    State.SUCCEEDED: "#2e7d32",
    State.FAILED: "#c62828",
    State.CANCELLED: "#b26a00",
    State.RECOVERING: "#b26a00",
}
_BAR = '<progress value="{done}" max="{total}" style="width:16em;vertical-align:middle"></progress> '


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this, so that cells can show HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


class NotebookDisplay:
    """One output of the cell, replaced with each look at the job."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._job: Job | None = None
        self._outage: Outage | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def show(self, job: Job) -> None:
        """Draw the job anew."""
        self._job = job
        self._draw()

    def away(self, outage: Outage | None) -> None:
        """Draw that the service does not answer."""
        self._outage = outage
        self._draw()

    def _draw(self) -> None:
        from IPython.display import display

        drawn = {"text/html": html_of(self._job, self._outage), "text/plain": text_of(self._job, self._outage)}
        if self._handle is None:
            self._handle = display(drawn, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(drawn, raw=True)


def text_of(job: Job | None, outage: Outage | None) -> str:
    """What a front end without HTML shows."""
    from shunter.display import away_words, status_line

    lines = [f"{job.id}  {status_line(job)}"] if job else []
    return "\n".join([*lines, *([away_words(outage)] if outage else [])])


def html_of(job: Job | None, outage: Outage | None) -> str:
    """What a cell shows."""
    from shunter.display import away_words, figures, steps, summary, waiting_words

    lines = [] if job is None else [_head(job)]
    if job is not None and job.progress:
        total = job.progress.total_steps
        bar = _BAR.format(done=job.progress.step, total=total) if total else ""
        lines.append(bar + escape("  ".join((steps(job), *figures(job)))))
    if job is not None and job.waiting:
        lines.append(escape(waiting_words(job)))
    if job is not None and job.outcome:
        lines.append(escape(summary(job)))
    if outage is not None:
        lines.append(f'<span style="color:#c62828">{escape(away_words(outage))}</span>')
    return f'<div style="font-variant-numeric:tabular-nums">{"<br>".join(lines)}</div>'


def _head(job: Job) -> str:
    colour = _COLOURS.get(job.state, "inherit")
    state = f'<span style="color:{colour}">{escape(str(job.state))}</span>'
    return f"<b>{escape(job.name)}</b> <code>{escape(job.id)}</code> {state}"
