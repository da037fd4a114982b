"""Small trainings for tests, and the loop that a person would write by hand for them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from shunter_schemas.training import TrainingWorkload
from shunter_trainer.data.build import build_data
from shunter_trainer.data.order import sample_indices
from shunter_trainer.data.samples import Unindexed
from shunter_trainer.models.build import build_model
from shunter_trainer.models.materialise import materialise
from shunter_trainer.places import Places
from torch import nn

TINY = {
    "kind": "transformer",
    "layers": 2,
    "hidden": 32,
    "heads": 4,
    "kv_heads": 2,
    "ffn": 64,
    "vocab": 256,
    "context": 32,
}


def workload(**members: Any) -> dict[str, Any]:
    """A training of a few milliseconds a step, with members replaced or added."""
    return {
        "kind": "training",
        "model": TINY,
        "data": {"kind": "sample", "sequence_length": 32, "validation": {"fraction": 0.1}},
        "optimizer": {"kind": "adamw", "lr": 0.01, "betas": [0.9, 0.95], "weight_decay": 0.1},
        "schedule": {"kind": "cosine", "warmup_steps": 2, "min_lr_ratio": 0.1},
        "batch": {"global_size": 8},
        "duration": {"steps": 8},
        "precision": "fp32",
        "gradient_clip_norm": 0.5,
        "seed": 17,
        "checkpoint": {"every_steps": 4, "keep": 3},
        "log_every_steps": 1,
        **members,
    }


def document(**members: Any) -> dict[str, Any]:
    """A job document around `workload(**members)`."""
    return {"version": "1", "name": "a test", "workload": workload(**members), "strategy": {"kind": "ddp"}}


def parsed(**members: Any) -> TrainingWorkload:
    """`workload(**members)` as the trainer reads it."""
    return TrainingWorkload.model_validate_json(json.dumps(workload(**members)))


def whole_model(training: TrainingWorkload) -> nn.Module:
    """The model of a training with its first values."""
    built = build_model(training)
    materialise(built.module.named_modules(), built.fill, torch.device("cpu"))
    return built.module


def bare_losses(training: TrainingWorkload, places: Places, factors: list[float]) -> list[float]:
    """The loss of each step by a hand-written loop in one process: the same samples, plain torch, no trainer.

    `factors` is the learning rate of each step as a share of the peak.
    """
    data = build_data(training, places).train
    assert not isinstance(data, Unindexed)
    model = whole_model(training)
    optimizer: Any = training.optimizer
    groups: list[dict[str, Any]] = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": optimizer.weight_decay},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=optimizer.lr, betas=optimizer.betas, eps=optimizer.eps)
    losses = []
    size = training.batch.global_size
    for step, factor in enumerate(factors):
        positions = np.arange(step * size, (step + 1) * size, dtype=np.int64)
        batch = data.take(sample_indices(positions, len(data), training.seed), positions // len(data))
        loss = model(**batch)["loss"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.gradient_clip_norm or 1e9)
        for group in adamw.param_groups:
            group["lr"] = optimizer.lr * factor
        adamw.step()
        adamw.zero_grad()
        losses.append(loss.item())
    return losses
