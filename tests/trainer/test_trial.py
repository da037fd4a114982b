"""The micro-batch that a plan chose is tried on the ranks, and made smaller until it fits on all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shunter_schemas.batching import BatchPlan, with_micro_size
from support.ranks import Ranks
from support.trainings import document

pytestmark = pytest.mark.trainer

MODEL = """
import os, torch
from torch import nn
class Small(nn.Module):
    '''Has memory for so many samples, by its rank; its running mean shows whether a trial left a trace.'''
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.most = int(os.environ["MOST"].split(",")[int(os.environ["RANK"])])
    def forward(self, x):
        if x.shape[0] > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")
        return {"loss": self.linear(self.norm(x)).square().mean()}
def make():
    return Small()
"""
FIELDS = {"x": {"shape": [8], "dtype": "float32"}}


class LimitedRanks(Ranks):
    program = "support.limited_program"
    ends_within_s = 300.0


def training(micro_size: int | str, planned: int | None = None, **members: Any) -> dict[str, Any]:
    """As a node gets it: a planned size is told by a list beside it."""
    parts: dict[str, Any] = {
        "model": {"kind": "python", "target": "small:make"},
        "data": {"kind": "synthetic", "samples": 512, "fields": FIELDS},
        "schedule": {"kind": "constant"},
        "gradient_clip_norm": None,
        "duration": {"steps": 4},
        "batch": {"global_size": 32, "micro_size": planned or micro_size},
        "checkpoint": {"every_steps": 4, "keep": 1},
    }
    named = {"planned": ["/workload/batch/micro_size"] if planned else []}
    return {**document(**{**parts, **members}), **named}


def run(folder: Path, job: dict[str, Any], world: int, *, most: str = "", limit_mib: int = 1 << 15) -> Ranks:
    folder.mkdir()
    (folder / "source").mkdir()
    (folder / "source" / "small.py").write_text(MODEL)
    path = str(Path(__file__).parents[1])
    # What malloc keeps of freed blocks counts towards the limit: so it keeps none.
    kept = "1048576"
    ranks = LimitedRanks(
        folder, job, world, PYTHONPATH=path, LIMIT_MIB=str(limit_mib), MOST=most, MALLOC_MMAP_THRESHOLD_=kept
    )
    try:
        assert ranks.end() == [0] * world, ranks.stderr()
    finally:
        ranks.close()
    return ranks


def told(ranks: Ranks, rank: int = 0) -> list[dict[str, Any]]:
    return [line for line in ranks.lines(rank) if line.get("event") == "micro_batch"]


@pytest.mark.parametrize(
    ("per_rank", "most", "smaller"), [(16, 8, 8), (16, 5, 4), (12, 6, 6), (12, 5, 4), (7, 3, 1), (1, 1, 1)]
)
def test_a_smaller_micro_batch_divides_a_ranks_share_exactly(per_rank: int, most: int, smaller: int) -> None:
    plan = with_micro_size(BatchPlan(per_rank, 1, 2), most)

    assert plan == BatchPlan(smaller, per_rank // smaller, 2)


@pytest.mark.slow
def test_ranks_agree_on_what_the_smallest_can_take_and_train_as_if_it_had_been_asked_for(tmp_path: Path) -> None:
    tried = run(tmp_path / "tried", training("auto", planned=16), 2, most="16,5")
    asked = run(tmp_path / "asked", training(4), 2, most="16,5")

    (found,) = told(tried)
    assert (found["micro_size"], found["accumulation"], found["planned"], found["tried"]) == (4, 4, 16, [16, 8, 4])
    assert "the planned 16 ran out of memory" in found["message"]
    assert told(tried, rank=1) == told(asked) == []
    assert tried.values("loss") == asked.values("loss")
    assert [line["micro_size"] for line in tried.lines() if "step" in line and "micro_size" in line] == [4.0]


@pytest.mark.nightly
@pytest.mark.timeout(320)
def test_memory_that_really_runs_out_is_backed_off_from(tmp_path: Path) -> None:
    """4,096 samples of 32 tokens take more than a GiB, 2,048 half of it."""
    members: dict[str, Any] = {
        "model": {**document()["workload"]["model"]},
        "data": {"kind": "synthetic", "samples": 8192, "sequence_length": 32},
        "batch": {"global_size": 4096, "micro_size": 4096},
        "duration": {"steps": 2},
    }
    ranks = run(tmp_path / "real", training("auto", planned=4096, **members), 1, limit_mib=950)

    (found,) = told(ranks)
    assert found["tried"][0] == 4096
    assert 1 < found["micro_size"] < 4096
    assert found["micro_size"] * found["accumulation"] == 4096
    assert list(ranks.values("loss")) == [1, 2]


@pytest.mark.nightly
def test_a_size_that_the_user_chose_is_not_changed(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    with pytest.raises(AssertionError):
        run(folder, training(16), 1, most="8")

    assert "micro_batch" not in (folder / "metrics-0.jsonl").read_text()
    assert '"reason": "out_of_memory"' in (folder / "metrics-0.jsonl").read_text()
