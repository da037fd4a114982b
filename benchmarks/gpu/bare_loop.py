"""A training loop by hand on one device, for the document in `argv[1]`; prints tokens a second. See `one_gpu.py`."""

from __future__ import annotations

import json
import sys
import time

import torch
from shunter_schemas.training import TrainingWorkload
from shunter_trainer.models.build import build_model
from shunter_trainer.models.materialise import materialise
from shunter_trainer.optim.optimizers import decay_groups
from torch import nn

WARM_STEPS = 10


def main(document: str) -> None:
    """Train and print."""
    workload = TrainingWorkload.model_validate_json(json.dumps(json.loads(document)["workload"]))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    built = build_model(workload)
    materialise(built.module.named_modules(), built.fill, device)
    optimizer = torch.optim.AdamW(decay_groups(built.module, 0.1), lr=1e-4, fused=True)
    size, length, steps = workload.batch.global_size, workload.sequence_length or 0, workload.duration.steps or 0
    batches = torch.randint(256, (8, size, length)).to(device)
    began = 0.0
    for step in range(steps):
        if step == WARM_STEPS:
            _wait(device)
            began = time.perf_counter()
        ids = batches[step % len(batches)]
        with torch.autocast(device.type, torch.bfloat16):
            loss = built.module(ids, ids)["loss"]
        loss.backward()
        nn.utils.clip_grad_norm_(built.module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    _wait(device)
    print((steps - WARM_STEPS) * size * length / (time.perf_counter() - began))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(sys.argv[1])
