"""Low-rank adapters on frozen weights, through `peft`.

The adapters are injected into the model, whose own modules stay where they are: `q_proj` becomes a pair of `base_layer`
and adapters. So a frozen tensor is `….q_proj.base_layer.weight`, an adapter `….q_proj.lora_A.default.weight`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shunter_schemas.models import LoraAdapter
from shunter_schemas.nearest import did_you_mean
from torch import Tensor, nn

from shunter_trainer.failures import UserFault
from shunter_trainer.models.materialise import Filler
from shunter_trainer.seeds import named_generator

ALL_LINEAR = "all-linear"
_POINTER = "/workload/adapter"
_BASE = ".base_layer."
_PEFT_TASKS = {"causal_lm": "CAUSAL_LM", "sequence_classification": "SEQ_CLS"}
_A, _B = ".lora_A.default.", ".lora_B.default."


@dataclass(frozen=True, slots=True)
class LoraForm:
    """What the adapters of a model are, for its export."""

    config: Mapping[str, Any]
    """`adapter_config.json` as `peft` writes it."""
    scale: float
    transposed: frozenset[str]
    """Names of layers that keep their weight as inputs x outputs (`Conv1D` of GPT-2)."""
    head: frozenset[str]
    """Names of parameters beside the adapters that are trained: the head of a classifier."""


def add_adapters(model: Any, adapter: LoraAdapter, head: frozenset[str], task: str) -> LoraForm:
    """Freeze the model but for `head`, and inject adapters into its linear layers. The model lies on the meta device.

    Raises: UserFault naming a target that is no linear layer.
    """
    peft = _peft()
    layers = _linear_layers(model, head)
    targets = _targets(adapter.targets, layers, model)
    config = peft.LoraConfig(
        r=adapter.rank,
        lora_alpha=int(adapter.alpha) if adapter.alpha.is_integer() else adapter.alpha,
        lora_dropout=adapter.dropout or 0.0,
        target_modules=sorted(targets),
        fan_in_fan_out=any(_is_transposed(layer) for layer in layers.values()),
        # `inject_adapter_in_model` knows no task; the head is trained in its own place.
        modules_to_save=None,
    )
    peft.inject_adapter_in_model(config, model, low_cpu_mem_usage=True)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in head or ".lora_" in name)
    return LoraForm(
        config=_adapter_config(config, head, task),
        scale=adapter.alpha / adapter.rank,
        transposed=frozenset(name for name, layer in layers.items() if _is_transposed(layer)),
        head=head,
    )


def filler_beside(fill: Filler, seed: int) -> Filler:
    """Fills adapters (A as `peft` does, B with zeros: the model begins as its base), and the rest by `fill`."""

    def filled(module: nn.Module, names: Mapping[str, str]) -> None:
        frozen = {}
        for own, name in names.items():
            tensor: Tensor = getattr(module, own)
            if _A in name:
                generator = named_generator(seed, name, tensor.device)
                nn.init.kaiming_uniform_(tensor, a=math.sqrt(5), generator=generator)
            elif _B in name:
                tensor.zero_()
            else:
                frozen[own] = base_name(name)
        if frozen:
            fill(module, frozen)

    return filled


def base_name(name: str) -> str:
    """The name that a tensor has in the model without adapters."""
    return name.replace(_BASE, ".")


def is_trained(name: str, form: LoraForm) -> bool:
    """Whether a parameter is an adapter's, or one that is trained beside them."""
    return ".lora_" in name or name in form.head


def adapter_weights(named: Iterable[tuple[str, Tensor]], form: LoraForm) -> Iterator[tuple[str, Tensor]]:
    """Of a model's weights those that were trained, under the names of a `peft` file."""
    for name, value in named:
        if name in form.head:
            yield f"base_model.model.{name}", value
        elif ".lora_" in name:
            yield f"base_model.model.{name.replace('.default.', '.')}", value


@dataclass(slots=True)
class Merger:
    """Folds adapters into their layers as a model's weights come by: W + scale · B A."""

    form: LoraForm
    _waiting: dict[str, dict[str, Tensor]] = field(default_factory=dict)

    def __call__(self, named: tuple[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """The weights of the model without adapters; a layer's weight comes when all three of its matrices have."""
        name, value = named
        kind = next((mark for mark in (f"{_BASE}weight", f"{_A}weight", f"{_B}weight") if name.endswith(mark)), None)
        if kind is None:
            yield base_name(name), value
            return
        layer = name.removesuffix(kind)
        parts = self._waiting.setdefault(layer, {})
        parts[kind] = value
        if len(parts) == 3:
            del self._waiting[layer]
            yield f"{layer}.weight", self._merged(layer, *(parts[f"{mark}weight"] for mark in (_BASE, _A, _B)))

    def _merged(self, layer: str, weight: Tensor, a_RI: Tensor, b_OR: Tensor) -> Tensor:
        change_OI = b_OR.float() @ a_RI.float() * self.form.scale
        change = change_OI.T if layer in self.form.transposed else change_OI
        return (weight.float() + change).to(weight.dtype)


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise UserFault(_POINTER, 'needs the package peft; add "peft" to environment.requirements') from error
    return peft


def _linear_layers(model: nn.Module, head: frozenset[str]) -> dict[str, nn.Module]:
    """Every linear layer but the output layer and the head of a classifier."""
    output = getattr(model, "get_output_embeddings", lambda: None)()
    return {
        name: module
        for name, module in model.named_modules()
        if (isinstance(module, nn.Linear) or _is_transposed(module))
        and module is not output
        and f"{name}.weight" not in head
    }


def _is_transposed(module: nn.Module) -> bool:
    return type(module).__name__.removeprefix("FSDP") == "Conv1D" and hasattr(module, "nf")


def _targets(asked: Iterable[str], layers: Mapping[str, nn.Module], model: nn.Module) -> set[str]:
    """Raises: UserFault when a name is that of no linear layer, or one layer would be meant for all of another kind."""
    last = {name.rpartition(".")[2] for name in layers}
    found: set[str] = set()
    for number, target in enumerate(asked):
        if target == ALL_LINEAR:
            others = {name.rpartition(".")[2] for name, _ in model.named_modules() if name not in layers}
            found |= last if not last & others else set(layers)
        elif any(name == target or name.endswith(f".{target}") for name in layers):
            found.add(target)
        else:
            raise UserFault(f"{_POINTER}/targets/{number}", _no_such_layer(target, last, model))
    return found


def _no_such_layer(target: str, last: set[str], model: nn.Module) -> str:
    other = next(
        (type(module).__name__ for name, module in model.named_modules() if f".{name}".endswith(f".{target}")), None
    )
    what = f"is a {other}" if other else "is in no place of the model"
    hint = did_you_mean(target, last) or f"; they are {', '.join(sorted(last)[:12])}, or {ALL_LINEAR} for all"
    return f"{target!r} {what}, and adapters go onto its linear layers{hint}"


def _adapter_config(config: Any, head: frozenset[str], task: str) -> Mapping[str, Any]:
    written = config.to_dict()
    written.update(inference_mode=True, task_type=_PEFT_TASKS.get(task))
    if head:
        written["modules_to_save"] = sorted({name.partition(".")[0] for name in head})
    plain: dict[str, Any] = {}
    for name, value in written.items():
        plain[name] = sorted(value) if isinstance(value, set) else getattr(value, "value", value)
    return plain
