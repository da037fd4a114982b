"""What a played agent does with one generation. Times are seconds of the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from shunter_providers.simulated import market
from shunter_providers.simulated.settings import FleetSettings

RUN_S = "SIMULATED_RUN_S"
"""The document's `environment.variables` may set how long this training runs, instead of the settings."""
FAILS = "SIMULATED_FAILS"
"""Any value: the program fails at its end, by its own fault."""


@dataclass(frozen=True, slots=True)
class Part:
    """One node's part of one generation."""

    job_id: str
    generation: int
    node_rank: int
    ranks: tuple[int, ...]
    is_training: bool
    begins_at: float
    """When its ranks are up."""
    ends_at: float | None
    """When it is done by itself; None: never."""
    fails: bool
    first_step: int

    def steps_at(self, now: float, step_s: float) -> int:
        """The last step that is done; one less than the first before there is any."""
        return self.first_step - 1 + max(0, int((now - self.begins_at) / step_s))

    def as_json(self) -> dict[str, Any]:
        """What `read_part` reads."""
        return asdict(self)


def make_part(assignment: Mapping[str, Any], handle: str, manner: FleetSettings, now: float) -> Part:
    """The part that an assignment asks for."""
    ranks, document = assignment["ranks"], assignment["document"]
    variables = (document.get("environment") or {}).get("variables") or {}
    begins_at = now + manner.prepare_s
    first = ranks["node_rank"] * ranks["ranks_per_node"]
    run_s = _run_s(variables, f"{assignment['job_id']} {assignment['generation']}", manner)
    resume = assignment.get("resume") or {}
    return Part(
        job_id=assignment["job_id"],
        generation=int(assignment["generation"]),
        node_rank=int(ranks["node_rank"]),
        ranks=tuple(range(first, first + ranks["ranks_per_node"])),
        is_training=document["workload"]["kind"] == "training",
        begins_at=begins_at,
        ends_at=None if run_s is None else begins_at + run_s,
        fails=FAILS in variables or market.uniform(0, "fails", handle) < manner.failing,
        first_step=int(resume.get("step", -1)) + 1,
    )


def read_part(kept: Mapping[str, Any]) -> Part:
    """A part that was kept."""
    return Part(**{**kept, "ranks": tuple(kept["ranks"])})


def _run_s(variables: Mapping[str, str], what: str, manner: FleetSettings) -> float | None:
    """The same for every node of a gang, so that they end together."""
    try:
        return float(variables[RUN_S])
    except (KeyError, ValueError):
        pass
    if manner.run_s is None:
        return None
    return manner.run_s * (1.0 + manner.run_jitter * market.uniform(0, "run", what))
