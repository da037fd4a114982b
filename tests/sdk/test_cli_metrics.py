"""`shunter metrics` against a real API process."""

import json
from pathlib import Path

import pytest
from support.api_process import ApiProcess
from support.command_line import shunter, written


@pytest.fixture
def job_id(cli_environment: ApiProcess, tmp_path: Path) -> str:
    """A job with a loss, a learning rate and one evaluation."""
    job_id = shunter("submit", written(tmp_path)).stdout.strip()
    part = cli_environment.worker_part(job_id)
    part.run()
    for step in range(1, 51):
        part.report(step, 100, loss=4 / step, lr=0.1)
    part.report(50, 100, val_loss=0.25)
    return job_id


def test_losses_are_drawn_and_the_others_named(job_id: str) -> None:
    done = shunter("metrics", job_id)

    titles = [line for line in done.stdout.splitlines() if ": " in line]
    assert (done.exit_code, done.stdout.count("|")) == (0, 24)
    assert titles[0].startswith("loss: ")
    assert "most 4 at 1" in titles[0]
    assert titles[1].startswith("val_loss: 0.25 at 50")
    assert "also: lr (--name NAME, --all)" in done.stdout


def test_a_metric_is_chosen_by_name(job_id: str) -> None:
    assert shunter("metrics", job_id, "--name", "lr").stdout.startswith("lr: 0.1 at 50")
    assert "\nlr: " in shunter("metrics", job_id, "--all").stdout
    assert shunter("metrics", job_id, "--name", "nothing").stderr == "no metric named nothing\n"


def test_csv_has_every_point_and_blanks_where_there_is_none(job_id: str) -> None:
    lines = shunter("metrics", job_id, "--csv", "--from-step", "49").stdout.splitlines()

    assert lines[0].split(",") == ["step", "loss", "lr", "val_loss"]
    assert lines[1].split(",")[3] == ""
    assert lines[2].split(",")[0] == "50"
    assert lines[2].split(",")[3] == "0.25"


def test_json_is_the_answer_of_the_service(job_id: str) -> None:
    answer = json.loads(shunter("metrics", job_id, "--name", "loss", "--json").stdout)

    assert [series["name"] for series in answer["series"]] == ["loss"]
    assert len(answer["series"][0]["steps"]) == 50


def test_a_job_without_metrics_says_so(cli_environment: ApiProcess, tmp_path: Path) -> None:
    job_id = shunter("submit", written(tmp_path)).stdout.strip()

    done = shunter("metrics", job_id)

    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no metrics yet\n")
