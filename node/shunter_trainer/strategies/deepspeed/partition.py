"""ZeRO 3: memory, first values and partition for one submodule after the other: no rank ever holds the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import torch
from torch import nn

from shunter_trainer.models.materialise import materialise
from shunter_trainer.strategies.base import Parts


def partition(deepspeed: ModuleType, parts: Parts, config: Mapping[str, Any], dtype: torch.dtype) -> None:
    """Replace every parameter of the module by its partition, in `dtype`."""
    walk = _Walk(deepspeed, config, dtype)
    materialise(walk.through(parts.module), parts.fill, parts.gang.device)


class _Walk:
    def __init__(self, deepspeed: ModuleType, config: Mapping[str, Any], dtype: torch.dtype) -> None:
        self._deepspeed = deepspeed
        self._config = dict(config)
        self._dtype = dtype
        self._first: Any = None

    def through(self, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        """The submodules; each is partitioned as soon as the next one is asked for, when it has its values."""
        for name, part in module.named_modules():
            yield name, part
            self._convert([own for own in part.parameters(recurse=False) if not hasattr(own, "ds_id")])

    def _convert(self, parameters: list[nn.Parameter]) -> None:
        for parameter in parameters:
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(self._dtype)
        if self._first is not None:
            self._first.convert_to_zero_parameters(param_list=parameters)
        elif parameters:
            self._deepspeed.zero.Init(module=nn.ParameterList(parameters), config_dict_or_path=self._config)
            self._first = parameters[0]
