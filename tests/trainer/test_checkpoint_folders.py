"""Folders of checkpoints: whole or not there, verified, pruned, and divided among ranks."""

import errno
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from shunter_trainer.checkpoint.load import find_checkpoint
from shunter_trainer.checkpoint.manifest import commit, describe, read_manifest, sweep, verify, whole_checkpoints
from shunter_trainer.checkpoint.prune import prune
from shunter_trainer.checkpoint.save import fault_of_others, own_share
from shunter_trainer.failures import CheckpointFault, PeerDiskFull, PeerLost
from shunter_trainer.gang import Gang
from support import killed_saves


def make(root: Path, step: int, content: bytes = b"content", **values: float) -> Path:
    temporary = root / f".tmp-step-{step}"
    temporary.mkdir(parents=True)
    (temporary / "data").write_bytes(content)
    return commit(temporary, root, step, values, describe(temporary, ["data"]))


def test_a_checkpoint_appears_whole(tmp_path: Path) -> None:
    folder = make(tmp_path, 7, val_loss=1.5, broken=float("nan"))

    verify(folder)
    assert folder.name == "step-00000007"
    assert read_manifest(folder)["values"] == {"val_loss": 1.5}
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-00000007"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "data").write_bytes(b"contenT"), "data was changed"),
        (lambda folder: (folder / "data").write_bytes(b"cont"), "data has 4 bytes, not 7 bytes"),
        (lambda folder: (folder / "data").unlink(), "data is missing"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "no readable manifest"),
        (lambda folder: (folder / "manifest.json").write_text('{"format": "other/1"}'), "has format 'other/1'"),
    ],
    ids=["changed", "cut", "missing", "no manifest", "another format"],
)
def test_damage_is_found_and_named(tmp_path: Path, damage: Any, message: str) -> None:
    folder = make(tmp_path, 7)
    damage(folder)

    with pytest.raises(CheckpointFault, match=message):
        verify(folder)


def test_of_ranks_that_could_not_write_the_one_without_room_is_blamed() -> None:
    broken, full = OSError(errno.EIO, "broken"), OSError(errno.ENOSPC, "No space left on device")

    lost, blamed = fault_of_others({1: broken}), fault_of_others({1: broken, 3: full})

    assert isinstance(lost, PeerLost)
    assert isinstance(blamed, PeerDiskFull)
    assert (blamed.reason, blamed.rank) == ("disk_full", 3)
    assert str(blamed) == f"rank 3 could not write its part of a checkpoint ({full})"


def test_what_has_no_manifest_is_no_checkpoint(tmp_path: Path) -> None:
    make(tmp_path, 3)
    (tmp_path / "step-00000009").mkdir()
    (tmp_path / ".tmp-step-00000012-1").mkdir()

    assert [step for step, _ in whole_checkpoints(tmp_path)] == [3]
    assert find_checkpoint(tmp_path).name == "step-00000003"
    assert find_checkpoint(tmp_path / "step-00000003").name == "step-00000003"


def test_a_folder_without_checkpoints_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointFault, match="holds no whole checkpoint"):
        find_checkpoint(tmp_path)


def test_a_step_that_an_earlier_generation_left_is_replaced(tmp_path: Path) -> None:
    make(tmp_path, 5, b"old")

    folder = make(tmp_path, 5, b"new")

    assert (folder / "data").read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-00000005"]


def test_sweeping_removes_what_is_unfinished_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    make(root, 1)
    (root / ".tmp-step-00000002-1").mkdir()

    sweep(root)

    assert [entry.name for entry in root.iterdir()] == ["step-00000001"]


@pytest.mark.parametrize(
    ("keep", "best_by", "kept"),
    [
        (2, None, [30, 40]),
        (2, "val_loss", [10, 30, 40]),
        (1, "val_loss", [10, 40]),
        (2, "unmeasured", [30, 40]),
        (9, None, [10, 20, 30, 40]),
    ],
)
def test_the_newest_and_the_best_are_kept(tmp_path: Path, keep: int, best_by: str | None, kept: list[int]) -> None:
    for step, value in ((10, 1.0), (20, 3.0), (30, 2.0), (40, 4.0)):
        make(tmp_path, step, val_loss=value)

    prune(tmp_path, 40, keep, best_by)

    assert [step for step, _ in whole_checkpoints(tmp_path)] == kept


def test_steps_ahead_of_this_run_are_left_alone(tmp_path: Path) -> None:
    for step in (10, 20, 90):
        make(tmp_path, step)

    prune(tmp_path, 20, keep=1, best_by=None)

    assert [step for step, _ in whole_checkpoints(tmp_path)] == [20, 90]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_save_that_is_killed_at_any_moment_leaves_the_last_checkpoint_whole(tmp_path: Path) -> None:
    program = Path(killed_saves.__file__)

    run = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, timeout=110, check=False
    )

    assert run.returncode == 0, run.stderr
    *killed, complete = json.loads(run.stdout)
    assert len(killed) >= 10
    assert {outcome["ended"] for outcome in killed} == {-signal.SIGKILL}
    assert complete["ended"] == 0
    assert complete["whole"] == [2, 3]
    for outcome in killed:
        assert outcome["whole"] in ([1, 2], [1, 2, 3], [2, 3])
        assert outcome["left"] == [f"step-{step:08d}" for step in outcome["whole"]]


def test_ranks_divide_what_all_of_them_hold(tmp_path: Path) -> None:
    state: dict[str, Any] = {f"model.{i}": torch.full((i + 1,), float(i)) for i in range(20)}
    state |= {f"optimizer.{i}.exp_avg": torch.zeros(i + 1) for i in range(20)}
    state["buffer.running_mean"] = torch.zeros(1000)
    state["optimizer_groups"] = "[]"

    shares = [own_share(state, gang(rank, 3)) for rank in range(3)]

    names = [name for share in shares for name in share]
    sizes = [
        sum(
            value.numel()
            for name, value in share.items()
            if name.startswith(("model", "opt")) and isinstance(value, torch.Tensor)
        )
        for share in shares
    ]
    assert sorted(names) == sorted(state)
    assert "buffer.running_mean" in shares[0]
    assert "optimizer_groups" in shares[0]
    assert max(sizes[1:]) - min(sizes[1:]) <= 20


def test_a_share_is_a_copy(tmp_path: Path) -> None:
    weight = torch.zeros(3)

    share = own_share({"model.weight": weight}, gang(0, 1))
    weight += 1

    assert share["model.weight"].tolist() == [0, 0, 0]


def gang(rank: int, world_size: int) -> Gang:
    return Gang(rank, world_size, rank, world_size, 0, 1, torch.device("cpu"))
