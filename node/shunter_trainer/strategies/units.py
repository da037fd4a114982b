"""Which parts of a model are gathered and split as one: its units.

A unit is small enough to be whole on every rank for a moment, and large enough to be worth a message of its own.
`auto` takes the blocks that a model names itself (`_no_split_modules`, as Hugging Face's models and our transformer
do), else the repeated elements of its containers. The model itself is the last unit and takes what is left; so do
parts that share parameters with other parts, since one parameter can be in one unit only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import nn

from shunter_trainer.failures import UserFault

LEAST_PARAMETERS = 100_000
"""Smaller repeated elements stay with their parent, where nobody asked for them: a message would cost more."""

Wrap = Literal["auto"] | tuple[str, ...]
_POINTER = "/strategy/wrap"
_CONTAINERS = (nn.ModuleList, nn.Sequential)


@dataclass(frozen=True, slots=True)
class Unit:
    """A module, and the full names and modules of all its parts that are in no smaller unit."""

    module: nn.Module
    parts: list[tuple[str, nn.Module]]


def units_of(model: nn.Module, wrap: Wrap) -> list[Unit]:
    """The units from the inside out; the model itself is the last. Each part of the model is in one of them.

    Raises: UserFault for a class name that no part of the model has.
    """
    chosen = {id(module) for module in (_by_structure(model) if wrap == "auto" else _by_class(model, wrap))}
    chosen -= {id(module) for module in _entangled(model, chosen)} | {id(model)}
    names = [name for name, module in model.named_modules() if id(module) in chosen]
    parts: dict[str, list[tuple[str, nn.Module]]] = {"": [], **{name: [] for name in names}}
    for name, module in model.named_modules():
        parts[_innermost(name, parts)].append((name, module))
    # Containers come before what they contain, so that the other way round is from the inside out.
    return [Unit(model.get_submodule(name), parts[name]) for name in [*reversed(names), ""]]


def _by_class(model: nn.Module, wrap: tuple[str, ...]) -> list[nn.Module]:
    classes = {type(module).__name__ for module in model.modules()}
    for index, name in enumerate(wrap):
        if name not in classes:
            there = ", ".join(sorted(classes))
            raise UserFault(f"{_POINTER}/{index}", f"the model has no part of class {name!r}; it has {there}")
    found = [module for module in model.modules() if type(module).__name__ in wrap]
    for module in found:
        if type(module).forward is nn.Module.forward:
            name = type(module).__name__
            raise UserFault(
                f"{_POINTER}/{wrap.index(name)}", f"{name} only contains others and is never called; name what it holds"
            )
    return found


def _by_structure(model: nn.Module) -> list[nn.Module]:
    named = {name for module in model.modules() for name in getattr(module, "_no_split_modules", None) or ()}
    return [module for module in model.modules() if type(module).__name__ in named] or list(_repeated(model))


def _repeated(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost elements of containers that stand there more than once, are called, and are large enough."""
    counts = Counter(type(child) for child in module.children()) if isinstance(module, _CONTAINERS) else Counter[type]()
    for child in module.children():
        callable_itself = type(child).forward is not nn.Module.forward
        if counts[type(child)] > 1 and callable_itself and _size(child) >= LEAST_PARAMETERS:
            yield child
        else:
            yield from _repeated(child)


def _entangled(model: nn.Module, chosen: set[int]) -> list[nn.Module]:
    everywhere = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    return [
        module
        for module in model.modules()
        if id(module) in chosen
        and any(
            count < everywhere[parameter]
            for parameter, count in Counter(id(p) for _, p in module.named_parameters(remove_duplicate=False)).items()
        )
    ]


def _innermost(name: str, units: dict[str, list[tuple[str, nn.Module]]]) -> str:
    while name not in units:
        name = name.rpartition(".")[0]
    return name


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
