"""Published runs as the planner's own values: how each row of a table of reference points is read.

A row names a model, sizes, GPUs, a strategy in words, and what was measured. What the words leave open is what the
trainer behind them does by default: MosaicML's llm-foundry takes a fused loss and gradients in fp32 (in bf16 under
`MP=PURE`); torchtitan's `selective` keeps every second matrix product, and it compiles its loss with the model since
pull request 1033 of 2025-04.

Columns that need not be there say it outright: `loss` (`eager`, `compiled`, `fused`), `attention` (`eager`: scores are
written out) and `card_gib`, the card's memory as an error message printed it. A row that cannot be read is no reason to
stop: it is told of and left out.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, get_args

from shunter_planner.hardware.fabrics import FABRICS, Fabric
from shunter_planner.hardware.gpus import Gpu, gpu_of
from shunter_planner.memory.estimate import Memory, peak_memory
from shunter_planner.models.huggingface import shape_of_config
from shunter_planner.models.shape import ModelShape
from shunter_planner.recipe import Checkpointing, Cut, Loss, Recipe, Spread
from shunter_planner.timing.estimate import StepTime, step_time

PER_NODE: Final = 8
_MPT_VOCAB: Final = 50368
_LEARNED_POSITIONS: Final = 65536
_COMPILES_ITS_LOSS_SINCE: Final = (2025, 4)
"""torchtitan, year and month: github.com/pytorch/torchtitan/pull/1033."""
_DATE: Final = re.compile(r"(?<!\d)(20\d\d)-?(0[1-9]|1[0-2])(?!\d)")
_OUT_OF_MEMORY: Final = re.compile(r"\boom\b|out of memory", re.IGNORECASE)

# By how a model's name begins: what its family fixes beside the sizes that a row gives. With `params` the width of the
# feed-forward part follows, so that sizes which are not in a table are read too.
_FAMILIES: Final[dict[str, dict[str, Any]]] = {
    "llama-3.2": {"model_type": "llama", "vocab_size": 128256, "num_key_value_heads": 8, "tie_word_embeddings": True},
    "llama-3": {"model_type": "llama", "vocab_size": 128256, "num_key_value_heads": 8},
    "llama-2-70": {"model_type": "llama", "vocab_size": 32000, "num_key_value_heads": 8},
    "llama-2": {"model_type": "llama", "vocab_size": 32000},
    "llama-1": {"model_type": "llama", "vocab_size": 32000},
    "deepseek-math": {"model_type": "llama", "vocab_size": 102400},
}


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


@dataclass(frozen=True, slots=True)
class Unread:
    """A row that was left out, and why."""

    line: int
    """Of the file, from 1."""
    name: str
    why: str


def read_points(path: Path) -> list[Point]:
    """Every row of a file of reference points that can be read."""
    return read_rows(path)[0]


def read_rows(path: Path) -> tuple[list[Point], list[Unread]]:
    """The rows of a file of reference points, and those that cannot be read."""
    points: list[Point] = []
    unread: list[Unread] = []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            # A short row has None where fields are missing, a long one a list of what is too much.
            fields = {name: (value or "").strip() for name, value in row.items() if isinstance(name, str)}
            try:
                points.append(_point(fields))
            except (ValueError, ArithmeticError, LookupError) as exc:
                why = f"there is no column {exc}" if isinstance(exc, KeyError) else str(exc)
                unread.append(Unread(reader.line_num, fields.get("model", ""), why))
    return points, unread


def _point(row: dict[str, str]) -> Point:
    strategy, gpus = row["strategy"], _positive(row, "gpus")
    micro, positions = _positive(row, "micro_batch"), _positive(row, "seq")
    tensor, context, pipeline = (_degree(strategy, word) for word in ("TP", "CP", "PP"))
    shape = replace(_shape(row), eager_attention=row.get("attention") == "eager")
    gpu = _gpu(row)
    spread = _spread(strategy, gpus, tensor, context, pipeline)
    return Point(
        name=row["model"],
        shape=shape,
        positions=positions,
        recipe=_recipe(row),
        spread=spread,
        cut=Cut(micro, _accumulation(row, spread), _checkpointing(row)),
        gpu=gpu,
        fabric=_fabric(gpu),
        tokens_per_s_per_gpu=_number(row["tokens_per_s_per_gpu"]),
        peak_gib=_number(row["peak_mem_gib"]),
        ran_out=any(_OUT_OF_MEMORY.search(row[column]) for column in ("peak_mem_gib", "tokens_per_s_per_gpu")),
        pipeline=pipeline,
        source=row["source"],
    )


def _gpu(row: dict[str, str]) -> Gpu:
    found = re.fullmatch(r"(\w+?)_(\d+)gb(?:_.*)?", row["gpu_type"])
    if found is None:
        raise ValueError(f"gpu_type {row['gpu_type']!r} is not of the form h100_80gb")
    gpu = gpu_of(found[1].replace("_", " "), float(found[2]))
    printed = _number(row.get("card_gib", ""))
    return gpu if printed is None else replace(gpu, memory_gib=printed)


def _shape(row: dict[str, str]) -> ModelShape:
    name = row["model"].lower()
    if name.startswith("mpt"):
        return _mpt(row)
    sizes = {
        "num_hidden_layers": _positive(row, "layers"),
        "hidden_size": _positive(row, "hidden"),
        "num_attention_heads": _positive(row, "heads"),
    }
    if name.startswith("gpt-2"):
        gpt2 = {"n_layer": row["layers"], "n_embd": row["hidden"], "n_head": row["heads"]}
        return shape_of_config({"model_type": "gpt2", **{key: int(value) for key, value in gpt2.items()}})
    family = next((fixed for begin, fixed in _FAMILIES.items() if name.startswith(begin)), None)
    if family is None:
        known = ", ".join(["mpt", "gpt-2", *_FAMILIES])
        raise ValueError(f"model {row['model']!r} is of no family that is known ({known})")
    shape = _with_parameters(lambda ffn: shape_of_config({**family, **sizes, "intermediate_size": ffn}), row)
    return replace(shape, composite_norms="torchtitan" not in row["source"] and "h200" not in row["source"])


def _with_parameters(make: Callable[[int], ModelShape], row: dict[str, str]) -> ModelShape:
    """The shape whose feed-forward width gives the row's number of parameters: it grows evenly with the width."""
    layers, hidden, wanted = _positive(row, "layers"), _positive(row, "hidden"), _positive(row, "params")
    ffn = 1 + round((wanted - make(1).parameters) / (3 * layers * hidden))
    if ffn <= 0:
        raise ValueError(f"{wanted} parameters are fewer than attention and embeddings of these sizes have")
    return make(ffn)


