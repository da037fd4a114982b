"""Documents to start from: small ones that are accepted as they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal


def starting_document(kind: Literal["script", "training"], entrypoint: str = "train.py") -> dict[str, Any]:
    """A program of the user's with checkpoints, or a small training that runs anywhere."""
    return _script(entrypoint) if kind == "script" else _training()


def _script(entrypoint: str) -> dict[str, Any]:
    return {
        "version": "1",
        "name": Path(entrypoint).stem,
        "source": {"kind": "folder", "path": "."},
        "workload": {
            "kind": "script",
            "entrypoint": entrypoint,
            "arguments": ["--checkpoints", "${checkpoint_dir}", "--output", "${output_dir}"],
            "resume_arguments": ["--resume", "${latest_checkpoint}"],
            "checkpoint": {"pattern": "checkpoint-*", "complete_file": "complete"},
        },
        "resources": {"gpus": 1},
        "limits": {"max_duration_s": 86400},
    }


def _training() -> dict[str, Any]:
    return {
        "version": "1",
        "name": "tiny-lm",
        "workload": {
            "kind": "training",
            "model": {
                "kind": "transformer", "layers": 4, "hidden": 128, "heads": 4, "vocab": 256, "context": 128,
            },
            "data": {
                "kind": "sample",
                "name": "python-docs",
                "tokenizer": "bytes",
                "sequence_length": 128,
                "validation": {"fraction": 0.05},
            },
            "optimizer": {"kind": "adamw", "lr": 0.002},
            "schedule": {"kind": "cosine", "warmup_steps": 30},
            "batch": {"global_size": 16},
            "duration": {"steps": 300},
            "evaluation": {"every_steps": 50},
        },
        "strategy": {"kind": "ddp"},
        "resources": {"cpu_processes": 2},
        "limits": {"max_duration_s": 3600},
    }  # fmt: skip
