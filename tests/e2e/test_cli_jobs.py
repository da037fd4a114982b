"""Whole jobs through the command line, as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.documents import REPOSITORY
from support.up_process import Up
from support.waiting import wait_until

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


def test_a_command_line_is_enough_to_run_a_program(up: Up, tmp_path: Path) -> None:
    code = program(
        tmp_path / "code",
        "import sys\nfor step in range(1, 21):\n    print(f'step {step}/20: loss {float(sys.argv[1]) / step:.4f}')\n",
    ).parent

    ended = shunter(
        up,
        "run",
        "--cpu-processes",
        "1",
        "--source",
        code,
        "--name",
        "by-hand",
        "--watch",
        "--json",
        code / "main.py",
        "2",
    )
    job = json.loads(ended.stdout)
    drawn = shunter(up, "metrics", job["id"])

    assert (ended.returncode, job["name"], job["state"]) == (0, "by-hand", "succeeded"), ended.stderr
    assert drawn.stdout.startswith("loss: 0.1 at 20, least 0.1 at 20, most 2 at 1\n")


def test_why_shows_the_traceback_and_the_way_out_and_a_mended_source_succeeds(up: Up, tmp_path: Path) -> None:
    document = program(tmp_path / "code", "raise RuntimeError('the data is not there')\n")
    failed = shunter(up, "submit", document, "--watch", "--json")
    job_id = json.loads(failed.stdout)["id"]

    explained = shunter(up, "why", job_id)
    program(tmp_path / "code", "print('mended')\n")
    again = shunter(up, "submit", "--like", job_id, "--source", document.parent, "--watch", "--json")

    assert failed.returncode == 1
    assert "RuntimeError: the data is not there" in explained.stdout
    assert f"shunter submit --like {job_id} --source DIR" in explained.stdout
    assert again.returncode == 0, again.stderr


def test_a_job_is_paused_resumed_and_retried(up: Up, tmp_path: Path) -> None:
    document = program(
        tmp_path / "code",
        "import pathlib, sys, time\n"
        "print('up', flush=True)\n"
        "time.sleep(0 if pathlib.Path(sys.argv[3]).exists() else 600)\n",
    )
    flag = tmp_path / "go"
    text = json.loads(document.read_text())
    text["workload"]["command"].append(str(flag))
    text["workload"]["checkpoint"] = {"complete_file": "complete"}
    document.write_text(json.dumps(text))
    job_id = shunter(up, "submit", document).stdout.strip()
    wait_until(lambda: state(up, job_id) == "running", timeout_s=60, description="it runs")

    paused = shunter(up, "pause", job_id)
    wait_until(lambda: state(up, job_id) == "queued", timeout_s=60, description="it rests")
    resting = shunter(up, "why", job_id)
    flag.touch()
    resumed = shunter(up, "resume", job_id)
    ended = shunter(up, "watch", job_id)
    again = shunter(up, "retry", job_id, "--from", "start", "--watch")

    assert (paused.returncode, resumed.returncode, ended.returncode) == (0, 0, 0)
    assert "It is paused" in resting.stdout
    assert again.returncode == 0, again.stderr


def state(up: Up, job_id: str) -> str:
    return str(json.loads(shunter(up, "job", job_id, "--json").stdout)["state"])


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
