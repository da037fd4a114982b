"""From a module on the meta device to one with memory and first values, one submodule after the other.

A model is built without memory where it can be (`Built.module` on the meta device), together with a *filler*. Each
strategy then walks its units: memory, first values, and, where it shards, the shards in their place, before the next
unit. So no rank ever holds more than one whole unit beside its shards, and all strategies start from the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from shunter_trainer.failures import UserFault

Filler = Callable[[nn.Module, Mapping[str, str]], None]
"""`fill(module, names)`: write first values into tensors that `module` itself holds (not its children), in place.

`names` maps the attribute of each such parameter or buffer to its full name in the model. The values are a function of
the seed and the full name alone (or are read from pretrained weights by it), whatever was filled before.
"""


def keep_values(module: nn.Module, names: Mapping[str, str]) -> None:
    """The filler of a model that was built with its values: nothing may be left to fill.

    Raises: UserFault naming what has no values.
    """
    raise UserFault(
        "/workload/model/target", f"the model leaves {', '.join(names.values())} on the meta device, without values"
    )


def materialise(parts: Iterable[tuple[str, nn.Module]], fill: Filler, device: torch.device) -> None:
    """Bring the tensors that these submodules themselves hold to `device`; those on the meta device get first values.

    `parts` are full names and modules, as of `named_modules()`; a module's children are parts of their own. Parameters
    that are shared between the parts stay shared, and are filled once, under the first of their names.
    """
    made: dict[nn.Parameter, nn.Parameter] = {}
    for name, module in parts:
        unfilled = _parameters_to(device, module, made) + _buffers_to(device, module)
        if unfilled:
            with torch.no_grad():
                fill(module, {own: f"{name}.{own}" if name else own for own in unfilled})


def _parameters_to(device: torch.device, module: nn.Module, made: dict[nn.Parameter, nn.Parameter]) -> list[str]:
    unfilled = []
    for own, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
        if parameter in made:
            module.register_parameter(own, made[parameter])
        elif parameter.is_meta:
            made[parameter] = _empty(parameter, device)
            module.register_parameter(own, made[parameter])
            unfilled.append(own)
        else:
            parameter.data = parameter.data.to(device)
    return unfilled


def _empty(parameter: nn.Parameter, device: torch.device) -> nn.Parameter:
    empty = nn.Parameter(_memory(parameter, device), requires_grad=parameter.requires_grad)
    vars(empty).update(vars(parameter))
    return empty


def _buffers_to(device: torch.device, module: nn.Module) -> list[str]:
    unfilled = []
    for own, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
        if buffer.is_meta:
            unfilled.append(own)
        module._buffers[own] = _memory(buffer, device) if buffer.is_meta else buffer.to(device)
    return unfilled


def _memory(form: Tensor, device: torch.device) -> Tensor:
    # Not empty_like, which loads sympy (0.4 s) for a tensor on the meta device.
    return torch.empty_strided(form.size(), form.stride(), dtype=form.dtype, device=device)