def _mpt(row: dict[str, str]) -> ModelShape:
    layers, hidden, heads = _positive(row, "layers"), _positive(row, "hidden"), _positive(row, "heads")
    parameters = _positive(row, "params")
    outer = (_MPT_VOCAB + min(_positive(row, "seq"), _LEARNED_POSITIONS)) * hidden
    block = (parameters - outer) // layers
    if (ffn := (block - 4 * hidden * hidden) // (2 * hidden)) <= 0:
        raise ValueError(f"{parameters} parameters are fewer than attention and embeddings of these sizes have")
    return ModelShape(
        name=row["model"],
        parameters=parameters,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_width=hidden // heads,
        ffn=ffn,
        gated=False,
        vocab=_MPT_VOCAB,
        lookup_parameters=outer - _MPT_VOCAB * hidden,  # positions; the head is the embedding
        block_parameters=block,
    )


def _recipe(row: dict[str, str]) -> Recipe:
    precision = row["precision"].lower()
    compiled = "compile" in row["strategy"].lower()
    if "fp32" in precision and "bf16" not in precision:
        return Recipe(compute_bytes=4, dtype="fp32", compiled=compiled, loss=_loss(row, compiled=compiled))
    reduce_bytes = 2 if "pure" in precision else 4
    dtype = next((kind for kind in ("fp8", "fp16") if kind in precision), "bf16")
    return Recipe(dtype=dtype, reduce_bytes=reduce_bytes, compiled=compiled, loss=_loss(row, compiled=compiled))


def _loss(row: dict[str, str], *, compiled: bool) -> Loss:
    """As the row says it, else by the trainer and the date of its page; without a date the kind that takes most."""
    said = row.get("loss", "")
    if said:
        if said not in get_args(Loss):
            raise ValueError(f"loss {said!r} is none of {', '.join(get_args(Loss))}")
        return said  # type: ignore[return-value]  # one of them, as was just seen
    if "llm-foundry" in row["source"]:
        return "fused"
    dated = _DATE.search(row["source"])
    is_recent = dated is not None and (int(dated[1]), int(dated[2])) >= _COMPILES_ITS_LOSS_SINCE
    return "compiled" if compiled and is_recent else "eager"


def _spread(strategy: str, gpus: int, tensor: int, context: int, pipeline: int) -> Spread:
    words = strategy.upper()
    ranks = gpus // pipeline
    if "DDP" in words and "FSDP" not in words:
        return Spread("ddp", ranks, PER_NODE, tensor=tensor, context=context)
    if (stage := re.search(r"ZERO-?(\d)", words)) and "FSDP" not in words:
        return Spread("deepspeed", ranks, PER_NODE, shards=ranks, zero_stage=int(stage[1]))
    if not re.search("FSDP|HSDP|SHARD", words):
        raise ValueError(f"strategy {strategy!r} is none that is known")
    if "HSDP" in words or "HYBRID" in words:
        return Spread("hsdp", ranks, PER_NODE, shards=min(ranks, PER_NODE), tensor=tensor, context=context)
    reshard = "SHARD_GRAD_OP" not in words
    return Spread("fsdp", ranks, PER_NODE, shards=ranks // tensor, reshard=reshard, tensor=tensor, context=context)


def _checkpointing(row: dict[str, str]) -> Checkpointing:
    word = row["act_ckpt"].lower()
    if word.startswith("selective"):
        return "selective_alternate" if "torchtitan" in row["source"] or "h200" in row["source"] else "selective"
    if word not in ("full", "none", ""):
        raise ValueError(f"act_ckpt {row['act_ckpt']!r} is none of none, selective, full")
    return "full" if word == "full" else "none"


def _accumulation(row: dict[str, str], spread: Spread) -> int:
    if found := re.search(r"ga=(\d+)", row["strategy"]):
        return int(found[1])
    size = _number(row["global_batch"])
    return max(1, round(size / (int(row["micro_batch"]) * spread.data_ranks))) if size else 1


def _fabric(gpu: Gpu) -> Fabric:
    """H100 clusters of these sources have 400 Gb/s a GPU, the A100 ones 200."""
    rdma = FABRICS["rdma"]
    return rdma._replace(gb_per_s_per_gpu=50.0) if gpu.name.startswith("H") else rdma


def _degree(strategy: str, word: str) -> int:
    found = re.search(rf"{word}=(\d+)", strategy)
    return int(found[1]) if found else 1


def _positive(row: dict[str, str], column: str) -> int:
    number = _number(row[column])
    if number is None or number < 1:
        raise ValueError(f"{column} {row[column]!r} is not a positive number")
    return int(number)


def _number(text: str) -> float | None:
    """None for what is no finite number."""
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
