"""What DeepSpeed brings of its own: offload, its optimizers and schedulers, its loss scale, without a compiler."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.gangs import Trained, Training, checkpoint_of, train_all
from support.trainings import TINY, document

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(300)]

FP32_TOLERANCE = 5e-6
BF16_TOLERANCE = 5e-3
BATCH = {"global_size": 8, "micro_size": 2}
ADAMW = {"type": "AdamW", "params": {"lr": 0.002, "betas": [0.9, 0.95], "weight_decay": 0.1}}
WARMUP = {"type": "WarmupLR", "params": {"warmup_max_lr": 0.002, "warmup_num_steps": 4, "warmup_type": "linear"}}
OFFLOADED: dict[str, Any] = {"offload_optimizer": "cpu"}
TIED = {"model": {**TINY, "tied_embeddings": True}}
GROWING = {"fp16": {"initial_scale_power": 4, "loss_scale_window": 2}}
SGD = {"optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9}, "schedule": {"kind": "constant"}}


def training(name: str, stage: int | None = None, resume: Path | None = None, **options: Any) -> Training:
    """Eight steps on two ranks, under ddp without a stage. `members` are the workload's, the rest the strategy's."""
    members = {
        "optimizer": {"kind": "adamw", "lr": 0.002, "betas": [0.9, 0.95], "weight_decay": 0.1},
        "batch": BATCH,
        **options.pop("members", {}),
    }
    strategy = {"kind": "ddp"} if stage is None else {"kind": "deepspeed", "zero_stage": stage, **options}
    return Training(name, {**document(**members), "strategy": strategy}, resume)


def own_words(name: str, stage: int, optimizer: Mapping[str, Any], resume: Path | None = None) -> Training:
    """The optimizer and the schedule are DeepSpeed's."""
    made = training(name, stage, resume, config={"optimizer": optimizer, "scheduler": WARMUP})
    workload = {key: value for key, value in made.document["workload"].items() if key not in ("optimizer", "schedule")}
    return Training(name, {**made.document, "workload": workload}, resume)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Trained]:
    folder = tmp_path_factory.mktemp("deepspeed")
    low = [
        training(f"{precision} {name}", stage, members={"precision": precision})
        for precision in ("bf16", "fp16")
        for name, stage in (("ddp", None), ("0", 0), ("1", 1), ("2", 2), ("3", 3))
    ]
    plan = [
        training("ddp"),
        training("offloaded 1", 1, **OFFLOADED),
        training("offloaded 2", 2, **OFFLOADED),
        training("offloaded 3", 3, **OFFLOADED, offload_parameters="cpu"),
        training("tied ddp", members=TIED),
        training("tied 2", 2, members=TIED),
        training("tied 3", 3, members=TIED),
        training("sgd ddp", members=SGD),
        training("sgd 1", 1, members=SGD),
        training("sgd 3", 3, members=SGD),
        *(own_words(f"own words {stage}", stage, ADAMW) for stage in range(4)),
        own_words("own words 1, then 3", 3, ADAMW, checkpoint_of(folder / "own words 1", 4)),
        own_words("own words 3, then 0", 0, ADAMW, checkpoint_of(folder / "own words 3", 4)),
        *(own_words(f"lion {stage}", stage, {"type": "Lion", "params": {"lr": 0.001}}) for stage in (0, 2, 3)),
        *low,
        training("bf16 1, then 3", 3, checkpoint_of(folder / "bf16 1", 4), members={"precision": "bf16"}),
        training("bf16 3, then ddp", None, checkpoint_of(folder / "bf16 3", 4), members={"precision": "bf16"}),
        training("bf16 2, again", 2, checkpoint_of(folder / "bf16 2", 4), members={"precision": "bf16"}),
        *(training(f"growing {stage}", stage, members={"precision": "fp16"}, config=GROWING) for stage in (2, 3)),
        training("fp16 2, then 3", 3, checkpoint_of(folder / "fp16 2", 4), members={"precision": "fp16"}),
    ]
    return train_all(folder, 2, plan, timeout_s=280.0)


def apart(first: Trained, second: Trained) -> float:
    """The largest difference of the losses at the steps that both have."""
    shared = first.losses.keys() & second.losses.keys()
    assert shared
    return max(abs(first.losses[step] - second.losses[step]) for step in shared)


