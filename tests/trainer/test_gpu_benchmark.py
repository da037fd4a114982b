"""The benchmark for GPUs runs, at toy size and on the CPU, so that it does not rot while nobody has one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu" / "one_gpu.py"


@pytest.mark.slow
@pytest.mark.trainer
@pytest.mark.timeout(300)
def test_the_benchmark_for_one_gpu_runs_at_toy_size(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), "--smoke", "--out", str(tmp_path / "figures.json")],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    found = json.loads((tmp_path / "figures.json").read_text())
    assert [case["case"] for case in found["cases"]] == ["toy bf16", "toy bf16 fsdp full"]
    assert all(case["tokens_per_s"] > 0 and case["mfu"] > 0 and case["forward_time_s"] > 0 for case in found["cases"])
    assert found["ratios"][0] > 0
    assert "trainer / by hand: median" in ended.stdout
