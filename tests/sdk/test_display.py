"""A job in words: one line for each situation, and as few lines as there is news."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console
from shunter.display import LiveDisplay, PlainDisplay, duration, make_display, status_line, summary
from shunter_schemas.api import Attempt, Job, Progress, RecoveryTimes, Waiting
from shunter_schemas.states import State

NOW = datetime(2026, 11, 30, 4, 53, tzinfo=UTC)

TRAINING = Progress(step=120, total_steps=300, loss=2.3125, tokens_per_s=51234.0, eta_s=187.0, values={"val_loss": 0.5})
WAITING = Waiting(reason="no_capacity", detail="needs 2 CPU slots, 0 of 4 are free", position=3)


def job(state: str, **more: Any) -> Job:
    return Job(id="job_1", name="tiny", state=State(state), created_at=NOW, updated_at=NOW, revision=1, spec={}, **more)


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (job("queued"), "queued"),
        (
            job("queued", waiting=WAITING),
            "queued  waiting: needs 2 CPU slots, 0 of 4 are free (place 3 in the queue)",
        ),
        (job("queued", waiting=Waiting(reason="quota")), "queued  waiting: quota"),
        (
            job("running", progress=TRAINING),
            "running  step 120/300  loss 2.312  val_loss 0.500  51.2k tokens/s  eta 3:07",
        ),
        (job("running", progress=Progress(step=7)), "running  step 7"),
        (job("running", progress=TRAINING, health="unreachable"), "running  step 120/300  loss 2.312  val_loss 0.500"
         "  51.2k tokens/s  eta 3:07  its nodes do not report"),
        (job("stopping", reason="duration_exceeded"), "stopping  duration_exceeded"),
        (job("running", reason=None, progress=Progress(step=1, values={"loss": 1e-5})), "running  step 1  loss 1e-05"),
    ],
)  # fmt: skip
def test_a_status_line_says_what_matters_in_that_state(shown: Job, line: str) -> None:
    assert status_line(shown) == line


def test_a_job_that_is_just_back_after_a_loss_says_how_long_it_was_away() -> None:
    now = datetime.now(UTC)
    long_ago = now - timedelta(hours=1)

    just, not_yet, before = (
        job("running", attempts=(Attempt(generation=2, started_at=NOW, how="running", recovery=recovery),))
        for recovery in (
            RecoveryTimes(lost_at=now, resumed_at=now, seconds=31.8),
            RecoveryTimes(lost_at=now, seconds=31.8),
            RecoveryTimes(lost_at=long_ago, resumed_at=long_ago, seconds=31.8),
        )
    )

    assert status_line(just) == "running  back 32 s after a loss"
    assert status_line(not_yet) == status_line(before) == "running"


def test_an_ended_job_is_summed_up_with_its_time_and_losses() -> None:
    times = {"started_at": NOW, "finished_at": NOW + timedelta(seconds=95)}

    assert summary(job("succeeded", reason="done", progress=TRAINING, **times)) == (
        "succeeded after 1:35  step 120/300  loss 2.312  val_loss 0.500"
    )
    assert summary(job("failed", reason="user_error", **times)) == "failed after 1:35  user_error"


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (-3, "0:00"), (61.4, "1:01"), (3723, "1:02:03")])
def test_durations_read_like_a_clock(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_plain_lines_come_with_news_and_not_with_every_look() -> None:
    stream = io.StringIO()
    with PlainDisplay(stream) as display:
        for shown in [
            job("queued", waiting=WAITING),
            job("queued", waiting=WAITING),
            job("running"),
            job("running", progress=Progress(step=1, total_steps=300)),
            job("running", progress=Progress(step=2, total_steps=300)),
            job("succeeded", reason="done"),
        ]:
            display.show(shown)

    assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["queued", "running", "succeeded"]


def test_what_is_no_terminal_gets_plain_lines() -> None:
    assert isinstance(make_display(io.StringIO()), PlainDisplay)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_live_display_fits_any_width(width: int) -> None:
    stream = io.StringIO()
    display = LiveDisplay(stream)
    display._live.console = Console(file=stream, width=width, force_terminal=True)
    with display:
        display.show(job("recovering", progress=TRAINING, waiting=WAITING))

    assert "recovering" in stream.getvalue()
    assert "120/300" in stream.getvalue()
