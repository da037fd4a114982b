"""The example script is a plain torch program: it runs without Shunter, and its document is valid."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from shunter.checking import check
from shunter.document import load_document

FOLDER = Path(__file__).parents[2] / "examples" / "script-ddp"


def test_its_job_document_is_valid() -> None:
    check(load_document(FOLDER / "job.json"), FOLDER)


@pytest.mark.trainer
@pytest.mark.slow
def test_it_learns_under_torchrun_and_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    checkpoints, output = tmp_path / "checkpoints", tmp_path / "output"
    saving = ["--checkpoints", str(checkpoints), "--output", str(output)]

    first = torchrun("--steps", "200", *saving)
    resumed = torchrun("--steps", "220", "--resume", str(checkpoints / "checkpoint-000200"))

    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", first)]
    assert losses[-1] < 0.5 * losses[0]
    assert re.findall(r"step (\d+)/", resumed) == ["220"]
    assert (output / "model.pt").is_file()
    assert (checkpoints / "checkpoint-000100" / "complete").is_file()


def torchrun(*arguments: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    done = subprocess.run([*command, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
