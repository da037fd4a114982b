"""Activation checkpointing: the same training in less memory."""

from typing import Any

import pytest
import torch
from shunter_trainer.failures import UserFault
from shunter_trainer.models.build import build_model
from shunter_trainer.models.materialise import materialise
from shunter_trainer.models.recompute import recompute_blocks
from support.trainings import parsed
from torch import nn

MODEL = {
    "kind": "transformer",
    "layers": 3,
    "hidden": 64,
    "heads": 4,
    "kv_heads": 2,
    "ffn": 256,
    "vocab": 256,
    "context": 64,
}
IDS = torch.randint(256, (2, 64), generator=torch.Generator().manual_seed(3))


def model(recompute: str) -> nn.Module:
    built = build_model(parsed(model=MODEL, activation_checkpointing=recompute))
    materialise(built.module.named_modules(), built.fill, torch.device("cpu"))
    return built.module


def gradients(module: nn.Module) -> list[torch.Tensor]:
    module(IDS, IDS)["loss"].backward()
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


def held_bytes(module: nn.Module) -> int:
    """What a forward pass leaves in memory for its backward pass."""
    gradients(module)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        loss = module(IDS, IDS)["loss"]
    events: Any = profiler.profiler
    held = sum(event.nbytes() for event in events.kineto_results.events() if event.name() == "[memory]")
    assert loss.requires_grad
    return int(held)


@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_gradients_do_not_depend_on_what_is_recomputed(recompute: str) -> None:
    kept, recomputed = gradients(model("none")), gradients(model(recompute))

    assert len(kept) == len(recomputed) > 20
    assert all(torch.equal(*pair) for pair in zip(kept, recomputed, strict=True))


def test_each_kind_holds_less_than_the_one_before() -> None:
    nothing, some, everything = (held_bytes(model(kind)) for kind in ("none", "selective", "full"))

    assert everything < 0.5 * some
    assert some < 0.75 * nothing


def test_an_evaluation_recomputes_nothing() -> None:
    module = model("full")
    calls = []
    layers: Any = module.get_submodule("model.layers")
    layers[0].mlp.gate_proj.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))

    with torch.no_grad():
        module(IDS, IDS)
    module(IDS, IDS)["loss"].backward()

    assert calls == [False, True, True]


def test_names_of_parameters_stay() -> None:
    assert model("selective").state_dict().keys() == model("none").state_dict().keys()


def test_a_model_without_blocks_cannot_recompute_them() -> None:
    with pytest.raises(UserFault, match=r"/workload/activation_checkpointing: .* nn.ModuleList"):
        recompute_blocks(nn.Linear(2, 2), "full")
