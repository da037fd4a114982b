"""Trainings of adapters with real ranks: exact resume, under another strategy too, and never onto another base."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from shunter_trainer.checkpoint.load import contents
from support.ranks import Ranks
from support.toy_models import save_toy
from support.trainings import document

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(300)]

MEMBERS: dict[str, Any] = {
    "model": {"kind": "huggingface", "weights": "input:base"},
    "adapter": {"kind": "lora", "rank": 4, "alpha": 8, "dropout": 0.1, "targets": ["q_proj", "v_proj"]},
    "data": {"kind": "sample", "sequence_length": 32, "validation": {"kind": "sample", "sequence_length": 32}},
    "evaluation": {"every_steps": 8, "batches": 2},
    "precision": "bf16",
    "export": {"weights": "adapter"},
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """The training on two ranks, ended."""
    folder = tmp_path_factory.mktemp("pair")
    save_toy("llama", folder / "inputs" / "base")
    ranks = Ranks(folder, document(**MEMBERS), 2)
    try:
        assert ranks.end() == [0, 0], ranks.stderr()
        yield ranks
    finally:
        ranks.close()


@pytest.fixture
def inputs(pair: Ranks, tmp_path: Path) -> Path:
    """The base of the training, for another gang called "gang"."""
    shutil.copytree(pair.folder / "inputs", tmp_path / "gang" / "inputs")
    return tmp_path / "gang" / "inputs"


def resumed(pair: Ranks, start_ranks: Any, strategy: dict[str, Any], world_size: int = 2) -> Ranks:
    folder = str(pair.checkpoints / "step-00000004")
    ranks: Ranks = start_ranks({**document(**MEMBERS), "strategy": strategy}, world_size, SHUNTER_RESUME_DIR=folder)
    return ranks


def test_going_on_from_an_adapter_gives_bitwise_the_same_losses(pair: Ranks, inputs: Path, start_ranks: Any) -> None:
    again = resumed(pair, start_ranks, {"kind": "ddp"})

    assert again.end() == [0, 0], again.stderr()

    whole = pair.values("loss")
    assert again.values("loss") == {step: whole[step] for step in range(5, 9)}
    assert pair.values("val_loss").keys() == {8}


def test_an_adapter_goes_on_under_fsdp_with_frozen_weights_of_another_type(
    pair: Ranks, inputs: Path, start_ranks: Any
) -> None:
    again = resumed(pair, start_ranks, {"kind": "fsdp"})

    assert again.end() == [0, 0], again.stderr()

    whole = pair.values("loss")
    assert again.values("loss") == pytest.approx({step: whole[step] for step in range(5, 9)}, rel=5e-3)
    ours, theirs = (load_file(ranks.output / "adapter_model.safetensors") for ranks in (again, pair))
    assert ours.keys() == theirs.keys()
    assert {value.shape for value in ours.values()} == {value.shape for value in theirs.values()}


def test_an_adapter_goes_on_in_two_groups_under_hsdp(pair: Ranks, inputs: Path, start_ranks: Any) -> None:
    again = resumed(pair, start_ranks, {"kind": "hsdp", "shard_size": 2}, 4)

    assert again.end() == [0] * 4, again.stderr()

    whole = pair.values("loss")
    # Four ranks drop other values out than two.
    assert again.values("loss") == pytest.approx({step: whole[step] for step in range(5, 9)}, rel=0.02)


def test_a_checkpoint_holds_the_adapter_alone(pair: Ranks) -> None:
    folder = pair.checkpoints / "step-00000004"

    names = contents(folder)

    assert all(".lora_" in name for name in names if name.startswith(("model.", "optimizer.")))
    assert sum(name.startswith("model.") for name in names) == 2 * 2 * 2


def test_an_adapter_does_not_go_on_upon_another_base(pair: Ranks, inputs: Path, start_ranks: Any) -> None:
    save_toy("llama", inputs / "base", seed=2)
    folder = str(pair.checkpoints / "step-00000004")

    other = start_ranks(document(**MEMBERS), 1, SHUNTER_RESUME_DIR=folder)

    assert other.end() == [1]
    failure = other.failure()
    assert failure is not None
    assert failure["reason"] == "user_error"
    assert "step-00000004 holds an adapter of another base" in failure["message"]
    assert "/workload/model/weights" in failure["message"]
