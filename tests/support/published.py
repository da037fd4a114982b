"""Published runs, read as `benchmarks/planner` reads them, and a model of usual size."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from shunter_planner.models.huggingface import shape_of_config

FOLDER = Path(__file__).parents[2] / "benchmarks" / "planner"

LLAMA_8B = shape_of_config(
    {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
    }
)


def _load(name: str) -> ModuleType:
    """A benchmark is no package."""
    spec = importlib.util.spec_from_file_location(f"planner_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


Point = Any
"""`benchmarks/planner/published.py::Point`."""
_READER = _load("published")
read_rows = _READER.read_rows
"""`benchmarks/planner/published.py::read_rows`."""
POINTS: list[Point] = _READER.read_points(FOLDER / "reference_points.csv")
LIMITS: list[Point] = _READER.read_points(FOLDER / "out_of_memory.csv")
"""Runs that ran out of memory, and some that ran on the same cards."""
