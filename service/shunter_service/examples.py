"""Examples for the API's description, from the models' own."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def example_of(model: type[BaseModel]) -> dict[str, Any]:
    """An answer with every field filled in by the first example of its description."""
    return {
        (field.serialization_alias or field.alias or name): field.examples[0]
        for name, field in model.model_fields.items()
        if field.examples
    }


def job_document() -> dict[str, Any]:
    """A small training that runs anywhere: two CPU processes on text that every Python has."""
    return {
        "version": "1",
        "name": "tiny-lm",
        "workload": {
            "kind": "training",
            "model": {"kind": "transformer", "layers": 2, "hidden": 64, "heads": 4, "vocab": 256, "context": 64},
            "data": {"kind": "sample", "name": "python-docs", "tokenizer": "bytes", "sequence_length": 64},
            "optimizer": {"kind": "adamw", "lr": 0.002},
            "batch": {"global_size": 8},
            "duration": {"steps": 50},
        },
        "strategy": {"kind": "ddp"},
        "resources": {"cpu_processes": 2},
    }
