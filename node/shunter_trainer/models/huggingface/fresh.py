"""First values as the model's own `_init_weights` gives them, each tensor by itself.

`transformers` fills whole models at once, with the values depending on everything that was drawn before. Here every
tensor is filled alone: the random numbers are seeded by its full name, all its neighbours are marked as filled (a mark
that the library's own functions respect), and then those modules' `_init_weights` run that write to it. So the values
are the same in whatever order, and in whatever parts, a strategy fills the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from shunter_trainer.seeds import named_generator

_MARK = "_is_hf_initialized"
"""Tensors that carry a true value under this name are left alone by `transformers.initialization`."""

_Write = Callable[[nn.Module], None]


class FreshValues:
    """How each tensor of a model gets its first values. Made while the whole model lies on the meta device."""

    def __init__(self, model: Any, seed: int, build: Callable[[], nn.Module]) -> None:
        """`build` makes the model with memory; it is called only for tensors that `_init_weights` does not cover."""
        self._seed = seed
        self._build = build
        self._built: dict[str, Tensor] | None = None
        first = {id(tensor): name for name, tensor in reversed(list(_tensors(model)))}
        self._first_name = {name: first[id(tensor)] for name, tensor in _tensors(model)}
        self._holders = {name: _holder(model, name) for name in first.values()}
        self._writers, unguarded = _writers(model, self._holders)
        if unguarded:
            self._writers = {}

    def fill(self, tensor: Tensor, name: str) -> None:
        """Write the values in place. `name` is the full name that the tensor had when the model was built.

        A tied tensor gets the same values under each of its names.
        """
        name = self._first_name[name]
        writers = self._writers.get(name)
        if not writers:
            tensor.copy_(self._constructed()[name])
            return
        from transformers.initialization import guard_torch_init_functions

        _seed_default_generators(named_generator(self._seed, name, torch.device("cpu")).initial_seed())
        with _held(tensor, *self._holders[name]):
            for write, module in writers:
                with _all_marked_but(tensor, module), guard_torch_init_functions():
                    write(module)

    def _constructed(self) -> Mapping[str, Tensor]:
        if self._built is None:
            _seed_default_generators(self._seed)
            self._built = dict(_tensors(self._build()))
        return self._built


class _Probe:
    """Stands in for the mark and notes when anybody asks for it: who asks was about to write."""

    def __init__(self, name: str, asked: list[str]) -> None:
        self._name = name
        self._asked = asked

    def __bool__(self) -> bool:
        self._asked.append(self._name)
        return True


_Writers = dict[str, list[tuple[_Write, nn.Module]]]
_Holders = Mapping[str, tuple[nn.Module, str]]


def _writers(model: Any, holders: _Holders) -> tuple[_Writers, bool]:
    """By tensor, whose `_init_weights` write to it, in order; and whether one wrote without regard for the mark."""
    from transformers.initialization import guard_torch_init_functions

    named = {name: tensor for name, tensor in _tensors(model) if name in holders}
    versions = {name: tensor._version for name, tensor in named.items()}
    found: _Writers = {}
    asked: list[str] = []
    for name, tensor in named.items():
        setattr(tensor, _MARK, _Probe(name, asked))
    with torch.no_grad(), guard_torch_init_functions():
        for module, write in _in_filling_order(model, None):
            write(module)
            within = set(module.modules()) if asked else set()
            for name in dict.fromkeys(asked):
                if holders[name][0] in within:  # not by way of a second name of a tied tensor
                    found.setdefault(name, []).append((write, module))
            asked.clear()
    for tensor in named.values():
        vars(tensor).pop(_MARK, None)
    return found, any(tensor._version != versions[name] for name, tensor in named.items())


def _holder(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, own = name.rpartition(".")
    return model.get_submodule(path), own


@contextmanager
def _held(tensor: Tensor, module: nn.Module, own: str) -> Iterator[None]:
    """Let the module have this tensor; it may still have another, where the tensor was reached by a second name."""
    place: dict[str, Any] = module._parameters if own in module._parameters else module._buffers
    before, place[own] = place[own], tensor
    try:
        yield
    finally:
        place[own] = before


def _in_filling_order(module: nn.Module, write: _Write | None) -> Iterator[tuple[nn.Module, _Write]]:
    """Children before their parents, each with the `_init_weights` of the pretrained model that it is a part of."""
    from transformers import PreTrainedModel

    if isinstance(module, PreTrainedModel):
        write = module._init_weights
    for child in module.children():
        yield from _in_filling_order(child, write)
    assert write is not None
    yield module, write


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    parameters = module.named_parameters(remove_duplicate=False)
    return chain(parameters, module.named_buffers(remove_duplicate=False))


@contextmanager
def _all_marked_but(tensor: Tensor, module: nn.Module) -> Iterator[None]:
    others = [other for _, other in _tensors(module) if other is not tensor]
    for other in others:
        setattr(other, _MARK, True)
    try:
        yield
    finally:
        for other in others:
            vars(other).pop(_MARK, None)


def _seed_default_generators(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    for generator in torch.cuda.default_generators:
        generator.manual_seed(seed)
