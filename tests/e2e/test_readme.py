"""The commands that the README shows work as they stand."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.documents import REPOSITORY, changed, tiny_lm
from support.up_process import Up

pytestmark = [pytest.mark.slow, pytest.mark.trainer]


def test_the_curl_commands_submit_follow_and_read_a_training(up: Up, tmp_path: Path) -> None:
    (block,) = re.findall(r"<!-- run: curl -->\n```sh\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    (tmp_path / ".shunter").symlink_to(up.data_dir)
    (tmp_path / "examples").mkdir()
    shorter = changed(tiny_lm(), {"workload.duration.steps": 40, "workload.evaluation.every_steps": 20})
    (tmp_path / "examples" / "tiny-lm-ddp.json").write_text(json.dumps(shorter))
    bash = shutil.which("bash")
    assert bash

    done = subprocess.run(
        [bash, "-euo", "pipefail", "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=110
    )

    assert done.returncode == 0, done.stderr
    assert '"state":"queued"' in done.stdout or '"state":"provisioning"' in done.stdout
    assert re.search(r"^event: \S+$", done.stdout, re.MULTILINE)
    assert '"name":"val_loss"' in done.stdout
    assert "model.safetensors" in done.stdout
