"""Model states as the planner predicts them and as real ranks hold them, strategy by strategy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Case:
    """One training that is measured."""

    name: str
    world: int = 2
    precision: str = "bf16"

    def __str__(self) -> str:
        return f"{self.name} on {self.world} in {self.precision}"


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of tensors of rank 0 in its second step, gradients among them, and what was predicted."""

    case: Case
    held: int
    predicted: float


CASES = (
    *(Case(name) for name in ("ddp", "fsdp", "fsdp, cpu", "zero-0", "zero-1", "zero-2", "zero-3")),
    *(Case(name, world=4) for name in ("hsdp", "fsdp", "zero-3")),
    *(Case(name, precision="fp32") for name in ("ddp", "fsdp", "zero-0", "zero-2", "zero-3")),
)
"""`hsdp` on four ranks: two groups of two, so that it is neither `fsdp` nor `ddp`."""


class _StateRanks(Ranks):
    program = "support.state_program"
    ends_within_s = 300.0


def held_states(folder: Path, case: Case) -> Held:
    """Train with real ranks in `folder`."""
    members = {"model": MODEL, "duration": {"steps": 2}, "precision": case.precision, "gradient_clip_norm": None}
    data = {"kind": "synthetic", "sequence_length": 16}
    job = {**document(**members, data=data), "strategy": strategy(case.name, case.world)}
    job["resources"] = {"cpu_processes": case.world}
    return Held(case, _measured(folder, job, case.world), _predicted(job, case.world))


def _predicted(job: dict[str, Any], world: int) -> float:
    spec = load_job(job)
    assert isinstance(spec.workload, TrainingWorkload)
    known, recipe = model_of(spec.workload), recipe_of(spec.workload)
    assert isinstance(known, Known)
    ((spread, _),) = spreads_of(spec, world, world)
    states = model_states(known.shape, recipe, spread)
    return states.total + states.host + standing_buckets(known.shape, recipe, spread)


def _measured(folder: Path, job: dict[str, Any], world: int) -> int:
    ranks = _StateRanks(folder, job, world, PYTHONPATH=str(Path(__file__).parents[1]))
    try:
        assert ranks.end() == [0] * world, ranks.stderr()
    finally:
        ranks.close()
    return int((folder / "states-0").read_text())
