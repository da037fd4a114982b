"""Losses, optimizers, precision and what a strategy does with gradients: in one process, without a gang."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shunter_schemas.strategies import DdpStrategy
from shunter_trainer.data.build import build_data
from shunter_trainer.data.geometry import Geometry
from shunter_trainer.evaluation import Evaluator
from shunter_trainer.failures import UserFault
from shunter_trainer.gang import Gang
from shunter_trainer.models.build import build_model
from shunter_trainer.models.objective import Objective
from shunter_trainer.optim.optimizers import optimizer_maker
from shunter_trainer.places import Places
from shunter_trainer.seeds import mix, step_seeder
from shunter_trainer.strategies import strategy_for
from shunter_trainer.strategies.base import Parts, TorchStrategy, leave_to_optimizer
from support.trainings import parsed
from torch import nn
from torch.nn import functional as F

CPU = torch.device("cpu")
ALONE = Gang(0, 1, 0, 1, 0, 1, CPU)
CODE = """
import torch
from torch import nn

class Classifier(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.layer = nn.Linear(4, classes)
    def forward(self, x):
        return self.layer(x)

class Strange(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
    def forward(self, x):
        return {"odd": self.layer(x)}

class Plain(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr, "steps": 0})
    def step(self):
        for group in self.param_groups:
            group["steps"] += 1
            for parameter in group["params"]:
                parameter.data -= group["lr"] * parameter.grad

def squared(outputs, batch, power=2):
    return ((outputs - 1.0).abs() ** power).mean()

def not_an_optimizer(parameters):
    return 3
"""


@pytest.fixture(autouse=True)
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source folder with models of the user's, as working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine.py").write_text(CODE)


def classification(**members: Any) -> Any:
    fields = {"x": {"shape": [4], "dtype": "float32"}, "label": {"shape": [], "dtype": "int64", "high": 3}}
    return parsed(
        **{
            "model": {"kind": "python", "target": "mine:Classifier"},
            "data": {"kind": "synthetic", "samples": 32, "fields": fields},
            "loss": {"kind": "cross_entropy", "label_smoothing": 0.1},
            **members,
        }
    )


def prepared(training: Any) -> TorchStrategy:
    built = build_model(training)
    make = optimizer_maker(training.optimizer)
    strategy = strategy_for(DdpStrategy(kind="ddp"))
    objective = Objective(training.loss, built.accepts, own_labels=training.model.kind == "transformer")
    compute = {"fp32": torch.float32, "bf16": torch.bfloat16}[training.dtypes.compute]
    keeps_groups = training.optimizer.kind == "python"
    strategy.prepare(Parts(built.module, objective, make, keeps_groups, compute, torch.float32, ALONE, built.fill))
    assert isinstance(strategy, TorchStrategy)
    return strategy


BATCH = {"x": torch.randn(8, 4), "label": torch.randint(3, (8,))}
LOSSES: list[tuple[dict[str, Any], Callable[[torch.Tensor], torch.Tensor]]] = [
    (
        {"kind": "cross_entropy", "label_smoothing": 0.1},
        lambda logits: F.cross_entropy(logits, BATCH["label"], label_smoothing=0.1),
    ),
    ({"kind": "python", "target": "mine:squared"}, lambda logits: ((logits - 1) ** 2).mean()),
    (
        {"kind": "python", "target": "mine:squared", "arguments": {"power": 3}},
        lambda logits: ((logits - 1).abs() ** 3).mean(),
    ),
]


@pytest.mark.parametrize(("loss", "expected"), LOSSES, ids=["cross_entropy", "python", "python with arguments"])
def test_outputs_become_the_loss_of_the_document(
    loss: dict[str, Any], expected: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    strategy = prepared(classification(loss=loss))

    found = strategy.compute(BATCH)

    assert torch.equal(found, expected(strategy.module(BATCH["x"])))


def test_a_mean_squared_error_compares_with_the_target() -> None:
    strategy = prepared(classification(loss={"kind": "mse"}))
    target = torch.randn(8, 3)

    found = strategy.compute({"x": BATCH["x"], "target": target})

    assert torch.equal(found, F.mse_loss(strategy.module(BATCH["x"]), target))


def test_a_transformer_with_a_smoothed_loss_is_not_given_labels() -> None:
    strategy = prepared(parsed(loss={"kind": "causal_lm", "label_smoothing": 0.2}))
    ids = torch.randint(256, (2, 16))

    found = strategy.compute({"input_ids": ids, "labels": ids})

    logits = strategy.module(ids)["logits"][:, :-1].flatten(0, 1)
    assert torch.equal(found, F.cross_entropy(logits, ids[:, 1:].flatten(), label_smoothing=0.2))


@pytest.mark.parametrize(
    ("members", "pointer", "hint"),
    [
        ({"loss": None}, "/workload/loss", "returns no `loss` but a tensor of shape (8, 3)"),
        ({"model": {"kind": "python", "target": "mine:Strange"}}, "/workload/loss", "a mapping with odd"),
        ({"loss": {"kind": "python", "target": "mine:nothing"}}, "/workload/loss/target", "Classifier"),
        ({"optimizer": {"kind": "python", "target": "mine:not_an_optimizer"}}, "/workload/optimizer/target", "int"),
        ({"optimizer": {"kind": "python", "target": "mine:Plain"}}, "/workload/optimizer/arguments", "lr"),
        ({"optimizer": {"kind": "sgd", "lr": 0.1, "nesterov": True}}, "/workload/optimizer/nesterov", "momentum"),
    ],
)
def test_what_does_not_fit_the_users_code_is_named(members: dict[str, Any], pointer: str, hint: str) -> None:
    with pytest.raises(UserFault) as refused:
        prepared(classification(**members)).compute(BATCH)

    assert refused.value.pointer == pointer
    assert hint in str(refused.value)


def test_a_batch_without_anything_to_compare_with_is_refused() -> None:
    with pytest.raises(UserFault, match="needs one of labels, label"):
        prepared(classification()).compute({"x": BATCH["x"]})


@pytest.mark.parametrize("max_norm", [None, 1e-3, 1e3])
def test_clipping_is_torchs(max_norm: float | None) -> None:
    ours, theirs = prepared(classification()), prepared(classification())
    for strategy in (ours, theirs):
        strategy.backward(strategy.compute(BATCH))

    norm = ours.clip(max_norm)

    expected = nn.utils.clip_grad_norm_(theirs.module.parameters(), max_norm or 1e9)
    assert torch.equal(norm, expected)
    assert all(torch.equal(*pair) for pair in zip(gradients(ours), gradients(theirs), strict=True))


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_an_update_whose_norm_is_not_finite_is_left_out(kind: str) -> None:
    strategy = prepared(classification(optimizer={"kind": kind, "lr": 0.1}))
    before = [parameter.clone() for parameter in strategy.module.parameters()]
    strategy.backward(strategy.compute(BATCH))
    gradients(strategy)[0].fill_(torch.inf)

    norm = strategy.step(1.0, None, measured=True)

    assert norm == torch.inf
    assert all(torch.equal(*pair) for pair in zip(before, strategy.module.parameters(), strict=True))
    assert gradients(strategy) == []


@pytest.mark.parametrize(("norm", "moves"), [(1.0, True), (float("nan"), False)])
def test_a_fused_optimizer_leaves_the_update_out_by_itself(norm: float, moves: bool) -> None:
    strategy = prepared(classification())
    before = next(strategy.module.parameters()).clone()
    strategy.backward(strategy.compute(BATCH))

    told = leave_to_optimizer(strategy.optimizer, torch.tensor(norm))
    strategy.optimizer.step()

    assert told
    assert torch.equal(before, next(strategy.module.parameters())) is not moves


def test_matrices_decay_and_biases_do_not() -> None:
    optimizer = {"kind": "adamw", "lr": 0.1, "weight_decay": 0.5}
    strategy = prepared(classification(optimizer=optimizer))

    decays = [(group["weight_decay"], [p.ndim for p in group["params"]]) for group in strategy.optimizer.param_groups]

    assert decays == [(0.5, [2]), (0.0, [1])]


def test_state_of_an_optimizer_of_the_users_goes_through_a_checkpoint() -> None:
    training = classification(optimizer={"kind": "python", "target": "mine:Plain", "arguments": {"lr": 0.25}})
    strategy, again = prepared(training), prepared(training)
    for _ in range(3):
        strategy.backward(strategy.compute(BATCH))
        strategy.step(None, None, measured=False)

    again.load(strategy.state())

    assert [(group["lr"], group["steps"]) for group in again.optimizer.param_groups] == [(0.25, 3)]


def test_a_schedule_moves_the_learning_rate_of_an_optimizer_of_the_users() -> None:
    strategy = prepared(classification(optimizer={"kind": "python", "target": "mine:Plain", "arguments": {"lr": 0.4}}))

    rates = []
    for factor in (0.5, 1.0, None):
        strategy.backward(strategy.compute(BATCH))
        strategy.step(factor, None, measured=False)
        rates.append(strategy.optimizer.param_groups[0]["lr"])

    assert strategy.peak_lr == 0.4
    assert rates == [0.2, 0.4, 0.4]


@pytest.mark.parametrize("precision", ["bf16", {"parameters": "bf16", "compute": "bf16", "reduce": "fp32"}])
def test_bf16_keeps_parameters_as_the_document_says(precision: Any) -> None:
    strategy = prepared(parsed(precision=precision))
    ids = torch.randint(256, (2, 16))

    strategy.backward(strategy.compute({"input_ids": ids, "labels": ids}))

    expected = torch.float32 if precision == "bf16" else torch.bfloat16
    assert {parameter.dtype for parameter in strategy.module.parameters()} == {expected}
    assert {gradient.dtype for gradient in gradients(strategy)} == {expected}


def test_evaluation_counts_what_is_right(places: Places) -> None:
    training = classification(
        metrics=["top1", "top5", "perplexity"], evaluation={"every_steps": 1}, batch={"global_size": 5}
    )
    strategy = prepared(training)
    samples: Any = build_data(classification(), places).train
    everything = samples.take(np.arange(32), np.zeros(32, np.int64))

    values = Evaluator(samples, training, strategy.objective, Geometry(5, 5, 1), ALONE).run(strategy, lambda: None)

    logits = strategy.module(everything["x"])
    loss = F.cross_entropy(logits, everything["label"], label_smoothing=0.1).item()
    right = (logits.argmax(-1) == everything["label"]).double().mean().item()
    assert values == pytest.approx(
        {"val_loss": loss, "val_perplexity": np.exp(loss), "val_top1": right, "val_top5": 1.0}, abs=1e-6
    )
    assert strategy.module.training


def test_dropout_is_the_same_for_the_same_step_and_rank_and_no_other() -> None:
    def masks(rank: int) -> list[list[float]]:
        seed_step = step_seeder(17, Gang(rank, 2, rank, 2, 0, 1, CPU))
        found = []
        for step in (1, 2, 1):
            seed_step(step)
            found.append(F.dropout(torch.ones(64), 0.5).tolist())
        return found

    first, second, again = masks(0)

    assert first == again
    assert len({tuple(mask) for mask in (first, second, *masks(1)[:2])}) == 4


def test_every_step_has_the_seed_of_its_number_whatever_was_seeded_before() -> None:
    seed_step = step_seeder(17, Gang(3, 4, 3, 4, 0, 1, CPU))
    steps = [1, 2, 256, 257, 600, 599, 5, 10**6]

    seeds = []
    for step in steps:
        seed_step(step)
        seeds.append(torch.initial_seed())

    assert seeds == [mix(mix(17, 3), step) % 2**63 for step in steps]


def gradients(strategy: TorchStrategy) -> list[torch.Tensor]:
    return [parameter.grad for parameter in strategy.module.parameters() if parameter.grad is not None]
