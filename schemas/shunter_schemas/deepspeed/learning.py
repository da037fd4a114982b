"""`optimizer` and `scheduler` of a DeepSpeed document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shunter_schemas.deepspeed.reading import AUTO, Finding, is_count, offload_device, section, stage_of
from shunter_schemas.deepspeed.tables import (
    OFFLOAD_OPTIMIZERS,
    OPTIMIZERS,
    REMOVED_OPTIMIZERS,
    SCHEDULERS,
    TORCH_OPTIMIZERS,
    TORCH_SCHEDULERS,
    ZERO_OPTIMIZERS,
)
from shunter_schemas.nearest import did_you_mean

_NEEDED = {
    "WarmupDecayLR": ("total_num_steps",),
    "WarmupCosineLR": ("total_num_steps",),
    "OneCycle": ("cycle_min_lr", "cycle_max_lr"),
}


def parameter_findings(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Parameters that are no object."""
    for name in ("optimizer", "scheduler"):
        params = section(document, name).get("params")
        if params is not None and not isinstance(params, Mapping):
            yield Finding((name, "params"), 'must be an object such as {"lr": 0.001}')


def optimizer_findings(document: Mapping[str, Any]) -> Iterator[Finding]:
    """An optimizer that does not exist, or that ZeRO or its offload cannot take."""
    if not isinstance(document.get("optimizer"), Mapping):
        return
    path, name = ("optimizer", "type"), section(document, "optimizer").get("type")
    known = tuple(dict.fromkeys((*OPTIMIZERS, *TORCH_OPTIMIZERS)))
    if not isinstance(name, str):
        yield Finding(("optimizer",), f"`type` is missing; known: {', '.join(known)}")
    elif name in REMOVED_OPTIMIZERS:
        yield Finding(path, "DeepSpeed no longer has it; use Adam, AdamW or Lion")
    elif name.lower() not in _FOLDED and name not in TORCH_OPTIMIZERS:
        yield Finding(path, f"there is no such optimizer{did_you_mean(name, known) or '; known: ' + ', '.join(known)}")
    else:
        yield from _fits_zero(document, name)
    if "max_grad_norm" in section(document, "optimizer", "params"):
        yield Finding(("optimizer", "params", "max_grad_norm"), "DeepSpeed refuses it here; use `gradient_clipping`")


def scheduler_findings(document: Mapping[str, Any]) -> Iterator[Finding]:
    """A scheduler that does not exist, or parameters that it does not take."""
    if not isinstance(document.get("scheduler"), Mapping):
        return
    name = section(document, "scheduler").get("type")
    if not isinstance(name, str):
        yield Finding(("scheduler",), f"`type` is missing; known: {', '.join(SCHEDULERS)}")
    elif name in SCHEDULERS:
        yield from _parameters(name, section(document, "scheduler", "params"))
    elif name not in TORCH_SCHEDULERS:
        known = (*SCHEDULERS, *TORCH_SCHEDULERS)
        found = did_you_mean(name, known) or f"; known: {', '.join(SCHEDULERS)}"
        yield Finding(("scheduler", "type"), f"there is no such scheduler{found}")


def _fits_zero(document: Mapping[str, Any], name: str) -> Iterator[Finding]:
    stage, path = stage_of(document), ("optimizer", "type")
    offloaded = offload_device(document, "offload_optimizer") not in ("none", AUTO)
    if document.get("zero_allow_untested_optimizer") is True or not stage:
        return
    if offloaded and name.lower() not in OFFLOAD_OPTIMIZERS:
        device = offload_device(document, "offload_optimizer")
        detail = f"`{name}` has no form for offloaded state, and `zero_optimization.offload_optimizer` says {device}"
        yield Finding(path, f"{detail}; use Adam, AdamW, Adagrad or Lion, or leave the offload out")
    elif name.lower() not in ZERO_OPTIMIZERS:
        detail = f"`{name}` is not tested with ZeRO, and `zero_optimization.stage` is {stage}"
        yield Finding(path, f"{detail}; use Adam or AdamW, or set `zero_allow_untested_optimizer`: true")


def _parameters(name: str, params: Mapping[str, Any]) -> Iterator[Finding]:
    known = SCHEDULERS[name]
    for parameter in params:
        if parameter not in known:
            yield Finding(
                ("scheduler", "params", parameter), f"`{name}` takes no such parameter{did_you_mean(parameter, known)}"
            )
    for needed in _NEEDED.get(name, ()):
        if needed not in params:
            yield Finding(("scheduler",), f"`{name}` needs `params.{needed}`")
    warmup = params.get("warmup_num_steps", 1)
    if "warmup_num_steps" in params and warmup != AUTO and not is_count(warmup):
        yield Finding(("scheduler", "params", "warmup_num_steps"), "must be a whole number above 0")


_FOLDED = {name.lower() for name in OPTIMIZERS}
