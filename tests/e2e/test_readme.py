"""The commands that the README and the quick start show work as they stand."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.documents import REPOSITORY, changed, tiny_lm
from support.up_process import Up

pytestmark = [pytest.mark.slow, pytest.mark.trainer, pytest.mark.timeout(300)]


@pytest.fixture
def place(up: Up, tmp_path: Path) -> Path:
    """Where a reader stands: the repository's root, as far as the commands know it."""
    (tmp_path / ".shunter").symlink_to(up.data_dir)
    (tmp_path / "examples").mkdir()
    shorter = changed(tiny_lm(), {"workload.duration.steps": 40, "workload.evaluation.every_steps": 20})
    (tmp_path / "examples" / "tiny-lm-ddp.json").write_text(json.dumps(shorter))
    return tmp_path


def test_the_curl_commands_submit_follow_and_read_a_training(place: Path) -> None:
    (block,) = blocks("README.md", "curl")

    done = in_bash(block, place)

    assert done.returncode == 0, done.stderr
    assert '"state":"queued"' in done.stdout or '"state":"provisioning"' in done.stdout
    assert re.search(r"^event: \S+$", done.stdout, re.MULTILINE)
    assert '"name":"val_loss"' in done.stdout
    assert "model.safetensors" in done.stdout


def test_the_quick_start_trains_shows_and_fetches(place: Path) -> None:
    train, look = blocks("docs/quick-start.md", "quick start")

    trained = in_bash(train, place)
    looked = in_bash(look, place)

    assert trained.returncode == 0, trained.stderr
    assert "succeeded after" in trained.stdout
    assert looked.returncode == 0, looked.stderr
    assert "loss: " in looked.stdout
    assert (place / "out" / "model.safetensors").is_file()


def test_the_quick_start_shows_the_refusal_as_it_is(place: Path) -> None:
    (block,) = blocks("docs/quick-start.md", "quick start, exits 2")
    (shown,) = re.findall(r"```text\n(error: .*?)\n```", page("docs/quick-start.md"), re.DOTALL)

    refused = in_bash(block, place)

    assert refused.returncode == 2
    assert shown in refused.stderr


def page(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def blocks(name: str, mark: str) -> list[str]:
    """The shell blocks of a page that are marked to be run."""
    return re.findall(rf"<!-- run: {mark} -->\n```sh\n(.*?)```", page(name), re.DOTALL)


def in_bash(block: str, folder: Path) -> subprocess.CompletedProcess[str]:
    bash = shutil.which("bash")
    assert bash
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER_")}
    environment = {**kept, "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}"}
    return subprocess.run(
        [bash, "-euo", "pipefail", "-c", block],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
