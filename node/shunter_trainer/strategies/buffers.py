"""Buffers that each rank moves on by its own samples, such as the running means of batch norms."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from shunter_trainer.gang import Gang
from shunter_trainer.strategies.names import unsaved_buffers


def agree_on_buffers(module: nn.Module, gang: Gang) -> None:
    """Give every rank the buffers of rank 0, which are those of checkpoints and of the export.

    Every rank calls it; communicates once for each type of numbers. Tables, which are not saved, are alike anyhow.
    """
    if gang.world_size == 1:
        return
    tables = set(unsaved_buffers(module))
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for name, buffer in module.named_buffers():
        if name not in tables and buffer.numel():
            by_type.setdefault(buffer.dtype, []).append(buffer)
    for buffers in by_type.values():
        _from_rank_0(buffers)


@torch.no_grad()
def _from_rank_0(buffers: list[Tensor]) -> None:
    flat = torch.cat([buffer.flatten() for buffer in buffers])
    dist.broadcast(flat.view(torch.uint8), src=0)  # of which every backend knows how to send every type
    parts = torch.split(flat, [buffer.numel() for buffer in buffers])
    for buffer, part in zip(buffers, parts, strict=True):
        buffer.copy_(part.view_as(buffer))
