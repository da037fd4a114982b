"""What contradicts what in a DeepSpeed document, besides its batch sizes: precision, ZeRO, optimizer, scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from shunter_schemas.deepspeed.reading import (
    AUTO,
    Finding,
    Setting,
    is_count,
    is_number,
    is_on,
    offload_device,
    section,
    stage_of,
)
from shunter_schemas.deepspeed.tables import STAGE_3_OFFLOAD_ONLY, STAGE_3_ONLY

ZERO = "zero_optimization"


def rule_findings(document: Mapping[str, Any], setting: Setting) -> Iterator[Finding]:
    """Every contradiction, with both places."""
    for rule in _RULES:
        yield from rule(document, setting)


def _switches(document: Mapping[str, Any], _: Setting) -> Iterator[Finding]:
    for name in ("fp16", "bf16", "torch_autocast"):
        value = section(document, name).get("enabled", False)
        if not isinstance(value, bool) and value != AUTO:
            yield Finding((name, "enabled"), "must be true or false")
    clipping = document.get("gradient_clipping")
    if clipping not in (None, AUTO) and (not is_number(clipping) or clipping < 0):
        yield Finding(("gradient_clipping",), "must be a number, 0 or above (0: no clipping)")


def _precision(document: Mapping[str, Any], _: Setting) -> Iterator[Finding]:
    if is_on(document, "fp16") and is_on(document, "bf16"):
        yield Finding(
            ("fp16", "enabled"), "`bf16.enabled` is true as well, and there is one precision; set one of them"
        )
    on = next((name for name in ("fp16", "bf16") if is_on(document, name)), None)
    if on is not None and is_on(document, "torch_autocast"):
        yield Finding(("torch_autocast", "enabled"), f"`{on}.enabled` is true as well; set one of them")
    wanted = section(document, "data_types").get("param_dtype")
    if wanted is not None and wanted not in (AUTO, on or "fp32"):
        detail = f"`{wanted}` contradicts `{on}.enabled`" if on else f"`{wanted}` needs `{wanted}.enabled`"
        yield Finding(("data_types", "param_dtype"), f"{detail}; leave it out")
    yield from _loss_scale(document)
    yield from _low_masters(document)


def _loss_scale(document: Mapping[str, Any]) -> Iterator[Finding]:
    fp16 = section(document, "fp16")
    scale = fp16.get("loss_scale", 0)
    if scale != AUTO and (not is_number(scale) or scale < 0):
        yield Finding(("fp16", "loss_scale"), "must be a number, 0 or above (0: found by trial)")
    elif scale == 0:
        for name in ("loss_scale_window", "min_loss_scale"):
            if name in fp16 and fp16[name] != AUTO and not is_count(fp16[name]):
                yield Finding(("fp16", name), "must be a whole number above 0 while `loss_scale` is 0")


def _low_masters(document: Mapping[str, Any]) -> Iterator[Finding]:
    for part in ("fp16", "bf16"):
        name = f"{part}_master_weights_and_grads"
        if section(document, part).get(name) is True and stage_of(document) == 0:
            yield Finding((part, name), f"needs `{ZERO}.stage` 1 or more, and it is 0")
    bf16 = section(document, "bf16")
    if bf16.get("bf16_optimizer_states") is True and bf16.get("bf16_master_weights_and_grads") is not True:
        yield Finding(("bf16", "bf16_optimizer_states"), "needs `bf16.bf16_master_weights_and_grads`: true")


def _stage(document: Mapping[str, Any], _: Setting) -> Iterator[Finding]:
    zero, stage = section(document, ZERO), stage_of(document)
    if stage is None:
        yield Finding((ZERO, "stage"), "must be 0, 1, 2 or 3")
        return
    for name, value in zero.items():
        bound = name in STAGE_3_ONLY or name.startswith("stage3_")
        if stage != 3 and bound and not _is_idle(value) and (name, value) not in _DEFAULTS:
            yield Finding((ZERO, name), f"works at stage 3 only, and `{ZERO}.stage` is {stage}; leave it out, or use 3")
    if zero.get("compute_grad_norm") is False and stage not in (1, 2):
        yield Finding(
            (ZERO, "compute_grad_norm"), f"can be false at stages 1 and 2 only, and `{ZERO}.stage` is {stage}"
        )
    if zero.get("legacy_stage1") is True:
        yield Finding((ZERO, "legacy_stage1"), "DeepSpeed no longer has it; leave it out")
    if str(document.get("gradient_allreduce_op", "mean")).lower() == "sum" and stage == 3:
        yield Finding(("gradient_allreduce_op",), f"`sum` does not work with `{ZERO}.stage` 3; use mean")


def _offload(document: Mapping[str, Any], _: Setting) -> Iterator[Finding]:
    stage = stage_of(document)
    if offload_device(document, "offload_optimizer") != "none" and stage == 0:
        yield Finding(
            (ZERO, "offload_optimizer"), f"needs `{ZERO}.stage` 1 or more, and it is 0; use 1, or leave it out"
        )
    for part in ("offload_optimizer", "offload_param"):
        values, device = section(document, ZERO, part), offload_device(document, part)
        if device not in ("none", "cpu", "nvme", AUTO):
            yield Finding((ZERO, part, "device"), "must be none, cpu or nvme")
        if device == "nvme" and not values.get("nvme_path"):
            yield Finding((ZERO, part), "`nvme_path` is missing, and `device` is nvme; say where, or use cpu")
    for name, idle in STAGE_3_OFFLOAD_ONLY.items():
        value = section(document, ZERO, "offload_optimizer").get(name, idle)
        if value not in (idle, AUTO) and stage not in (3, None):
            detail = f"works at stage 3 only, and `{ZERO}.stage` is {stage}; leave it out, or use 3"
            yield Finding((ZERO, "offload_optimizer", name), detail)


def _groups(document: Mapping[str, Any], setting: Setting) -> Iterator[Finding]:
    size = section(document, ZERO).get("zero_hpz_partition_size", 1)
    world_size = setting.world_size
    if size == AUTO or world_size is None or stage_of(document) != 3:
        return
    if not is_count(size) or world_size % size:
        detail = f"{world_size} ranks ({setting.ranks}) do not divide into groups of {size}"
        yield Finding((ZERO, "zero_hpz_partition_size"), f"{detail}; use a divisor of {world_size}")


def _is_idle(value: Any) -> bool:
    """Whether an option says that it is not used."""
    if isinstance(value, Mapping):
        return value.get("device", "none") == "none" and not any(isinstance(v, list) and v for v in value.values())
    return value is not True and value in (None, False, 0, 1, AUTO)


def _quoted(document: Mapping[str, Any], _: Setting) -> Iterator[Finding]:
    """Numbers that are texts: what is handed on to an optimizer or a scheduler is not read as a number there."""
    for path in (("optimizer", "params"), ("scheduler", "params"), (ZERO,)):
        for name, value in section(document, *path).items():
            if isinstance(value, str) and _reads_as(float, value) and not (path == (ZERO,) and _reads_as(int, value)):
                yield Finding((*path, name), "must be a number; write it without quotes")


def _reads_as(kind: Callable[[str], object], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


_Rule = Callable[[Mapping[str, Any], Setting], Iterator[Finding]]
_RULES: tuple[_Rule, ...] = (_switches, _precision, _stage, _offload, _groups, _quoted)
_DEFAULTS = (("memory_efficient_linear", True),)
"""Options of stage 3 that are on unless somebody says otherwise."""
