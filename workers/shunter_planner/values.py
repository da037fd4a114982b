"""What the planner takes and answers: frozen, comparable, and plain JSON through `as_json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import Any

from shunter_providers.contract import Availability, Offer, Price, Scope
from shunter_schemas.states import Reason

from shunter_planner.corrections import Correction, Kind
from shunter_planner.models.document import Known, Unknown
from shunter_planner.predictions import Prediction, prediction_from_json


@dataclass(frozen=True, slots=True)
class Candidate:
    """An offer of a configured provider instance."""

    instance: str
    offer: Offer
    shared_host: bool = False
    """Several jobs share its slots: a job takes as many as it has ranks, not the whole node."""
    runs_images: bool = True
    """Its nodes run the container image that a job names."""


@dataclass(frozen=True, slots=True)
class Block:
    """What an earlier attempt of this job, or another job, found unusable, and how far that reaches."""

    instance: str
    scope: Scope
    reason: Reason
    detail: str
    instance_type: str = ""
    region: str = ""
    slug: str = "blocked"
    """What a rejection for it is called."""

    def covers(self, candidate: Candidate) -> bool:
        """Whether this candidate is within reach of the block."""
        if candidate.instance != self.instance:
            return False
        if self.scope is Scope.OFFER:
            return (candidate.offer.instance_type, candidate.offer.region) == (self.instance_type, self.region)
        if self.scope in (Scope.ZONE, Scope.REGION):
            return candidate.offer.region == self.region
        return True


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A configured instance whose offers could not be had now."""

    instance: str
    detail: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of this job and of the instances beside the document and the offers."""

    instances: Sequence[str] = ()
    """Every configured instance."""
    unavailable: Sequence[Unavailable] = ()
    blocks: Sequence[Block] = ()
    model: Known | Unknown | None = None
    """What is trained; None: as far as the document alone says it."""
    spent_usd: float = 0.0
    """What the job has cost so far, where it has a budget."""
    steps_done: int = 0
    """Of the checkpoint that it goes on from."""
    ran_s: float = 0.0
    """Since it first ran, without pauses."""
    most_micro_size: int | None = None
    """The largest micro-batch that may still be tried: larger ones ran out of memory. None: any."""


@dataclass(frozen=True, slots=True)
class History:
    """What past jobs measured: none by default, and then predictions are those of the formulas alone."""

    corrections: Mapping[Kind, Correction] = field(default_factory=dict)
    """By kind of run (see `shunter_planner.corrections`)."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why one offer (or, with an empty `instance_type`, one whole instance) was not taken."""

    instance: str
    instance_type: str
    region: str
    reason: str
    """A slug such as `gpu_model`, `too_small`, `slots_taken`, `blocked`."""
    detail: str
    final: bool
    """True: waiting does not help."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to run the job that differs in kind from the chosen one."""

    instance: str
    instance_type: str
    region: str
    gpu_model: str | None
    capacity: str
    num_nodes: int
    ranks_per_node: int
    usd_per_hour: float
    strategy: Mapping[str, Any]
    micro_size: int | None = None
    accumulation: int | None = None
    activation_checkpointing: str | None = None
    prediction: Prediction | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to run the job."""

    instance: str
    offer: Offer
    num_nodes: int
    ranks_per_node: int
    world_size: int
    slot_kind: str
    """`gpu` or `cpu`."""
    shared_host: bool
    cpu_threads_per_rank: int
    usd_per_hour: float
    """Over all nodes."""
    strategy: Mapping[str, Any]
    micro_size: int | None = None
    """Samples of one forward pass on one rank; None for scripts."""
    accumulation: int | None = None
    rejected: Sequence[Rejection] = field(default=())
    """The first of them; `rejected_by` counts all."""
    rejected_by: Mapping[str, int] = field(default_factory=dict)
    activation_checkpointing: str | None = None
    why: str = "asked for"
    """The reason for the strategy."""
    notes: Sequence[str] = ()
    """What a person should know: what is not known, what is tight, what may reach a limit."""
    prediction: Prediction | None = None
    """None: the model's size is not known."""
    alternatives: Sequence[Alternative] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the job cannot run, now or ever."""

    reason: Reason
    """How the job ends if it has to end for this."""
    detail: str
    final: bool
    """False: wait, something is merely taken, blocked or out of reach."""
    rejected: Sequence[Rejection] = ()
    rejected_by: Mapping[str, int] = field(default_factory=dict)


def as_json(value: Plan | Refusal) -> dict[str, Any]:
    """The value as JSON types; enumerations are strings already."""
    return asdict(value)


def plan_from_json(stored: Mapping[str, Any]) -> Plan:
    """What `as_json` made of a plan; fields that a newer version added are skipped."""
    known = {name: value for name, value in stored.items() if name in _names(Plan)}
    rejected = tuple(Rejection(**entry) for entry in known.pop("rejected", ()))
    alternatives = tuple(_alternative(entry) for entry in known.pop("alternatives", ()))
    prediction = known.pop("prediction", None)
    return Plan(
        **{
            **known,
            "offer": offer_from_json(known["offer"]),
            "rejected": rejected,
            "notes": tuple(known.get("notes", ())),
            "alternatives": alternatives,
            "prediction": None if prediction is None else prediction_from_json(prediction),
        }
    )


def offer_from_json(stored: Mapping[str, Any]) -> Offer:
    """An offer that was stored with a plan or a ledger row."""
    known = {name: value for name, value in stored.items() if name in _names(Offer)}
    known["price"] = Price(**{name: value for name, value in known["price"].items() if name in _names(Price)})
    known["availability"] = Availability(known.get("availability", Availability.UNKNOWN))
    known["slot_indices"] = tuple(known.get("slot_indices", ()))
    known["free_on_hosts"] = tuple(known.get("free_on_hosts", ()))
    known["host_names"] = tuple(known.get("host_names", ()))
    return Offer(**known)


def _alternative(stored: Mapping[str, Any]) -> Alternative:
    known = {name: value for name, value in stored.items() if name in _names(Alternative)}
    prediction = known.pop("prediction", None)
    return Alternative(**known, prediction=None if prediction is None else prediction_from_json(prediction))


@cache
def _names(kind: type[Plan] | type[Alternative] | type[Offer] | type[Price]) -> frozenset[str]:
    return frozenset(entry.name for entry in fields(kind))
