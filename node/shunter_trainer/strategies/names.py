"""The canonical layout of a checkpoint: one flat mapping of names, the same under every strategy.

`model.<parameter>`, `buffer.<buffer>`, `optimizer.<parameter>.<key of its state>`, and `optimizer_groups` (JSON).
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn

from shunter_trainer.models.frozen import left_out

MODEL = "model."
BUFFER = "buffer."
OPTIMIZER = "optimizer."
GROUPS = "optimizer_groups"


def model_entries(module: nn.Module) -> dict[str, Any]:
    """Parameters and persistent buffers; tied ones once for each of their names. No frozen ones below an adapter."""
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    absent = left_out(module)
    return {
        (MODEL if name in parameters else BUFFER) + name: value
        for name, value in module.state_dict().items()
        if name not in absent
    }


def unsaved_buffers(module: nn.Module) -> list[str]:
    """Names of buffers that are no part of the model's state."""
    saved = module.state_dict().keys()
    return [name for name, _ in module.named_buffers() if name not in saved]


def optimizer_entries(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """State of every parameter by the parameter's name, and the settings of the groups."""
    entries: dict[str, Any] = {}
    for name, parameter in module.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            entries[optimizer_name(name, key)] = value
    entries[GROUPS] = json.dumps([_plain(group) for group in optimizer.param_groups])
    return entries


def restore_groups(optimizer: torch.optim.Optimizer, text: str) -> None:
    """Put saved settings back into the groups that they were taken from."""
    for group, saved in zip(optimizer.param_groups, json.loads(text), strict=True):
        group.update(saved)


def _plain(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if isinstance(value, int | float | str)}


def optimizer_name(parameter: str, key: str) -> str:
    """The name of one entry of a parameter's optimizer state."""
    return f"{OPTIMIZER}{parameter}.{key}"


def split_optimizer_name(name: str) -> tuple[str, str] | None:
    """Parameter and key of an entry of optimizer state; None for any other entry."""
    if not name.startswith(OPTIMIZER):
        return None
    parameter, _, key = name.removeprefix(OPTIMIZER).rpartition(".")
    return parameter, key
