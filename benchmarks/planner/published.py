"""Published runs as the planner's own values: how each row of a table of reference points is read.

A row names a model, sizes, GPUs, a strategy in words, and what was measured. What the words leave open is what the
trainer behind them does by default: MosaicML's llm-foundry takes a fused loss and gradients in fp32 (in bf16 under
`MP=PURE`); torchtitan's `selective` keeps every second matrix product, and its loss is compiled since mid-2025.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shunter_planner.hardware.fabrics import FABRICS, Fabric
from shunter_planner.hardware.gpus import Gpu, gpu_of
from shunter_planner.memory.estimate import Memory, peak_memory
from shunter_planner.models.huggingface import shape_of_config
from shunter_planner.models.shape import ModelShape
from shunter_planner.recipe import Checkpointing, Cut, Loss, Recipe, Spread
from shunter_planner.timing.estimate import StepTime, step_time

PER_NODE: Final = 8
_LLAMA: Final = {"model_type": "llama", "vocab_size": 128256, "num_key_value_heads": 8}
_FFN: Final = {4096: 14336, 8192: 28672, 16384: 53248}
_MPT_VOCAB: Final = 50368
_LEARNED_POSITIONS: Final = 65536


@dataclass(frozen=True, slots=True)
class Point:
    """One published run."""

    name: str
    shape: ModelShape
    positions: int
    recipe: Recipe
    spread: Spread
    cut: Cut
    gpu: Gpu
    fabric: Fabric
    tokens_per_s_per_gpu: float | None
    peak_gib: float | None
    ran_out: bool
    pipeline: int
    source: str

    @property
    def covered(self) -> bool:
        """Whether it was made by a strategy that Shunter has: no tensor, context or pipeline parallelism."""
        return self.spread.tensor == 1 and self.spread.context == 1 and self.pipeline == 1

    def memory(self) -> Memory:
        """As the planner predicts it."""
        return peak_memory(self.shape, self.positions, self.recipe, self.spread, self.cut)

    def time(self) -> StepTime:
        """As the planner predicts it."""
        return step_time(self.shape, self.positions, self.recipe, self.spread, self.cut, self.gpu, self.fabric)


def read_points(path: Path) -> list[Point]:
    """Every row of a file of reference points."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_point(row) for row in csv.DictReader(file)]


def _point(row: dict[str, str]) -> Point:
    strategy, gpus = row["strategy"], int(row["gpus"])
    micro, positions = int(row["micro_batch"]), int(row["seq"])
    tensor, context, pipeline = (_degree(strategy, word) for word in ("TP", "CP", "PP"))
    shape = _shape(row)
    gpu_words = row["gpu_type"].split("_")
    gpu = gpu_of(gpu_words[0], float(gpu_words[1].removesuffix("gb")))
    spread = _spread(strategy, gpus, tensor, context, pipeline)
    return Point(
        name=row["model"],
        shape=shape,
        positions=positions,
        recipe=_recipe(row),
        spread=spread,
        cut=Cut(micro, _accumulation(row, spread), _checkpointing(row)),
        gpu=gpu,
        fabric=_fabric(row, gpu),
        tokens_per_s_per_gpu=_number(row["tokens_per_s_per_gpu"]),
        peak_gib=_number(row["peak_mem_gib"]),
        ran_out="oom" in (row["peak_mem_gib"] + row["tokens_per_s_per_gpu"] + row["strategy"]).lower(),
        pipeline=pipeline,
        source=row["source"],
    )


def _shape(row: dict[str, str]) -> ModelShape:
    layers, hidden, heads = int(row["layers"]), int(row["hidden"]), int(row["heads"])
    if row["model"].startswith("Llama-3"):
        sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
        shape = shape_of_config({**_LLAMA, **sizes, "intermediate_size": _FFN[hidden]})
        return _with_fused_norms(shape)
    parameters = int(float(row["params"]))
    outer = (_MPT_VOCAB + min(int(row["seq"]), _LEARNED_POSITIONS)) * hidden
    block = (parameters - outer) // layers
    return ModelShape(
        name=row["model"],
        parameters=parameters,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_width=hidden // heads,
        ffn=(block - 4 * hidden * hidden) // (2 * hidden),
        gated=False,
        vocab=_MPT_VOCAB,
        lookup_parameters=outer - _MPT_VOCAB * hidden,  # positions; the head is the embedding
        block_parameters=block,
    )


def _with_fused_norms(shape: ModelShape) -> ModelShape:
    from dataclasses import replace

    return replace(shape, composite_norms=False)


def _recipe(row: dict[str, str]) -> Recipe:
    precision, strategy = row["precision"].lower(), row["strategy"].lower()
    compiled = "compile" in strategy
    reduce_bytes = 2 if "pure" in precision else 4
    dtype = "fp8" if "fp8" in precision else "bf16"
    loss: Loss = "eager"
    if "llm-foundry" in row["source"]:
        loss = "fused"
    elif compiled and ("2025" in row["source"]):
        loss = "compiled"
    return Recipe(dtype=dtype, reduce_bytes=reduce_bytes, compiled=compiled, loss=loss)


def _spread(strategy: str, gpus: int, tensor: int, context: int, pipeline: int) -> Spread:
    words = strategy.upper()
    ranks = gpus // pipeline
    if "DDP" in words and "FSDP" not in words:
        return Spread("ddp", ranks, PER_NODE, tensor=tensor, context=context)
    if (stage := re.search(r"ZERO-?(\d)", words)) and "FSDP" not in words:
        return Spread("deepspeed", ranks, PER_NODE, shards=ranks, zero_stage=int(stage[1]))
    reshard = "SHARD_GRAD_OP" not in words
    return Spread("fsdp", ranks, PER_NODE, shards=ranks // tensor, reshard=reshard, tensor=tensor, context=context)


def _checkpointing(row: dict[str, str]) -> Checkpointing:
    word = row["act_ckpt"]
    if word.startswith("selective"):
        return "selective_alternate" if "torchtitan" in row["source"] or "h200" in row["source"] else "selective"
    return "full" if word == "full" else "none"


def _accumulation(row: dict[str, str], spread: Spread) -> int:
    if found := re.search(r"ga=(\d+)", row["strategy"]):
        return int(found[1])
    size = _number(row["global_batch"])
    return max(1, round(size / (int(row["micro_batch"]) * spread.data_ranks))) if size else 1


def _fabric(row: dict[str, str], gpu: Gpu) -> Fabric:
    """H100 clusters of these sources have 400 Gb/s a GPU, the A100 ones 200."""
    rdma = FABRICS["rdma"]
    return rdma._replace(gb_per_s_per_gpu=50.0) if gpu.name.startswith("H") else rdma


def _degree(strategy: str, word: str) -> int:
    found = re.search(rf"{word}=(\d+)", strategy)
    return int(found[1]) if found else 1


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
