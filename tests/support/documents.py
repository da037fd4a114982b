"""Job documents for tests: a valid one, and copies of it with something changed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
BUNDLE_ID = "bun_" + "0123456789abcdef" * 4

ABSENT = object()
"""In `changed`: the member is removed."""


def tiny_lm() -> dict[str, Any]:
    """The example document, which trains a small language model with DDP on two CPU processes."""
    document: dict[str, Any] = json.loads((REPOSITORY / "examples" / "tiny-lm-ddp.json").read_text(encoding="utf-8"))
    return document


def script() -> dict[str, Any]:
    """A document that runs a program of the user's from an uploaded bundle."""
    return {
        "version": "1",
        "name": "a script",
        "source": {"kind": "bundle", "id": BUNDLE_ID},
        "inputs": {"train": {"from": f"bundle:{BUNDLE_ID}"}},
        "workload": {"kind": "script", "entrypoint": "train.py", "arguments": ["--data", "${inputs.train}"]},
        "resources": {"cpu_processes": 2},
    }


def changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with members set by path (`workload.batch.global_size`), or removed by `ABSENT`."""
    result = copy.deepcopy(document)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = result
        for name in parents:
            place = place.setdefault(name, {})
        if value is ABSENT:
            place.pop(last, None)
        else:
            place[last] = value
    return result


def body(document: Any) -> bytes:
    """The document as a request carries it."""
    return json.dumps(document).encode()


def everything() -> dict[str, Any]:
    """A document that uses every part of version 1, also what no release can run yet."""
    return {
        "version": "1",
        "name": "sft-8b",
        "labels": {"team": "nlp"},
        "priority": "normal",
        "source": {"kind": "git", "url": "https://git.example/acme/sft.git", "ref": "main", "secret": "GIT_TOKEN"},
        "inputs": {
            "base": {"from": "./llama-8b"},
            "train": {"from": "s3://acme/sft", "mode": "stream", "secret": "ACME_S3"},
        },
        "workload": {
            "kind": "training",
            "model": {"kind": "huggingface", "weights": "input:base", "config": {}, "task": "causal_lm"},
            "adapter": {"kind": "lora", "rank": 16, "alpha": 32, "dropout": 0.05, "targets": ["q_proj", "v_proj"]},
            "data": {
                "kind": "chat",
                "path": "input:train/*.jsonl",
                "tokenizer": "input:base",
                "sequence_length": 4096,
                "packing": True,
                "template": "tokenizer",
                "train_on": "assistant",
                "validation": {"fraction": 0.01},
            },
            "loss": {"kind": "causal_lm", "label_smoothing": 0.1},
            "metrics": ["perplexity"],
            "optimizer": {"kind": "adamw", "lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1},
            "schedule": {"kind": "cosine", "warmup_steps": 100, "min_lr_ratio": 0.1},
            "batch": {"global_size": 256, "micro_size": "auto"},
            "duration": {"steps": 1000},
            "precision": {"parameters": "fp32", "compute": "bf16", "reduce": "fp32"},
            "gradient_clip_norm": 1.0,
            "activation_checkpointing": "auto",
            "compile": "auto",
            "seed": 17,
            "checkpoint": {"every_steps": 100, "every_s": None, "keep": 3, "keep_best": "val_loss"},
            "evaluation": {
                "every_steps": 100,
                "batches": 20,
                "early_stopping": {"metric": "val_loss", "patience": 3, "min_delta": 0.001},
            },
            "guards": {
                "non_finite_steps": 5,
                "loss_spikes": {"action": "warn", "deviations": 12, "window_steps": 64},
                "hang_s": 600,
            },
            "profile": {"first_step": 10, "last_step": 12, "ranks": "first", "memory": False, "stacks": False},
            "export": {"weights": "merged", "format": "safetensors"},
        },
        "strategy": {"kind": "hsdp", "shard_size": 8, "offload": "cpu", "wrap": ["Block"]},
        "resources": {
            "gpus": 16,
            "gpus_per_node": 8,
            "gpu_models": ["H100", "A100-80GB"],
            "min_gpu_memory_gib": 80,
            "min_cpus_per_gpu": 8,
            "min_memory_gib_per_gpu": 64,
            "disk_gib": "auto",
            "interconnect": "rdma",
            "capacity": "spot_then_on_demand",
        },
        "placement": {
            "providers": ["runpod", "lambda"],
            "jurisdictions": ["EU", "EEA", "CH"],
            "regions": ["eu-central-1"],
            "objective": "balanced",
            "options": {"slurm-a": {"qos": "long"}},
        },
        "limits": {
            "max_cost_usd": 250.0,
            "max_usd_per_hour": 40.0,
            "max_duration_s": 86400,
            "max_queue_s": 7200,
            "max_gpu_idle_s": 1800,
        },
        "recovery": {"user_restarts": 0, "node_recoveries": 10, "min_gpus": 8},
        "environment": {
            "image": "ghcr.io/acme/train:1",
            "registry": {"secret": "GHCR"},
            "python": "3.11",
            "torch": "2.13",
            "requirements": ["einops", "peft>=0.15; python_version >= '3.9'"],
            "requirements_file": "requirements.txt",
            "setup": ["make -C kernels\nls"],
            "variables": {"TOKENIZERS_PARALLELISM": "false"},
            "secrets": ["HF_TOKEN"],
        },
        "outputs": {"uri": "s3://acme/runs", "secret": "ACME_S3"},
        "tracking": [{"kind": "wandb", "project": "sft", "secret": "WANDB"}],
        "keep_alive_s": 600,
    }
