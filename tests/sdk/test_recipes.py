"""Every line of the page of recipes works: curl, command line and Python."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from shunter import Client
from shunter_schemas.states import Reason
from shunter_store.job.steps import Change
from support.api_process import ApiProcess
from support.command_line import shunter, written
from support.documents import REPOSITORY, changed, tiny_lm

PAGE = (REPOSITORY / "docs" / "recipes.md").read_text(encoding="utf-8")


class Recipe(NamedTuple):
    """A section of the page."""

    title: str
    lines: Sequence[str]
    """Of its shell blocks."""
    python: str


def recipes() -> list[Recipe]:
    found = []
    for section in re.split(r"\n###? ", PAGE)[2:]:
        lines = "".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL)).splitlines()
        python = "".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))
        if lines or python:
            found.append(Recipe(section.partition("\n")[0], lines, python))
    return found


def ended(api: ApiProcess, job_id: str) -> None:
    """A job that has succeeded and left one of each."""
    part = api.worker_part(job_id)
    part.run()
    part.report(5, 5, loss=0.5)
    part.print("step 5: loss 0.5, 2 GiB of memory\n")
    part.leave("model.safetensors", b"weights")
    part.end(Reason.DONE)


def running(api: ApiProcess, job_id: str) -> None:
    api.worker_part(job_id).run()


def paused(api: ApiProcess, job_id: str) -> None:
    with Client(api.url, api.key) as client:
        client.pause(job_id)
    api.worker_part(job_id).apply(Change())


STANDS: dict[str, Callable[[ApiProcess, str], None]] = {
    "Cancel one": running,
    "Under another strategy, on other resources or elsewhere": running,
    "Cancel many": running,
    "Pause one": running,
    "Let a paused one go on": paused,
    "Save a checkpoint now": running,
    "Change labels, priority or limits": running,
    "Delete the record of an ended one": ended,
}
"""Recipes that change a job, and how it stands before; the others look at one that has ended."""
FOLLOWS = ("And follow it to its end",)
"""What ends only with a worker: the tests of whole jobs run it."""


def new_job(api: ApiProcess, standing: Callable[[ApiProcess, str], None] = ended) -> str:
    with Client(api.url, api.key) as client:
        job_id = client.submit(changed(tiny_lm(), {"labels": {"team": "nlp"}})).id
    standing(api, job_id)
    return job_id


@pytest.fixture(scope="session")
def ended_job(api: ApiProcess) -> str:
    """One that every recipe may look at."""
    return new_job(api)


@pytest.fixture
def place(tmp_path: Path, cli_environment: ApiProcess, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a reader of the page."""
    written(tmp_path)
    (tmp_path / "train.py").write_text("print('hello')\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.txt").write_text("a")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("recipe", [one for one in recipes() if one.title not in FOLLOWS], ids=lambda one: one.title)
def test_every_line_of_a_recipe_works(recipe: Recipe, cli_environment: ApiProcess, ended_job: str, place: Path) -> None:
    standing = STANDS.get(recipe.title)
    for line in recipe.lines:
        job_id = new_job(cli_environment, standing) if standing else ended_job

        if line.startswith("shunter "):
            done = shunter(*shlex.split(line.replace("$JOB", job_id))[1:])
            assert done.exit_code == (1 if line.startswith("shunter diff") else 0), (line, done.output)
        else:
            answer = in_bash(cli_environment, job_id, line)
            assert answer.returncode == 0, (line, answer.stderr)
            assert "/v1/problems/" not in answer.stdout, (line, answer.stdout)
        for file in place.glob("new.*"):
            file.unlink()

    with Client(cli_environment.url, cli_environment.key) as client:
        job_id = new_job(cli_environment, standing) if standing else ended_job
        exec(recipe.python, {"client": client, "job_id": job_id})


def test_the_page_shows_recipes_of_every_kind() -> None:
    lines = [line for one in recipes() for line in one.lines]

    assert sum("curl " in line for line in lines) > 20
    assert sum(line.startswith("shunter ") for line in lines) > 20
    assert sum(bool(one.python) for one in recipes()) > 20


def in_bash(api: ApiProcess, job_id: str, line: str) -> subprocess.CompletedProcess[str]:
    bash = shutil.which("bash")
    assert bash
    environment = {**os.environ, "URL": api.url, "AUTH": f"Authorization: Bearer {api.key}", "JOB": job_id}
    return subprocess.run(
        [bash, "-euo", "pipefail", "-c", line], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_json_answers_of_curl_are_json(cli_environment: ApiProcess, ended_job: str) -> None:
    (line,) = (line for one in recipes() if one.title == "At one job" for line in one.lines if "curl" in line)

    assert json.loads(in_bash(cli_environment, ended_job, line).stdout)["id"] == ended_job
