"""Whole trainings with real ranks: parity, exact resume, checkpoints, export, metrics."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from shunter_trainer.checkpoint.load import read_into
from shunter_trainer.checkpoint.manifest import read_manifest, verify
from shunter_trainer.optim.schedules import schedule_factor
from shunter_trainer.places import Places
from support.ranks import Ranks
from support.trainings import bare_losses, document, parsed, whole_model

pytestmark = pytest.mark.trainer

FP32_TOLERANCE = 5e-6
BF16_TOLERANCE = 5e-3
MEMBERS: dict[str, Any] = {
    # Nine samples: in the second micro-batch of two ranks, one of them has nothing left.
    "data": {"kind": "sample", "sequence_length": 32, "validation": {"kind": "synthetic", "samples": 9}},
    "evaluation": {"every_steps": 4},
}


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """The training on one rank, ended."""
    yield from ended(tmp_path_factory.mktemp("single"), 1)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """The same on two."""
    yield from ended(tmp_path_factory.mktemp("pair"), 2)


def ended(folder: Path, world_size: int) -> Iterator[Ranks]:
    ranks = Ranks(folder, document(**MEMBERS), world_size)
    try:
        assert ranks.end() == [0] * world_size, ranks.stderr()
        yield ranks
    finally:
        ranks.close()


@pytest.mark.parametrize("gang", ["single", "pair"])
def test_the_losses_are_those_of_a_hand_written_loop(request: pytest.FixtureRequest, gang: str, places: Places) -> None:
    ranks: Ranks = request.getfixturevalue(gang)
    training = parsed(**MEMBERS)
    factor = schedule_factor(training.schedule, 8)

    expected = bare_losses(training, places, [factor(step) if factor else 1.0 for step in range(1, 9)])

    assert list(ranks.values("loss").values()) == pytest.approx(expected, abs=FP32_TOLERANCE)
    assert expected[-1] < expected[0] - 1.0


def test_evaluation_gives_the_same_on_one_rank_and_on_two(single: Ranks, pair: Ranks) -> None:
    alone, together = single.values("val_loss"), pair.values("val_loss")

    assert list(alone) == [4, 8]
    assert alone == pytest.approx(together, abs=FP32_TOLERANCE)


def test_going_on_from_a_checkpoint_gives_bitwise_the_same_losses(pair: Ranks, start_ranks: Any) -> None:
    resumed = start_ranks(document(**MEMBERS), 2, SHUNTER_RESUME_DIR=str(pair.checkpoints / "step-00000004"))

    assert resumed.end() == [0, 0], resumed.stderr()

    whole = pair.values("loss")
    assert resumed.values("loss") == {step: whole[step] for step in range(5, 9)}


@pytest.mark.parametrize(("saved_by", "world_size"), [("single", 2), ("pair", 1)])
def test_a_checkpoint_is_read_by_another_number_of_ranks(
    request: pytest.FixtureRequest, start_ranks: Any, saved_by: str, world_size: int
) -> None:
    ranks: Ranks = request.getfixturevalue(saved_by)
    resumed = start_ranks(document(**MEMBERS), world_size, SHUNTER_RESUME_DIR=str(ranks.checkpoints / "step-00000004"))

    assert resumed.end() == [0] * world_size, resumed.stderr()

    whole = ranks.values("loss")
    assert resumed.values("loss") == pytest.approx({step: whole[step] for step in range(5, 9)}, abs=FP32_TOLERANCE)


@pytest.mark.slow
def test_four_ranks_give_the_losses_of_two_and_go_on_from_their_checkpoint(pair: Ranks, start_ranks: Any) -> None:
    four = start_ranks(document(**MEMBERS), 4, name="four")
    resumed = start_ranks(
        document(**MEMBERS), 4, name="resumed", SHUNTER_RESUME_DIR=str(pair.checkpoints / "step-00000004")
    )

    assert four.end() == resumed.end() == [0] * 4, four.stderr() + resumed.stderr()

    whole = pair.values("loss")
    assert four.values("loss") == pytest.approx(whole, abs=FP32_TOLERANCE)
    assert resumed.values("loss") == pytest.approx({step: whole[step] for step in range(5, 9)}, abs=FP32_TOLERANCE)


@pytest.mark.slow
def test_the_parts_of_two_nodes_laid_together_are_the_checkpoint(pair: Ranks, start_ranks: Any, tmp_path: Path) -> None:
    nodes = start_ranks(document(**MEMBERS), 2, name="nodes", nodes=2)
    assert nodes.end() == [0, 0], nodes.stderr()
    parts = [Path(f"{nodes.checkpoints}{suffix}") / "step-00000004" for suffix in ("", "-1")]
    manifests = [(part / "manifest.json").read_bytes() for part in parts]
    for part in parts:
        shutil.copytree(part, tmp_path / "together", dirs_exist_ok=True)

    resumed = start_ranks(document(**MEMBERS), 1, SHUNTER_RESUME_DIR=str(tmp_path / "together"))

    assert resumed.end() == [0], resumed.stderr()
    whole = pair.values("loss")
    assert resumed.values("loss") == pytest.approx({step: whole[step] for step in range(5, 9)}, abs=FP32_TOLERANCE)
    assert manifests[0] == manifests[1]
    assert [(part / ".metadata").exists() for part in parts] == [True, False]


def test_every_metric_line_holds_what_the_agent_reads(pair: Ranks) -> None:
    up, *points = pair.lines(0)

    assert up == {"event": "up"}
    assert [line["step"] for line in points] == list(range(1, 9))
    names = {"loss", "lr", "grad_norm", "step_time_s", "samples_per_s", "tokens_per_s", "total_steps", "eta_s", "at"}
    assert all(names <= line.keys() for line in points)
    assert all(isinstance(value, int | float) for line in points for value in line.values())
    assert {line["total_steps"] for line in points} == {8}
    assert pair.values("lr")[8] == pytest.approx(0.001)
    assert pair.values("val_perplexity").keys() == {4, 8}


def test_only_rank_0_speaks_of_the_training(pair: Ranks) -> None:
    assert pair.lines(1) == [{"event": "up"}]
    assert (pair.folder / "stdout-1").read_text() == ""
    assert "step 8/8" in (pair.folder / "stdout-0").read_text()
    assert [pair.stderr(rank) for rank in (0, 1)] == ["", ""]


def test_a_checkpoint_is_whole_and_says_what_it_is(pair: Ranks) -> None:
    assert pair.whole() == ["step-00000004", "step-00000008"]

    for step, folder in ((4, "step-00000004"), (8, "step-00000008")):
        verify(pair.checkpoints / folder)
        manifest = read_manifest(pair.checkpoints / folder)
        files = {entry["path"] for entry in manifest["files"]}
        assert manifest["step"] == step
        assert manifest["values"] == pytest.approx(
            {"loss": pair.values("loss")[step], "val_loss": pair.values("val_loss")[step]}
            | {"val_perplexity": pair.values("val_perplexity")[step]}
        )
        assert files == {"__0_0.distcp", "__1_0.distcp", ".metadata", "trainer.json"}
    assert list(pair.checkpoints.glob(".tmp-*")) == []


def test_the_exported_model_loads_back_and_is_the_trained_one(pair: Ranks, places: Places) -> None:
    config = json.loads((pair.output / "config.json").read_text())
    model = whole_model(parsed())
    model.load_state_dict(load_file(pair.output / "model.safetensors"))
    trained = whole_model(parsed())
    trained.load_state_dict(checkpointed_weights(pair.checkpoints / "step-00000008", trained))
    ids = torch.randint(256, (2, 32))

    assert torch.equal(model(ids)["logits"], trained(ids)["logits"])
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["num_key_value_heads"], config["vocab_size"], config["torch_dtype"]) == (2, 256, "float32")


@pytest.mark.parametrize("static_graph", [False, True])
def test_accumulation_does_not_change_the_training(pair: Ranks, start_ranks: Any, static_graph: bool) -> None:
    batch = {"global_size": 8, "micro_size": 1}
    strategy = {"kind": "ddp", "static_graph": static_graph, "bucket_mb": 0.05}
    accumulated = start_ranks({**document(**MEMBERS, batch=batch), "strategy": strategy}, 2)

    assert accumulated.end() == [0, 0], accumulated.stderr()

    assert accumulated.values("loss") == pytest.approx(pair.values("loss"), abs=FP32_TOLERANCE)
    assert accumulated.values("grad_norm") == pytest.approx(pair.values("grad_norm"), abs=FP32_TOLERANCE)


def test_bf16_stays_close_to_fp32(single: Ranks, start_ranks: Any) -> None:
    rounded = start_ranks(document(**MEMBERS, precision="bf16", activation_checkpointing="full"))

    assert rounded.end() == [0], rounded.stderr()

    assert rounded.values("loss") == pytest.approx(single.values("loss"), rel=BF16_TOLERANCE)
    assert rounded.values("loss") != single.values("loss")


def checkpointed_weights(folder: Path, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    state = {f"model.{name}": torch.empty_like(value) for name, value in model.state_dict().items()}
    read_into(state, folder)
    return {name.removeprefix("model."): value for name, value in state.items()}
