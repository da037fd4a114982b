"""Models whose frozen parameters come from elsewhere: the base of an adapter is no part of its checkpoints."""

from __future__ import annotations

from torch import nn

_MARK = "_frozen_from_elsewhere"
"""An empty place among the modules: unlike an attribute of a parameter, it stays when a strategy wraps the model."""


def leave_out_frozen(module: nn.Module) -> None:
    """Mark the model."""
    module.register_module(_MARK, None)


def left_out(module: nn.Module) -> frozenset[str]:
    """Names of the parameters that are no part of the model's checkpoints; none unless the model is marked."""
    if _MARK not in module._modules:
        return frozenset()
    parameters = module.named_parameters(remove_duplicate=False)
    return frozenset(name for name, parameter in parameters if not parameter.requires_grad)
