"""The DeepSpeed document of a `training`: ours where the job document decides, its author's everywhere else.

Ours are batch sizes, accumulation, clipping, precision, the stage of ZeRO and where state lies; the raw document may
repeat them, and must then agree (`shunter_schemas.checks.deepspeed`). `optimizer` and `scheduler` are the raw
document's where it names them. Everything else is the raw document's, over defaults that fit small models and nodes
without a compiler.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from shunter_schemas.strategies import DeepSpeedStrategy


class TrainingFacts(NamedTuple):
    """What the engine has to know of a training."""

    world_size: int
    micro_size: int
    accumulation: int
    compute: str
    """`fp32`, `bf16` or `fp16`."""
    reduce: str
    """Type in which gradients gather and are reduced."""
    parameters: int
    on_gpus: bool


_BUCKET: Final = 500_000_000
"""Elements; DeepSpeed's own default, which it takes as memory at once."""
_LEAST_BUCKET: Final = 1_000_000
_KEPT_WHOLE: Final = 100_000
"""Parameters up to this size are not split under stage 3, by DeepSpeed's own default."""
_KEPT_WHOLE_SHARE: Final = 1_000
"""A parameter above a thousandth of the model is split all the same: otherwise nothing of a small one would be."""


def training_config(strategy: DeepSpeedStrategy, facts: TrainingFacts) -> dict[str, Any]:
    """The whole document for `deepspeed.initialize`."""
    config: dict[str, Any] = copy.deepcopy(dict(strategy.config))
    for name, value in _DEFAULTS.items():
        config.setdefault(name, value)
    config.pop("optimizer", None)  # built by the trainer, so that it needs no compiler
    config.update(
        train_batch_size=facts.micro_size * facts.accumulation * facts.world_size,
        train_micro_batch_size_per_gpu=facts.micro_size,
        gradient_accumulation_steps=facts.accumulation,
        gradient_clipping=0.0,  # done by the adapter, which is told the norm step by step
        communication_data_type=facts.reduce,
        zero_force_ds_cpu_optimizer=False,  # the trainer makes the optimizer that was asked for
    )
    config["zero_optimization"] = _zero(strategy, facts, _section(config, "zero_optimization"))
    _set_precision(config, strategy.zero_stage, facts)
    return config


def zero_section(strategy: DeepSpeedStrategy) -> dict[str, Any]:
    """`zero_optimization` as the strategy's fields and its raw document say it together."""
    zero = copy.deepcopy(_section(strategy.config, "zero_optimization"))
    zero["stage"] = strategy.zero_stage
    for name, device in (
        ("offload_optimizer", strategy.offload_optimizer),
        ("offload_param", strategy.offload_parameters),
    ):
        if device != "none":
            zero[name] = {**_section(zero, name), "device": device}
    return zero


def _zero(strategy: DeepSpeedStrategy, facts: TrainingFacts, raw: Mapping[str, Any]) -> dict[str, Any]:
    zero = zero_section(strategy)
    bucket = min(_BUCKET, max(facts.parameters, _LEAST_BUCKET))
    zero.setdefault("reduce_bucket_size", bucket)
    zero.setdefault("allgather_bucket_size", bucket)
    if strategy.zero_stage == 3 and "param_persistence_threshold" not in raw:
        zero.setdefault("stage3_param_persistence_threshold", min(_KEPT_WHOLE, facts.parameters // _KEPT_WHOLE_SHARE))
    if not facts.on_gpus:
        for name in ("offload_optimizer", "offload_param"):
            if name in zero:
                zero[name].setdefault("pin_memory", False)
    return zero


def _set_precision(config: dict[str, Any], stage: int, facts: TrainingFacts) -> None:
    low = facts.compute if stage > 0 else "fp32"  # stage 0 keeps fp32 parameters and computes under torch's autocast
    for name in ("bf16", "fp16"):
        if name in config or low == name:
            config[name] = {**_section(config, name), "enabled": low == name}
    if low != "fp32":
        config["data_types"] = {"grad_accum_dtype": facts.reduce, **_section(config, "data_types")}


def _section(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    return dict(found) if isinstance(found, Mapping) else {}


_DEFAULTS: Final[dict[str, Any]] = {
    "zero_allow_untested_optimizer": True,
    "steps_per_print": None,
    "timers": {"throughput": {"enabled": False}},
}
"""Where the raw document says nothing: no prints of DeepSpeed's own, torch's optimizers."""
