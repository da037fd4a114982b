"""Why a job stands where it stands: a sentence for each situation, and a way out."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from shunter.explaining import Explanation, explained, failing_rank
from shunter_schemas.api import Attempt, Job, Progress, RecoveryPhase, RecoveryTimes, Tried, Waiting
from shunter_schemas.reasons import MEANINGS
from shunter_schemas.states import Reason, State
from support.api_process import ApiProcess
from support.command_line import shunter, written

NOW = datetime.now(UTC)


def job(state: str, **more: Any) -> Job:
    given = {"created_at": NOW, "updated_at": NOW, "revision": 1, "spec": {}, **more}
    return Job(id="job_1", name="tiny", state=State(state), **given)


BACK = RecoveryTimes(
    lost_at=NOW,
    resumed_at=NOW + timedelta(seconds=9.5),
    seconds=9.5,
    phases=tuple(
        RecoveryPhase(name=name, seconds=took_s)
        for name, took_s in (("noticed", 1.5), ("stopped", 2.0), ("ranks_up", 6.0))
    ),
)


def failed(reason: Reason, message: str = "") -> Job:
    times = {"started_at": NOW, "finished_at": NOW + timedelta(seconds=95)}
    return job("failed", outcome="failed", reason=reason, message=message, **times)


def said(explanation: Explanation) -> str:
    return "\n".join(explanation.as_lines())


@pytest.mark.parametrize(
    ("shown", "headline", "sentence", "way_out"),
    [
        (job("queued", created_at=NOW + timedelta(hours=1)), "waits", "It was just accepted", "shunter watch job_1"),
        (
            job("queued", created_at=NOW - timedelta(minutes=5)),
            "job_1 (tiny) waits",
            "ago, and no worker has planned it yet.",
            "shunter watch job_1",
        ),
        (
            job("queued", waiting=Waiting(reason="no_capacity", detail="needs 2 CPU slots, 0 of 4 are free")),
            "job_1 (tiny) waits",
            "It waits: needs 2 CPU slots, 0 of 4 are free.",
            "shunter update job_1 --priority high",
        ),
        (
            job("queued", waiting=Waiting(reason="no_capacity", position=3, blocked_by=("job_a", "job_b"))),
            "job_1 (tiny) waits",
            "It has place 3 in the queue, behind job_a, job_b.",
            "shunter cancel job_1",
        ),
        (job("queued", pause_requested_at=NOW), "waits", "It is paused: somebody asked", "shunter resume job_1"),
        (job("running", pause_requested_at=NOW), "runs", "It is about to pause", "shunter resume job_1"),
        (job("starting"), "starts", "being set up (output of rank -1)", "shunter watch job_1"),
        (job("running", health="unreachable"), "runs", "a gap in the reports and no failure", "shunter watch job_1"),
        (
            job("recovering", attempts=(
                Attempt(generation=1, started_at=NOW, how="lost", message="rank 1 ended by SIGKILL", last_step=120),
            )),
            "recovers",
            "Start 1 was lost after step 120: rank 1 ended by SIGKILL.",
            "shunter watch job_1",
        ),
        (
            job("running", attempts=(Attempt(generation=2, started_at=NOW, how="running", recovery=BACK),)),
            "runs",
            "Back at work 9.5 s after the loss (noticed 1.5, stopped 2.0, ranks_up 6.0).",
            "shunter watch job_1",
        ),
        (
            job("running", progress=Progress(step=3, total_steps=9)),
            "runs",
            "It has come to step 3/9.",
            "shunter watch job_1",
        ),
        (
            job("succeeded", outcome="succeeded", reason="done"),
            "job_1 (tiny) succeeded",
            "",
            "shunter artifacts job_1 --download DIR",
        ),
        (
            job("stopping", outcome="cancelled", reason="cancelled_by_user"),
            "is stopping: cancelled_by_user",
            "being collected, and its nodes released",
            "shunter retry job_1",
        ),
        (failed(Reason.SETUP_FAILED), "failed after 1:35: setup_failed", "failed on a node", "logs job_1 --rank -1"),
        (failed(Reason.OUT_OF_MEMORY), "out_of_memory", "A rank ran out of memory.", "batch.micro_size"),
        (failed(Reason.BUDGET_EXHAUSTED), "budget_exhausted", "would cost more", "shunter retry job_1"),
    ],
)  # fmt: skip
def test_each_situation_has_its_sentence_and_way_out(shown: Job, headline: str, sentence: str, way_out: str) -> None:
    explanation = explained(shown)

    assert headline in explanation.headline
    assert sentence in "\n".join(explanation.sentences)
    assert way_out in "\n".join(explanation.ways_out)


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.DONE])
def test_every_reason_is_explained_with_its_way_out(reason: Reason) -> None:
    explanation = explained(failed(reason))

    assert MEANINGS[reason].way_out in explanation.ways_out
    assert "shunter events job_1" in said(explanation)


def test_a_missing_worker_is_said_first() -> None:
    explanation = explained(job("queued"), workers=False)

    assert explanation.sentences == ("No worker runs, so nobody takes it up.",)
    assert "shunter worker" in said(explanation)


def test_what_was_tried_is_listed() -> None:
    tried = (Tried(provider="lambda", instance_type="gpu_8x", region="us-west-1", reason="no_capacity"),)

    text = said(explained(job("queued", waiting=Waiting(reason="no_capacity", tried=tried))))

    assert "tried lambda gpu_8x us-west-1: no provider has what it needs" in text


def test_the_last_words_and_the_output_stand_in_blocks() -> None:
    text = said(explained(failed(Reason.USER_ERROR, "rank 1 ended with exit code 1"), ["Traceback", "Boom"]))

    assert "what it said:\n  rank 1 ended with exit code 1" in text
    assert "its last output:\n  Traceback\n  Boom" in text


@pytest.mark.parametrize(
    ("message", "rank"), [("rank 12 ended with exit code 1", 12), ("node 0: rank 3 failed", 3), ("set-up failed", None)]
)
def test_the_rank_that_failed_is_read_from_the_message(message: str, rank: int | None) -> None:
    assert failing_rank(message) == rank


def test_the_command_shows_the_output_of_the_rank_that_failed(cli_environment: ApiProcess, tmp_path: Any) -> None:
    job_id = shunter("submit", written(tmp_path)).stdout.strip()
    part = cli_environment.worker_part(job_id)
    part.run()
    part.print("fine here\n", rank=0)
    part.print("".join(f"line {n}\n" for n in range(30)), rank=1)
    part.end(Reason.USER_ERROR, "rank 1 ended with exit code 1")

    shown = shunter("why", job_id)

    lines = shown.stdout.splitlines()
    assert shown.exit_code == 0
    assert lines[0].startswith(f"{job_id} (tiny-lm-ddp) failed after ")
    assert "  line 29" in lines
    assert "  line 3" not in lines
    assert "fine here" not in shown.stdout
    assert f"shunter submit --like {job_id} --source DIR" in shown.stdout


def test_a_job_that_nobody_takes_up_is_explained_as_such(cli_environment: ApiProcess, tmp_path: Any) -> None:
    job_id = shunter("submit", written(tmp_path)).stdout.strip()

    assert "No worker runs" in shunter("why", job_id).stdout
    assert '"No worker runs' in shunter("why", job_id, "--json").stdout
