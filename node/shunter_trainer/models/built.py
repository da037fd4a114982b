"""What a builder of models gives."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from shunter_trainer.models.materialise import Filler
from shunter_trainer.models.release import Release


@dataclass(frozen=True, slots=True)
class Built:
    """A model as it comes out of its builder: on the meta device, or on the CPU with its values."""

    module: nn.Module
    fill: Filler
    """Gives what lies on the meta device its first values; strategies call it (`models/materialise.py`)."""
    accepts: frozenset[str] | None
    """Names that `forward` takes out of a batch. None: all."""
    release: Release
    """How the trained model is exported."""
    own_labels: bool = False
    """Whether the model computes its loss itself when it is given `labels`."""
    classifies: bool = False
    """Whether its own loss is that of a classifier: one label a sample."""
    notes: tuple[str, ...] = ()
    """What a person should know about how it was built."""
