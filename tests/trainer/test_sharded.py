"""What splitting a training over ranks promises besides equal losses: memory, and a checkpoint that is written once."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from shunter_schemas.strategies import HsdpStrategy
from shunter_trainer.checkpoint.load import contents
from shunter_trainer.checkpoint.manifest import read_manifest, verify
from shunter_trainer.failures import UserFault
from shunter_trainer.gang import Gang
from shunter_trainer.strategies.sharded import check_resharding, group_size
from support.gangs import Trained, Training, checkpoint_of, train_all
from support.trainings import TINY, document

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(300)]

MODEL = {**TINY, "layers": 6, "hidden": 64, "ffn": 160}
BLOCK = 4 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 160 + 2 * 64)
ROOT = 4 * (2 * 256 * 64 + 64) + 4 * 2 * 32 * 16
WHOLE = 6 * BLOCK + ROOT
CPU = torch.device("cpu")
SLACK = 64 * 1024
HSDP = {"kind": "hsdp", "shard_size": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Trained]:
    """A training that stops after four steps under ddp, and the same that goes on sharded, and as hsdp in groups."""
    folder = tmp_path_factory.mktemp("sharded")
    members: dict[str, Any] = {"model": MODEL, "duration": {"steps": 4}, "evaluation": {"every_steps": 2, "batches": 1}}
    start = checkpoint_of(folder / "ddp", 2)
    plan = [
        Training("ddp", {**document(**members, checkpoint={"every_steps": 2})}),
        Training("fsdp", {**document(**members), "strategy": {"kind": "fsdp"}}, start, probe=True),
        Training("hsdp", {**document(**members), "strategy": HSDP}, start),
    ]
    return train_all(folder, 4, plan, timeout_s=200.0)


def test_no_rank_ever_holds_more_than_one_unit_beside_its_shards(trained: Mapping[str, Trained]) -> None:
    for rank in range(4):
        peaks = json.loads((trained["fsdp"].folder / f"memory-{rank}.json").read_text())

        assert peaks["fill"] <= WHOLE / 4 + max(BLOCK, ROOT) + SLACK
        assert peaks["fill"] < WHOLE / 2


def test_reading_the_checkpoint_of_another_strategy_needs_no_more_than_one_unit_above_the_shards(
    trained: Mapping[str, Trained],
) -> None:
    for rank in range(4):
        peaks = json.loads((trained["fsdp"].folder / f"memory-{rank}.json").read_text())

        # Parameters and both of AdamW's moments.
        assert WHOLE / 4 < peaks["load"] <= 3 * WHOLE / 4 + max(BLOCK, ROOT) + SLACK


def test_evaluation_gives_the_same_under_every_strategy(trained: Mapping[str, Trained]) -> None:
    expected = trained["ddp"].values("val_loss")[4]

    assert trained["fsdp"].values("val_loss")[4] == pytest.approx(expected, abs=5e-6)
    assert trained["hsdp"].values("val_loss")[4] == pytest.approx(expected, abs=5e-6)


def test_every_strategy_writes_each_number_once(trained: Mapping[str, Trained]) -> None:
    sizes = {}
    for name in ("ddp", "fsdp", "hsdp"):
        folder = trained[name].checkpoint(4)
        verify(folder)
        files = [entry for entry in read_manifest(folder)["files"] if entry["path"].endswith(".distcp")]
        sizes[name] = sum(entry["size"] for entry in files)

        # Four ranks share the writing.
        assert len(files) == 4
        assert max(entry["size"] for entry in files) < 0.4 * sizes[name]
        assert contents(folder).keys() == contents(trained["ddp"].checkpoint(4)).keys()
    assert min(sizes.values()) >= 3 * WHOLE
    assert max(sizes.values()) < 1.25 * min(sizes.values())


def test_the_export_of_every_strategy_is_the_same(trained: Mapping[str, Trained]) -> None:
    from safetensors.torch import load_file

    weights = {name: load_file(trained[name].folder / "output" / "model.safetensors") for name in trained}

    for name in ("fsdp", "hsdp"):
        assert weights[name].keys() == weights["ddp"].keys()
        for parameter, value in weights["ddp"].items():
            assert torch.allclose(weights[name][parameter], value, atol=1e-4), parameter


def test_groups_that_do_not_divide_are_refused_on_the_node_too() -> None:
    pair, nodes = Gang(0, 2, 0, 2, 0, 1, CPU), Gang(0, 6, 0, 3, 0, 2, CPU)

    assert group_size(HsdpStrategy(kind="hsdp", shard_size=2), pair) == 2
    assert group_size(HsdpStrategy(kind="hsdp"), nodes) == 3
    with pytest.raises(UserFault, match=r"^/strategy/shard_size: the gang's 2 ranks do not divide into groups of 3$"):
        group_size(HsdpStrategy(kind="hsdp", shard_size=3), pair)
    with pytest.raises(UserFault, match=r"^/strategy/reshard_after_forward: 3 does not divide the 4 ranks over which"):
        check_resharding(3, 4)
    check_resharding(2, 4)
