"""A micro-batch that the plan chose and that runs out of memory: the job goes on by itself with a smaller one."""

from __future__ import annotations

from typing import Any

import pytest
from support.control_plane import ControlPlane

pytestmark = [pytest.mark.nightly, pytest.mark.trainer, pytest.mark.timeout(300)]

MODEL = """
import torch
class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
    def forward(self, x):
        if x.shape[0] > 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")
        return {"loss": self.linear(x).square().mean()}
"""


def training(**batch: Any) -> dict[str, Any]:
    """Memory for four samples at once, of sixteen."""
    return {
        "version": "1",
        "name": "large",
        "workload": {
            "kind": "training",
            "model": {"kind": "python", "target": "small:Small"},
            "data": {"kind": "synthetic", "samples": 64, "fields": {"x": {"shape": [8], "dtype": "float32"}}},
            "batch": {"global_size": 16, **batch},
            "duration": {"steps": 30},
            "precision": "fp32",
            "optimizer": {"kind": "sgd", "lr": 0.1},
        },
        "strategy": {"kind": "ddp"},
        "environment": {"setup": [f"cat > small.py <<'END'\n{MODEL}\nEND"]},
        "resources": {"cpu_processes": 1},
    }


def test_it_is_started_again_with_half_of_it_until_it_fits(plane: ControlPlane) -> None:
    job_id = plane.submit(training())

    job = plane.wait_for(job_id, "succeeded", timeout_s=200)

    told = [event["data"] for event in plane.events(job_id) if event["type"] == "job.micro_batch"]
    assert [(one["before"], one["micro_size"], one["accumulation"]) for one in told] == [(16, 8, 2), (8, 4, 4)]
    assert (job["plan"]["micro_size"], job["plan"]["accumulation"], job["generation"]) == (4, 4, 3)
    assert job["spec"]["workload"]["batch"]["micro_size"] == "auto"
    assert job["progress"]["step"] == 30


def test_one_that_the_user_chose_ends_the_job(plane: ControlPlane) -> None:
    job_id = plane.submit(training(micro_size=8))

    job = plane.wait_for(job_id, "failed", timeout_s=200)

    assert job["reason"] == "out_of_memory"
    assert "Lower workload.batch.micro_size" in job["message"]
