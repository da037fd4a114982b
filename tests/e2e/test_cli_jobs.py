"""Whole jobs through the command line, as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.documents import REPOSITORY
from support.up_process import Up

pytestmark = pytest.mark.slow


def shunter(up: Up, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shunter", *map(str, arguments)],
        env={**os.environ, "SHUNTER_DATA_DIR": str(up.data_dir)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def program(folder: Path, text: str) -> Path:
    """A folder with one program and the document that runs it, once, without torch."""
    folder.mkdir(exist_ok=True)
    (folder / "main.py").write_text(text)
    document = {
        "version": "1",
        "name": "program",
        "source": {"kind": "folder", "path": "."},
        "workload": {
            "kind": "script",
            "command": [sys.executable, "main.py", "${output_dir}", "${job_id}"],
            "launcher": "plain",
        },
        "resources": {"cpu_processes": 1},
    }
    (folder / "job.json").write_text(json.dumps(document))
    return folder / "job.json"


def test_a_program_of_the_users_runs_and_leaves_what_it_wrote(up: Up, tmp_path: Path) -> None:
    document = program(
        tmp_path / "code",
        "import pathlib, sys\n"
        "print('hello from', sys.argv[2])\n"
        "pathlib.Path(sys.argv[1], 'answer.txt').write_text('42')\n",
    )

    ended = shunter(up, "submit", document, "--watch", "--json")
    job = json.loads(ended.stdout)
    logs = shunter(up, "logs", job["id"], "--rank", "0")
    fetched = shunter(up, "artifacts", job["id"], "--download", tmp_path / "out")

    assert (ended.returncode, job["state"], job["reason"]) == (0, "succeeded", "done"), ended.stderr
    assert logs.stdout == f"hello from {job['id']}\n"
    assert fetched.returncode == 0
    assert (tmp_path / "out" / "answer.txt").read_text() == "42"


def test_a_program_that_fails_ends_with_1_and_shows_its_last_lines(up: Up, tmp_path: Path) -> None:
    document = program(tmp_path / "code", "raise RuntimeError('the data is not there')\n")

    ended = shunter(up, "submit", document, "--watch")

    job_id = ended.stdout.split()[0]
    assert ended.returncode == 1
    assert "RuntimeError: the data is not there" in ended.stderr
    assert "user_error" in ended.stdout
    assert f"shunter logs {job_id}" in ended.stderr


def test_a_cancelled_job_ends_with_3_for_who_watches_and_leaves_no_node(up: Up, tmp_path: Path) -> None:
    document = program(tmp_path / "code", "import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    job_id = shunter(up, "submit", document).stdout.strip()

    cancelled = shunter(up, "cancel", job_id, "--wait")
    watched = shunter(up, "watch", job_id)
    nodes = json.loads(shunter(up, "job", job_id, "--json").stdout)["nodes"]

    assert (cancelled.returncode, cancelled.stdout) == (0, f"{job_id}  cancelled\n")
    assert watched.returncode == 3
    assert {node["state"] for node in nodes} <= {"gone"}


def test_logs_are_followed_while_the_program_prints(up: Up, tmp_path: Path) -> None:
    document = program(
        tmp_path / "code", "import time\nfor n in range(20):\n    print('line', n, flush=True)\n    time.sleep(0.1)\n"
    )
    job_id = shunter(up, "submit", document).stdout.strip()

    followed = shunter(up, "logs", job_id, "-f", "--rank", "0")

    assert followed.stdout == "".join(f"line {n}\n" for n in range(20))
    assert shunter(up, "watch", job_id).returncode == 0


@pytest.mark.trainer
def test_the_example_script_trains_on_two_ranks(up: Up, tmp_path: Path) -> None:
    example = REPOSITORY / "examples" / "script-ddp" / "job.json"

    ended = shunter(up, "submit", example, "--watch", "--json")
    job = json.loads(ended.stdout)
    fetched = shunter(up, "artifacts", job["id"], "--download", tmp_path / "out")

    assert ended.returncode == 0, ended.stderr
    assert job["progress"]["step"] == 200
    assert job["progress"]["loss"] < 0.5
    assert fetched.returncode == 0
    assert (tmp_path / "out" / "model.pt").is_file()
