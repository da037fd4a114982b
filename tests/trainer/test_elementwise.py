"""Which optimizers ZeRO may cut parameters for."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from shunter_schemas.strategies import DeepSpeedStrategy
from shunter_trainer.failures import UserFault
from shunter_trainer.gang import Gang
from shunter_trainer.models.objective import Objective
from shunter_trainer.optim.elementwise import is_elementwise
from shunter_trainer.optim.optimizers import trainable
from shunter_trainer.strategies import strategy_for
from shunter_trainer.strategies.base import Parts
from torch import nn

CPU = torch.device("cpu")
Factory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class RowNormed(torch.optim.Optimizer):
    """Steps of the same length for every row."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(group["lr"] * parameter.grad / parameter.grad.norm(dim=-1, keepdim=True))


class OnAnAccelerator(torch.optim.SGD):
    """Works nowhere that a trial could."""

    def step(self) -> None:  # type: ignore[override]
        raise RuntimeError("needs an accelerator")


def decaying_matrices(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Groups by the number of axes, as many factories make them."""
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.5},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.1)


def made_by(factory: Factory) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda model: factory(trainable(model))


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        *((kind, True) for kind in (torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad, torch.optim.RMSprop)),
        (decaying_matrices, True),
        (OnAnAccelerator, True),
        (torch.optim.Adafactor, False),
        (torch.optim.Muon, False),
        (RowNormed, False),
    ],
)
def test_an_optimizer_is_elementwise_if_it_moves_parts_as_it_moves_the_whole(factory: Factory, expected: bool) -> None:
    assert is_elementwise(made_by(factory)) is expected


def test_zero_refuses_an_optimizer_that_looks_at_matrices() -> None:
    parts = Parts(
        module=nn.Linear(4, 4),
        objective=Objective(None, None, own_labels=False),
        make_optimizer=made_by(RowNormed),
        keeps_groups=True,
        compute_dtype=torch.float32,
        reduce_dtype=torch.float32,
        gang=Gang(0, 1, 0, 1, 0, 1, CPU),
    )
    strategy = strategy_for(DeepSpeedStrategy(kind="deepspeed", zero_stage=2))

    with pytest.raises(UserFault, match="use strategy ddp, or zero_stage 0") as refused:
        strategy.prepare(parts)

    assert refused.value.pointer == "/workload/optimizer/target"
