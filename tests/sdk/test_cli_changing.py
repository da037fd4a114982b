"""Commands that change jobs, against a real API process."""

import json
import uuid
from pathlib import Path

import pytest
from shunter import Client
from shunter_schemas.states import Reason
from support.api_process import ApiProcess
from support.command_line import shunter, written
from support.documents import changed, tiny_lm


@pytest.fixture
def job_id(cli_environment: ApiProcess, tmp_path: Path) -> str:
    return shunter("submit", written(tmp_path)).stdout.strip()


@pytest.fixture
def ended(cli_environment: ApiProcess, job_id: str) -> str:
    part = cli_environment.worker_part(job_id)
    part.run()
    part.end(Reason.USER_ERROR, "rank 0: boom")
    return job_id


@pytest.fixture
def batch(cli_environment: ApiProcess, blocking_client: Client) -> tuple[str, list[str]]:
    """A label of its own and the jobs that carry it, newest first."""
    value = uuid.uuid4().hex
    document = changed(tiny_lm(), {"labels": {"batch": value}})
    return f"batch={value}", [blocking_client.submit(document).id for _ in range(2)][::-1]


def test_jobs_are_listed_and_cancelled_by_label(batch: tuple[str, list[str]]) -> None:
    label, jobs = batch

    listed = json.loads(shunter("jobs", "--label", label, "--json").stdout)
    cancelled = shunter("cancel", "--label", label)
    again = shunter("cancel", "--label", label, "--json")

    assert [job["id"] for job in listed] == jobs
    assert [line.split()[0] for line in cancelled.stdout.splitlines()] == jobs
    assert (again.exit_code, json.loads(again.stdout)) == (0, [])


def test_cancel_takes_ids_or_options_and_not_both(batch: tuple[str, list[str]]) -> None:
    label, (job_id, _) = batch

    both, neither = shunter("cancel", job_id, "--label", label), shunter("cancel")

    assert (both.exit_code, neither.exit_code) == (2, 2)


def test_several_ids_are_cancelled_at_once(batch: tuple[str, list[str]]) -> None:
    _, jobs = batch

    done = shunter("cancel", *jobs, "--json")

    assert [job["id"] for job in json.loads(done.stdout)] == jobs


def test_a_retry_prints_the_new_id_and_says_what_it_is_a_retry_of(ended: str) -> None:
    done = shunter("retry", ended, "--from", "start", "--label", "again=yes", "--limit", "max_duration_s=60")

    new = done.stdout.strip()
    assert (done.exit_code, new.startswith("job_"), new != ended) == (0, True, True)
    shown = shunter("job", new).stdout
    assert f"retry of  {ended}" in shown
    assert "again=yes" in shown


def test_pausing_and_resuming_are_seen_in_lists_and_reasons(job_id: str) -> None:
    paused = shunter("pause", job_id)
    row = shunter("jobs", "--limit", "1").stdout.splitlines()[1]
    why = shunter("why", job_id).stdout
    resumed = shunter("resume", job_id)

    assert paused.stdout == f"{job_id}  queued  paused\n"
    assert "queued (paused)" in row
    assert "It is paused: somebody asked for it" in why
    assert f"shunter resume {job_id}" in why
    assert resumed.stdout == f"{job_id}  queued\n"


def test_a_checkpoint_of_a_job_that_does_not_run_is_refused_in_one_line(job_id: str) -> None:
    done = shunter("checkpoint", job_id)

    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")


def test_labels_and_limits_are_set_and_taken_away(job_id: str) -> None:
    shunter("update", job_id, "--label", "a=1", "--label", "example-", "--limit", "max_duration_s=60")

    lifted = json.loads(shunter("update", job_id, "--limit", "max_duration_s-", "--priority", "high", "--json").stdout)

    assert (lifted["labels"], lifted["priority"]) == ({"a": "1"}, "high")
    assert lifted["spec"]["limits"].get("max_duration_s") is None


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "give what to change"),
        (["--label", "novalue"], "'novalue' is neither NAME=VALUE nor NAME-"),
        (["--limit", "max_duration_s=soon"], "'soon' is not a number"),
        (["--priority", "urgent"], "/priority: must be 'low', 'normal' or 'high'"),
        (["--limit", "max_duration=3"], "/limits/max_duration: unknown field; did you mean `max_duration_s`?"),
    ],
)
def test_a_change_that_cannot_be_is_one_line_with_the_field(job_id: str, arguments: list[str], complaint: str) -> None:
    done = shunter("update", job_id, *arguments)

    assert done.exit_code == 2
    assert complaint in " ".join(done.stderr.replace("│", " ").split())


def test_records_of_ended_jobs_are_deleted(ended: str) -> None:
    done = shunter("delete", ended)

    assert (done.exit_code, done.stdout) == (0, f"{ended}  deleted\n")
    assert shunter("job", ended).exit_code == 2


def test_the_record_of_a_live_job_stays(job_id: str) -> None:
    done = shunter("delete", job_id)

    assert done.exit_code == 2
    assert "shunter cancel" in done.stderr or "ended" in done.stderr
    assert shunter("job", job_id).exit_code == 0


def test_counts_add_up(job_id: str) -> None:
    counted = json.loads(shunter("jobs", "--counts", "--json").stdout)
    table = shunter("jobs", "--counts").stdout

    assert counted["states"]["queued"] >= 1
    assert counted["total"] == sum(counted["states"].values())
    assert table.splitlines()[-1].split() == ["all", str(counted["total"])]
