"""Optimizers that a DeepSpeed document names by itself, made of torch's: they mean the same and need no compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from shunter_schemas.deepspeed.tables import TRAINING_OPTIMIZERS
from torch import Tensor, nn

from shunter_trainer.failures import UserFault
from shunter_trainer.optim.optimizers import MakeOptimizer, trainable


def optimizer_maker(spec: Mapping[str, Any]) -> MakeOptimizer:
    """How to make the optimizer of `optimizer` in a DeepSpeed document. As there, all parameters decay alike.

    Raises: UserFault when it cannot be made from these parameters.
    """
    name, params = str(spec["type"]).lower(), dict(spec.get("params") or {})

    def make(model: nn.Module) -> torch.optim.Optimizer:
        try:
            return _BUILDERS.get(name, _torch)(name, trainable(model), dict(params))
        except (TypeError, ValueError) as error:
            raise UserFault("/strategy/config/optimizer/params", f"{spec['type']} refuses them: {error}") from error

    return make


def on_cpu(make: MakeOptimizer) -> MakeOptimizer:
    """The same with DeepSpeed's own Adam for state in the host's memory, which is faster than torch's, and compiled."""

    def make_compiled(model: nn.Module) -> torch.optim.Optimizer:
        made = make(model)
        if type(made) not in (torch.optim.Adam, torch.optim.AdamW):
            return made
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        settings = ("params", "lr", "betas", "eps", "weight_decay")
        groups = [{name: group[name] for name in settings} for group in made.param_groups]
        compiled: torch.optim.Optimizer = DeepSpeedCPUAdam(groups, adamw_mode=type(made) is torch.optim.AdamW)
        return compiled

    return make_compiled


class Lion(torch.optim.Optimizer):
    """Steps by the sign of the momentum (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2302.06675)."""

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)

    def _move(self, parameter: Tensor, gradient: Tensor, group: Mapping[str, Any]) -> None:
        state = self.state[parameter]
        if "exp_avg" not in state:
            state["exp_avg"] = torch.zeros_like(parameter)
        momentum: Tensor = state["exp_avg"]
        first, second = group["betas"]
        parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
        parameter.add_(torch.lerp(gradient, momentum, first).sign_(), alpha=-group["lr"])
        momentum.lerp_(gradient, 1.0 - second)


def _adam(name: str, parameters: list[nn.Parameter], params: dict[str, Any]) -> torch.optim.Optimizer:
    # As in DeepSpeed, "Adam" decays its weights as AdamW does unless it is told not to.
    decoupled = params.pop("adam_w_mode", True) or name == "adamw"
    for ours in ("torch_adam", "fp32_optimizer_states"):
        params.pop(ours, None)
    if not params.pop("bias_correction", True):
        raise UserFault("/strategy/config/optimizer/params/bias_correction", "torch's Adam always corrects; leave out")
    params.setdefault("weight_decay", 0.0)
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    return kind(parameters, **params)


def _lion(name: str, parameters: list[nn.Parameter], params: dict[str, Any]) -> torch.optim.Optimizer:
    return Lion(parameters, **params)


def _adagrad(name: str, parameters: list[nn.Parameter], params: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, **params)


def _torch(name: str, parameters: list[nn.Parameter], params: dict[str, Any]) -> torch.optim.Optimizer:
    kind: Callable[..., torch.optim.Optimizer] = getattr(torch.optim, TRAINING_OPTIMIZERS[name])
    return kind(parameters, **params)


_BUILDERS: dict[str, Callable[[str, list[nn.Parameter], dict[str, Any]], torch.optim.Optimizer]] = {
    "adam": _adam,
    "adamw": _adam,
    "adagrad": _adagrad,
    "lion": _lion,
}
