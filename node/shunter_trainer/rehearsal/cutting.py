"""What is made smaller for a rehearsal: pure functions from the document to a smaller one, each with a note for people.

Rules for each kind of model: a `transformer` keeps two layers; of a `huggingface` model with a configuration of its own
two layers are kept too (pretrained weights: see `weights`); a `python` model stays as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

Document = dict[str, Any]

RANKS: Final = 2
LAYERS: Final = 2
FIRST_STEPS: Final = 3
GLOBAL_SIZE: Final = 4
LONGEST_SEQUENCE: Final = 128
MOST_SAMPLES: Final = 256
WARMUP_STEPS: Final = 2

LAYER_NAMES: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_encoder_layers")
NARROW: Final[Mapping[str, Mapping[str, int]]] = {
    "transformer": {"hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 128},
    "huggingface": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "n_embd": 64,
        "n_head": 4,
        "n_inner": 128,
    },
}
"""Widths under `--narrow`, by the kind of model; of a Hugging Face configuration those that it has."""


class Cut:
    """A document being cut; `notes` says what was changed, `open` what could not be rehearsed at all."""

    def __init__(self, document: Mapping[str, Any], *, narrow: bool) -> None:
        self.document: Document = copy.deepcopy(dict(document))
        self.workload: Document = self.document["workload"]
        self.narrow = narrow
        self.notes: list[str] = []
        self.open: list[str] = []

    def set(self, part: Document, name: str, value: Any, place: str) -> None:
        """Change one member, and say so where it was there."""
        before = part.get(name)
        if before != value:
            part[name] = value
            self.notes.append(f"{place} {before} -> {value}" if before is not None else f"{place} = {value}")


def cut(document: Mapping[str, Any], *, narrow: bool) -> Cut:
    """The document of the first act: a few steps on two ranks."""
    made = Cut(document, narrow=narrow)
    for rule in _RULES:
        rule(made)
    return made


def with_steps(document: Mapping[str, Any], steps: int) -> Document:
    """The same for another number of steps."""
    longer = copy.deepcopy(dict(document))
    longer["workload"]["duration"] = {"steps": steps}
    return longer


def cut_config(config: Document, *, narrow: bool) -> Iterator[str]:
    """Cut a Hugging Face configuration in place; yields what was changed."""
    wanted = dict.fromkeys(LAYER_NAMES, LAYERS) | (dict(NARROW["huggingface"]) if narrow else {})
    for name, value in wanted.items():
        before = config.get(name)
        if isinstance(before, int) and before > value:
            config[name] = value
            yield f"{name} {before} -> {value}"
    # One entry a layer, which has to stay as long as there are layers.
    if isinstance(config.get("layer_types"), list):
        config["layer_types"] = config["layer_types"][:LAYERS]


def _model(made: Cut) -> None:
    model = made.workload["model"]
    if model["kind"] == "transformer":
        made.set(model, "layers", min(model["layers"], LAYERS), "model.layers")
        for name, value in NARROW["transformer"].items() if made.narrow else ():
            made.set(model, name, value, f"model.{name}")
    elif model["kind"] == "huggingface" and not model.get("weights"):
        made.notes += [f"model.config.{told}" for told in cut_config(model["config"], narrow=made.narrow)]
    elif model["kind"] == "python":
        made.notes.append("the model is built by your own code, as large as it is")


def _data(made: Cut) -> None:
    data, model = made.workload["data"], made.workload["model"]
    if data["kind"] == "synthetic":
        made.set(data, "samples", min(data.get("samples") or MOST_SAMPLES, MOST_SAMPLES), "data.samples")
    takes_tokens = (
        "tokenizer" in data or data["kind"] in _TOKENS or (data["kind"] == "synthetic" and not data.get("fields"))
    )
    length = data.get("sequence_length") or model.get("context")
    if takes_tokens and length and length > LONGEST_SEQUENCE:
        made.set(data, "sequence_length", LONGEST_SEQUENCE, "data.sequence_length")
    validation = data.get("validation") or {}
    if (validation.get("sequence_length") or 0) > LONGEST_SEQUENCE:
        made.set(validation, "sequence_length", LONGEST_SEQUENCE, "data.validation.sequence_length")


def _pace(made: Cut) -> None:
    workload = made.workload
    made.set(workload, "batch", {"global_size": GLOBAL_SIZE, "micro_size": 1}, "batch")
    made.set(workload, "duration", {"steps": FIRST_STEPS}, "duration")
    schedule = workload.get("schedule") or {}
    if (schedule.get("warmup_steps") or 0) > WARMUP_STEPS:
        made.set(schedule, "warmup_steps", WARMUP_STEPS, "schedule.warmup_steps")
    checkpoint = workload.setdefault("checkpoint", {})
    made.set(checkpoint, "every_steps", 2, "checkpoint.every_steps")
    checkpoint["every_s"] = None
    checkpoint["keep"] = max(checkpoint.get("keep") or 1, 2)
    workload["log_every_steps"] = 1
    if evaluation := workload.get("evaluation"):
        made.set(evaluation, "every_steps", FIRST_STEPS, "evaluation.every_steps")
        evaluation["batches"] = 1
        if evaluation.pop("early_stopping", None):
            made.open.append("early stopping (too few evaluations)")


def _machine(made: Cut) -> None:
    workload = made.workload
    if workload.get("compile") is True:
        workload["compile"] = False
        made.open.append("torch.compile (it would be compiled for this machine's CPU)")
    if workload.pop("profile", None):
        made.open.append("the profiler")
    for part in ("image", "requirements", "requirements_file", "setup", "secrets"):
        if made.document.get("environment", {}).get(part):
            made.open.append(f"environment.{part} (this machine's own Python environment is used)")
    made.open.append("GPUs, NCCL, memory and speed: everything ran on two processes on this machine's CPU, with gloo")


def _strategy(made: Cut) -> None:
    strategy = made.document.get("strategy") or {"kind": "auto"}
    made.document["strategy"] = strategy
    if strategy["kind"] == "auto":
        made.document["strategy"] = {"kind": "ddp"}
        made.notes.append("strategy auto -> ddp (the planner picks for the real machines)")
    if strategy["kind"] == "hsdp" and strategy.get("shard_size") != RANKS:
        made.set(strategy, "shard_size", RANKS, "strategy.shard_size")
        made.open.append("reduction between groups (two processes make one group)")
    reshard: Any = strategy.get("reshard_after_forward", True)
    if not isinstance(reshard, bool) and RANKS % reshard:
        made.set(strategy, "reshard_after_forward", True, "strategy.reshard_after_forward")


_TOKENS: Final = ("sample", "text", "jsonl", "chat", "parquet", "huggingface")
_RULES: Final[tuple[Callable[[Cut], None], ...]] = (_model, _data, _pace, _strategy, _machine)