@pytest.mark.parametrize(
    ("reference", "names"),
    [
        ("ddp", ["offloaded 1", "offloaded 2", "offloaded 3"]),
        ("tied ddp", ["tied 2", "tied 3"]),
        ("sgd ddp", ["sgd 1", "sgd 3"]),
        ("own words 0", ["own words 1", "own words 2", "own words 3", "own words 1, then 3", "own words 3, then 0"]),
        ("lion 0", ["lion 2", "lion 3"]),
    ],
)
def test_every_stage_learns_the_same_in_fp32(trained: Mapping[str, Trained], reference: str, names: list[str]) -> None:
    found = {name: apart(trained[reference], trained[name]) for name in names}

    assert max(found.values()) <= FP32_TOLERANCE, found
    assert trained[reference].losses[8] < trained[reference].losses[1]


def test_a_scheduler_of_deepspeeds_keeps_its_meaning_and_its_place(trained: Mapping[str, Trained]) -> None:
    # DeepSpeed counts from 0 and moves the rate after each step.
    expected = {1: 0.0, 2: 0.0005, 3: 0.001, 4: 0.0015, 5: 0.002, 6: 0.002, 7: 0.002, 8: 0.002}

    whole, resumed = (trained[name].values("lr") for name in ("own words 1", "own words 1, then 3"))

    assert whole == pytest.approx(expected)
    assert resumed == {step: whole[step] for step in (5, 6, 7, 8)}


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_is_the_same_within_its_precision(trained: Mapping[str, Trained], precision: str) -> None:
    found = {stage: apart(trained[f"{precision} ddp"], trained[f"{precision} {stage}"]) for stage in range(4)}

    assert max(found.values()) <= BF16_TOLERANCE, found
    assert found[0] <= FP32_TOLERANCE


@pytest.mark.parametrize("stage", [2, 3])
def test_the_norm_is_told_without_the_scale_also_when_the_scale_has_grown(
    trained: Mapping[str, Trained], stage: int
) -> None:
    norms = trained[f"growing {stage}"].values("grad_norm")

    assert norms == pytest.approx(trained["fp16 ddp"].values("grad_norm"), rel=0.05)
    assert len(set(trained[f"growing {stage}"].values("loss_scale").values())) > 1


@pytest.mark.parametrize(
    ("whole", "resumed"),
    [
        ("bf16 1", "bf16 1, then 3"),
        ("bf16 3", "bf16 3, then ddp"),
        ("bf16 2", "bf16 2, again"),
        ("fp16 2", "fp16 2, then 3"),
    ],
)
def test_master_weights_and_the_loss_scale_go_on_elsewhere(
    trained: Mapping[str, Trained], whole: str, resumed: str
) -> None:
    assert list(trained[resumed].losses) == [5, 6, 7, 8]
    assert apart(trained[whole], trained[resumed]) <= (0.0 if "again" in resumed else BF16_TOLERANCE)


def test_checkpoints_of_low_precision_hold_master_weights(trained: Mapping[str, Trained]) -> None:
    from shunter_trainer.checkpoint.load import contents

    stored = contents(trained["bf16 3"].checkpoint(8))

    types = {str(form[1]) for form in stored.values() if form is not None}
    assert types == {"torch.float32"}


def test_a_loss_scale_that_falls_to_its_minimum_ends_the_training_with_the_way_out(start_ranks: Any) -> None:
    members = {
        "precision": "fp16",
        "optimizer": {"kind": "sgd", "lr": 1e9},
        "schedule": {"kind": "constant"},
        "gradient_clip_norm": None,
        "duration": {"steps": 60},
    }
    config = {"fp16": {"initial_scale_power": 3, "hysteresis": 1}}
    strategy = {"kind": "deepspeed", "zero_stage": 2, "config": config}

    ranks = start_ranks({**document(**members), "strategy": strategy}, 1)

    assert ranks.end() == [1]
    failure = ranks.failure()
    assert failure["reason"] == "non_finite_loss"
    assert "bf16" in failure["message"]


def test_no_compiler_is_needed(start_ranks: Any, tmp_path: Path) -> None:
    strategy = {"kind": "deepspeed", "zero_stage": 3, "offload_optimizer": "cpu", "offload_parameters": "cpu"}
    program = {**document(duration={"steps": 1}), "strategy": strategy}

    ranks = start_ranks(
        program, 1, CXX="/nonexistent", PATH=str(tmp_path), TORCH_EXTENSIONS_DIR=str(tmp_path / "built")
    )

    assert ranks.end() == [0], ranks.stderr()
    assert not (tmp_path / "built").exists()
