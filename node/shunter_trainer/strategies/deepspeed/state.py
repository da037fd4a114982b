"""Checkpoints of what ZeRO splits: entries under the same names as of every other strategy, as pieces of this rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from shunter_trainer.strategies.base import Stored
from shunter_trainer.strategies.deepspeed.shards import Shard, Shards
from shunter_trainer.strategies.names import (
    GROUPS,
    MODEL,
    model_entries,
    optimizer_entries,
    optimizer_name,
    split_optimizer_name,
)


def state_of(module: nn.Module, shards: Shards) -> dict[str, Any]:
    """Model and optimizer state by name."""
    entries = _model(module, shards)
    entries.update(optimizer_entries(nn.Module(), shards.optimizer))  # the settings of the groups alone
    for name, parameter in shards.trainable():
        shard, shape = shards.of(parameter), shards.shape(parameter)
        for key, value in shards.optimizer.state.get(shard.flat, {}).items():
            is_split = isinstance(value, Tensor) and value.shape == shard.flat.shape
            entries[optimizer_name(name, key)] = shard.piece(shape, value) if is_split else _scalar(value)
    return entries


def empty_state(module: nn.Module, shards: Shards, stored: Mapping[str, Stored]) -> dict[str, Any]:
    """Room for a checkpoint. Parameters and split state are read into the memory that ZeRO works with."""
    entries = _model(module, shards)
    parameters = dict(shards.trainable())
    for name, form in stored.items():
        if name == GROUPS:
            entries[name] = ""
        elif (parts := split_optimizer_name(name)) is not None and parts[0] in parameters:
            parameter = parameters[parts[0]]
            shard, shape = shards.of(parameter), shards.shape(parameter)
            if form is not None and form[0] == shape:
                entries[name] = shard.piece(shape, _flat_state(shards, shard, parts[1], form[1]))
            else:
                entries[name] = None if form is None else torch.empty(form[0], dtype=form[1])
    return entries


def load_state(module: nn.Module, shards: Shards, state: Mapping[str, Any]) -> None:
    """Take over what was read into `empty_state`."""
    parameters = dict(shards.trainable())
    for name, value in state.items():
        parts = split_optimizer_name(name)
        if parts is not None and not hasattr(value, "placements"):
            shard = shards.of(parameters[parts[0]])
            shards.optimizer.state[shard.flat][parts[1]] = _own_scalar(shards.optimizer, value, shard)
    shards.publish()


def _model(module: nn.Module, shards: Shards) -> dict[str, Any]:
    entries = model_entries(module)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if (entry := MODEL + name) in entries:
            trained = parameter.requires_grad
            entries[entry] = (
                shards.of(parameter).piece(shards.shape(parameter)) if trained else shards.frozen(parameter)
            )
    return entries


def _flat_state(shards: Shards, shard: Shard, key: str, dtype: torch.dtype) -> Tensor:
    """The state of a whole flat tensor, of which each of its parameters fills its part."""
    state = shards.optimizer.state[shard.flat]
    if key not in state:
        state[key] = torch.zeros_like(shard.flat, dtype=dtype, requires_grad=False)
    found: Tensor = state[key]
    return found


def _scalar(value: Any) -> Any:
    return torch.tensor(float(value)) if isinstance(value, int | float) else value


def _own_scalar(optimizer: torch.optim.Optimizer, value: Any, shard: Shard) -> Any:
    """A count of steps as this optimizer keeps it."""
    if type(optimizer).__name__.startswith("DeepSpeedCPU"):
        return int(value)
    on_device = any(group.get("fused") or group.get("capturable") for group in optimizer.param_groups)
    return value.to(shard.flat.device) if on_device and isinstance(value, Tensor) else value
