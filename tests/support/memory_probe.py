"""What a rank holds in tensors while its model gets its first values, and while a checkpoint is read."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from shunter_trainer import run
from shunter_trainer.models.build import Built

_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Not tensors that consist of others, such as DTensors: those others are found by themselves."""


def live_bytes() -> int:
    """Bytes of all tensors of this process since the last `gc.freeze`, each memory once."""
    storages: dict[int, int] = {}
    for found in gc.get_objects():
        if type(found) in _PLAIN and not found.is_meta:
            storage = found.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


class MemoryProbe:
    """Measures one training of this rank; `peaks` are the largest numbers of bytes."""

    def __init__(self) -> None:
        self.peaks = {"fill": 0, "load": 0}

    def train(self, train: Callable[..., bool], *arguments: Any) -> None:
        """Run it under observation."""
        from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner

        resolve: Callable[..., torch.Tensor] = DefaultLoadPlanner.resolve_tensor

        def resolve_tensor(planner: Any, item: Any) -> torch.Tensor:
            self._look("load")
            return resolve(planner, item)

        with (
            patch.object(run, "build_model", self._observed(vars(run)["build_model"])),
            patch.object(DefaultLoadPlanner, "resolve_tensor", resolve_tensor),
        ):
            train(*arguments)

    def write(self, file: Path) -> None:
        """The peaks as JSON."""
        file.write_text(json.dumps(self.peaks))

    def _observed(self, build: Callable[..., Built]) -> Callable[..., Built]:
        def observed(*arguments: Any) -> Built:
            # What is there already is none of this training's; without it, looking takes milliseconds.
            gc.collect()
            gc.freeze()
            built = build(*arguments)

            def fill(module: torch.nn.Module, names: Mapping[str, str]) -> None:
                built.fill(module, names)
                self._look("fill")

            return replace(built, fill=fill)

        return observed

    def _look(self, phase: str) -> None:
        self.peaks[phase] = max(self.peaks[phase], live_bytes())
