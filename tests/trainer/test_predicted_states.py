"""What the planner says of model states, against what real ranks hold: to one part in a hundred for every strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shunter_planner.memory.states import model_states
from shunter_planner.memory.working import standing_buckets
from shunter_planner.models.document import Known, model_of
from shunter_planner.recipe import recipe_of
from shunter_planner.search.spreads import spreads_of
from shunter_schemas.job import load_job
from shunter_schemas.training import TrainingWorkload
from support.ranks import Ranks
from support.strategies import strategy
from support.trainings import document

pytestmark = [pytest.mark.slow, pytest.mark.trainer, pytest.mark.timeout(320)]

MODEL = {
    "kind": "transformer",
    "layers": 2,
    "hidden": 256,
    "heads": 4,
    "kv_heads": 2,
    "ffn": 768,
    "vocab": 4096,
    "context": 16,
}


class _StateRanks(Ranks):
    program = "support.state_program"
    ends_within_s = 300.0


def measured(folder: Path, job: dict[str, Any], world: int) -> int:
    """Bytes of tensors of rank 0 in the second step, gradients among them."""
    ranks = _StateRanks(folder, job, world, PYTHONPATH=str(Path(__file__).parents[1]))
    try:
        assert ranks.end() == [0] * world, ranks.stderr()
    finally:
        ranks.close()
    return int((folder / "states-0").read_text())


@pytest.mark.parametrize(
    "name",
    [
        *("ddp", "fsdp", "fsdp, cpu", "zero-1", "zero-2", "zero-3"),
        # On two ranks the same as fsdp and ddp.
        pytest.param("hsdp", marks=pytest.mark.nightly),
        pytest.param("zero-0", marks=pytest.mark.nightly),
    ],
)
def test_predicted_states_are_those_that_a_rank_holds(tmp_path: Path, name: str) -> None:
    world = 2
    members = {"model": MODEL, "duration": {"steps": 2}, "precision": "bf16", "gradient_clip_norm": None}
    data = {"kind": "synthetic", "sequence_length": 16}
    job = {**document(**members, data=data), "strategy": strategy(name, world), "resources": {"cpu_processes": world}}
    spec = load_job(job)
    assert isinstance(spec.workload, TrainingWorkload)
    known, recipe = model_of(spec.workload), recipe_of(spec.workload)
    assert isinstance(known, Known)
    ((spread, _),) = spreads_of(spec, world, world)

    held = measured(tmp_path / "gang", job, world)
    states = model_states(known.shape, recipe, spread)

    predicted = states.total + states.host + standing_buckets(known.shape, recipe, spread)
    assert predicted == pytest.approx(held, rel=0.01)
