"""What a document may ask for beside its strategy works under every strategy."""

from collections.abc import Mapping
from typing import Any

import pytest
from support.gangs import Trained, Training, train_all
from support.strategies import ALL, strategy
from support.trainings import document

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(600)]

VECTORS = {
    "kind": "synthetic",
    "samples": 64,
    "fields": {"x": {"shape": [8], "dtype": "float32"}, "label": {"shape": [], "dtype": "int64", "high": 4}},
}
NORMED: dict[str, Any] = {
    "model": {"kind": "python", "target": "support.batch_norms:Normed"},
    "data": {**VECTORS, "validation": VECTORS},
    "loss": {"kind": "cross_entropy"},
    "evaluation": {"every_steps": 4},
}
FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "fp16": {"precision": "fp16"},
    "sgd": {"optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9}},
    "python": {"optimizer": {"kind": "python", "target": "torch.optim:Adamax", "arguments": {"lr": 0.01}}},
    "selective": {"activation_checkpointing": "selective"},
    "full": {"activation_checkpointing": "full"},
    "batch norms": NORMED,
    "batch norms in bf16": {**NORMED, "precision": "bf16"},
    "ending early": {
        "duration": {"steps": 40},
        "evaluation": {"every_steps": 2, "batches": 1, "early_stopping": {"patience": 1, "min_delta": 0.5}},
    },
}
TOLERANCE = {"fp16": 5e-3, "batch norms in bf16": 5e-3}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Trained]:
    """Every feature under every strategy, on two ranks."""
    trainings = [
        Training(f"{feature} {name}", {**document(**members), "strategy": strategy(name, 2)})
        for feature, members in FEATURES.items()
        for name in ALL
    ]
    return train_all(tmp_path_factory.mktemp("features"), 2, trainings, timeout_s=500.0)


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("name", ALL)
def test_a_feature_trains_alike_under_every_strategy(trained: Mapping[str, Trained], feature: str, name: str) -> None:
    expected, found = trained[f"{feature} ddp"].losses, trained[f"{feature} {name}"].losses

    assert found == pytest.approx(expected, abs=TOLERANCE.get(feature, 5e-6))
    assert len(found) == (8 if feature != "ending early" else max(expected)) < 40


@pytest.mark.parametrize("kind", ["selective", "full"])
def test_recomputing_changes_no_loss(trained: Mapping[str, Trained], kind: str) -> None:
    assert trained[f"{kind} ddp"].losses == trained["plain ddp"].losses


@pytest.mark.parametrize("name", ALL)
def test_every_rank_evaluates_with_the_running_means_that_are_exported(
    trained: Mapping[str, Trained], name: str
) -> None:
    expected, found = (trained[f"batch norms {kind}"].values("val_loss") for kind in ("ddp", name))

    assert found == pytest.approx(expected, abs=5e-6)
    assert list(found) == [4, 8]


@pytest.mark.parametrize("name", ALL)
def test_fp16_says_its_loss_scale(trained: Mapping[str, Trained], name: str) -> None:
    scales = trained[f"fp16 {name}"].values("loss_scale")

    assert all(2**8 <= scale <= 2**16 for scale in scales.values())
    assert len(scales) == 8
