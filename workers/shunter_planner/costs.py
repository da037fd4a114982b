"""What a run costs, by every part of a price, and how long it takes with what is around the training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shunter_providers.contract import Offer

START_UP_S: Final = {"local": 8.0, "vm": 240.0, "container": 120.0, "metal": 900.0, "batch": 30.0}
"""From the order to the first step: boot, packages, the program's own start. Priors; a job's own is in its history."""
PREEMPTIONS_PER_NODE_HOUR: Final = 1 / 24
"""Prior for spot capacity: a node lives for a day. AWS's Spot Instance Advisor shows GPU nodes in its highest class."""
USUAL_CHECKPOINT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds of a run."""

    start_up_s: float
    train_s: float
    repeated_s: float
    """What preemptions are expected to cost: starting again, and half of what lies between two checkpoints."""

    @property
    def total_s(self) -> float:
        """From the order to the end."""
        return self.start_up_s + self.train_s + self.repeated_s


@dataclass(frozen=True, slots=True)
class Costs:
    """USD by cause."""

    training: float
    start_up: float
    repeated: float
    disk: float
    setup: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.training + self.start_up + self.repeated + self.disk + self.setup


def run_of(offer: Offer, nodes: int, train_s: float, checkpoint_s: float, *, shared_host: bool) -> Run:
    """How long a training of `train_s` takes on nodes of this kind."""
    start_up_s = START_UP_S["local"] if shared_host else START_UP_S.get(offer.kind, START_UP_S["vm"])
    preemptions = 0.0
    if offer.capacity == "spot":
        preemptions = nodes * PREEMPTIONS_PER_NODE_HOUR * train_s / 3600
    return Run(start_up_s, train_s, preemptions * (start_up_s + checkpoint_s / 2))


def costs_of(offer: Offer, nodes: int, run: Run) -> Costs:
    """What that run costs. A node bills from its creation to its end."""
    rate, hours = nodes * offer.price.gpu_usd_per_hour, 1 / 3600
    return Costs(
        training=rate * run.train_s * hours,
        start_up=rate * run.start_up_s * hours,
        repeated=rate * run.repeated_s * hours,
        disk=nodes * offer.price.disk_usd_per_hour * run.total_s * hours,
        setup=nodes * offer.price.setup_usd,
    )
