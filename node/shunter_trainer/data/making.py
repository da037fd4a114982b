"""What the builders of data are given, and what they give back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shunter_schemas.training import TrainingWorkload

from shunter_trainer.data.once import Beat, digest_of_files, prepared
from shunter_trainer.data.samples import Samples, Unindexed
from shunter_trainer.places import Places


@dataclass(frozen=True, slots=True)
class Made:
    """A data set as the document describes it."""

    samples: Samples | Unindexed
    classes: tuple[str, ...] | None = None
    """Names of the classes in the order of their numbers, where samples have classes."""
    notes: tuple[str, ...] = ()
    """What people should know, such as how many texts were cut."""


@dataclass(frozen=True, slots=True)
class Making:
    """Where data come from and whom they are for."""

    workload: TrainingWorkload
    places: Places
    pointer: str
    """The place of the data in the document."""
    beat: Beat
    evaluates: bool = False
    """Whether these data are for the evaluation only, so that nothing is changed at random."""
    classes: tuple[str, ...] | None = None
    """The classes of the training data; those of validation data must be among them."""

    def files(self, path: str) -> list[Path]:
        """The files that `path` of the data names. Raises: UserFault when there are none."""
        return self.places.files(path, f"{self.pointer}/path")

    def digest(self, files: Sequence[Path]) -> str:
        """SHA-256 over names and contents."""
        return digest_of_files(self.places.scratch, files, self.beat)

    def once(self, key: dict[str, object], build: Callable[[Path], None]) -> Path:
        """The folder that one rank of the node fills for all."""
        return prepared(self.places.scratch, key, build, self.beat)
