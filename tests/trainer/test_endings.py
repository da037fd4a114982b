"""How ranks end when something goes wrong, or when they are asked to."""

import signal
from pathlib import Path
from typing import Any

import pytest
from shunter_trainer.checkpoint.manifest import verify
from support.ranks import Ranks
from support.trainings import TINY, document
from support.waiting import wait_until

pytestmark = pytest.mark.trainer

MODELS = """
import os
import torch
from torch import nn

class Linear(nn.Module):
    def __init__(self, bad_step=None, raises=None, only_rank=None, dies_at_save=None):
        super().__init__()
        self.dies = dies_at_save is not None and dies_at_save == int(os.environ["RANK"])
        self.layer = nn.Linear(4, 4)
        self.raises, self.step = raises, 0
        self.bad_step = bad_step if only_rank in (None, int(os.environ["RANK"])) else None

    def forward(self, x):
        self.step += 1
        if self.bad_step is None or self.step < self.bad_step:
            return {"loss": self.layer(x).square().mean()}
        if self.raises == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        if self.raises == "value":
            raise ValueError("my own mistake")
        return {"loss": self.layer(x).sum() * float("nan")}

    def state_dict(self, *args, **kwargs):
        if self.dies and self.step:
            os.kill(os.getpid(), 9)
        return super().state_dict(*args, **kwargs)

def not_a_module():
    return "a string"
"""


def linear(**arguments: Any) -> dict[str, Any]:
    return document(
        model={"kind": "python", "target": "models:Linear", "arguments": arguments},
        data={"kind": "synthetic", "samples": 64, "fields": {"x": {"shape": [4], "dtype": "float32"}}},
        duration={"steps": 1000},
        checkpoint={"every_steps": 10, "keep": 2},
    )


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """The source folder of the gang called `gang`, with a model of the user's in it."""
    source = tmp_path / "gang" / "source"
    source.mkdir(parents=True)
    (source / "models.py").write_text(MODELS)
    return source


def test_a_model_of_the_users_is_trained_and_exported_under_its_own_names(models: Path, start_ranks: Any) -> None:
    from safetensors.torch import load_file

    (models / "queue.py").write_text("raise RuntimeError('not the standard library')")
    ranks: Ranks = start_ranks({**linear(), "workload": {**linear()["workload"], "duration": {"steps": 20}}})

    assert ranks.end() == [0], ranks.stderr()

    assert ranks.values("loss")[20] < ranks.values("loss")[1]
    assert load_file(ranks.output / "model.safetensors").keys() == {"layer.weight", "layer.bias"}
    assert '"target": "models:Linear"' in (ranks.output / "config.json").read_text()


def test_losses_that_stay_not_finite_end_the_training_on_all_ranks(models: Path, start_ranks: Any) -> None:
    ranks: Ranks = start_ranks(linear(bad_step=15), 2)

    assert ranks.end() == [1, 1]

    for rank in (0, 1):
        failure = ranks.failure(rank)
        assert failure is not None
        assert failure["reason"] == "non_finite_loss"
        assert "At step 19 the loss is nan, and so in 5 steps in a row." in failure["message"]
        assert "workload.optimizer.lr" in failure["message"]
    assert ranks.whole() == ["step-00000010"]


def test_running_out_of_memory_is_named_with_the_way_out(models: Path, start_ranks: Any) -> None:
    ranks: Ranks = start_ranks(linear(bad_step=3, raises="memory"))

    assert ranks.end() == [1]

    failure = ranks.failure()
    assert failure is not None
    assert failure["reason"] == "out_of_memory"
    assert "Tried to allocate 20.00 GiB" in failure["message"]
    assert "micro_size" in failure["message"]
    assert "Traceback" in ranks.stderr()


def test_an_error_in_the_users_code_is_the_users_and_the_other_rank_lost_a_peer(models: Path, start_ranks: Any) -> None:
    ranks: Ranks = start_ranks(linear(bad_step=12, raises="value", only_rank=1), 2)

    assert ranks.end() == [1, 1]

    guilty, other = ranks.failure(1), ranks.failure(0)
    assert guilty is not None
    assert other is not None
    assert (guilty["reason"], guilty["message"]) == ("user_error", "ValueError: my own mistake")
    assert other["reason"] == "peer_lost"
    assert "models.py" in ranks.stderr(1)


@pytest.mark.parametrize(
    ("model", "pointer"),
    [
        ({"kind": "python", "target": "models:Nothing"}, "/workload/model/target"),
        ({"kind": "python", "target": "nowhere:Model"}, "/workload/model/target"),
        ({"kind": "python", "target": "models:not_a_module"}, "/workload/model/target"),
        ({"kind": "python", "target": "models:Linear", "arguments": {"width": 3}}, "/workload/model/arguments"),
        ({**TINY, "kv_heads": 3}, "/workload/model/kv_heads"),
    ],
    ids=lambda value: str(value.get("target", "")) if isinstance(value, dict) else "",
)
def test_what_the_document_gets_wrong_is_named_by_its_place(
    models: Path, start_ranks: Any, model: dict[str, Any], pointer: str
) -> None:
    ranks: Ranks = start_ranks(document(model=model))

    assert ranks.end() == [1]

    failure = ranks.failure()
    assert failure is not None
    assert failure["reason"] == "user_error"
    assert failure["message"].startswith(f"{pointer}: ")
    assert pointer in ranks.stderr()


def test_a_rank_whose_peer_was_killed_says_so(start_ranks: Any) -> None:
    ranks: Ranks = start_ranks(document(duration={"steps": 100_000}), 2)
    ranks.await_step(3)

    ranks.kill(1)

    assert ranks.end() == [1, -signal.SIGKILL]
    failure = ranks.failure(0)
    assert failure is not None
    assert failure["reason"] == "peer_lost"


def test_a_rank_whose_peer_dies_at_the_first_save_says_so_at_once(models: Path, start_ranks: Any) -> None:
    ranks: Ranks = start_ranks(linear(dies_at_save=1), 2)

    assert ranks.end() == [1, -signal.SIGKILL]
    failure = ranks.failure(0)
    assert failure is not None
    assert failure["reason"] == "peer_lost"


def test_sigterm_to_one_rank_stops_both_at_the_same_step_with_a_checkpoint(start_ranks: Any) -> None:
    endless = document(duration={"steps": 100_000}, checkpoint={"every_s": 3600})
    ranks: Ranks = start_ranks(endless, 2)
    ranks.await_step(3)

    ranks.kill(1, number=signal.SIGTERM)

    assert ranks.end() == [75, 75], ranks.stderr()
    (folder,) = ranks.whole()
    verify(ranks.checkpoints / folder)
    assert not ranks.output.exists()


def test_sigusr1_to_the_first_rank_has_all_ranks_save_one_checkpoint_and_go_on(start_ranks: Any) -> None:
    endless = document(duration={"steps": 100_000}, checkpoint={"every_s": 3600})
    ranks: Ranks = start_ranks(endless, 2)
    ranks.await_step(3)

    ranks.kill(0, number=signal.SIGUSR1)
    wait_until(ranks.whole, description="a checkpoint is whole", timeout_s=60)
    (folder,) = ranks.whole()
    ranks.await_step(int(folder.removeprefix("step-")) + 3)

    verify(ranks.checkpoints / folder)
    assert ranks.whole() == [folder]


def test_sigterm_before_the_first_step_is_not_lost(start_ranks: Any) -> None:
    ranks: Ranks = start_ranks(document(duration={"steps": 100_000}, checkpoint={"every_s": 3600}))
    wait_until(lambda: ranks.lines(), description="the rank is up", timeout_s=60)

    ranks.kill(number=signal.SIGTERM)

    assert ranks.end() == [75], ranks.stderr()
    assert len(ranks.whole()) == 1


@pytest.mark.parametrize("kind", ["ddp", pytest.param("hsdp", marks=pytest.mark.slow)])
def test_kill_9_in_the_middle_of_a_save_leaves_the_last_checkpoint_whole(start_ranks: Any, kind: str) -> None:
    strategy = {"strategy": {"kind": kind}}
    saving = document(duration={"steps": 100_000}, checkpoint={"every_steps": 1, "keep": 2}) | strategy
    ranks: Ranks = start_ranks(saving, 2)
    wait_until(
        lambda: len(ranks.whole()) > 1 and list(ranks.checkpoints.glob(".tmp-step-*/__*")),
        description="a save is under way",
        timeout_s=60,
    )

    ranks.kill()
    ranks.end()

    newest = ranks.checkpoints / ranks.whole()[-1]
    verify(newest)
    step = int(newest.name.removeprefix("step-"))
    rest = document(duration={"steps": step + 2}, checkpoint={"every_steps": 1, "keep": 2}) | strategy
    places = {"SHUNTER_RESUME_DIR": str(ranks.checkpoints), "SHUNTER_CHECKPOINT_DIR": str(ranks.checkpoints)}
    again: Ranks = start_ranks(rest, 2, name="again", SHUNTER_GENERATION="2", **places)
    assert again.end() == [0, 0], again.stderr()
    assert list(again.values("loss")) == [step + 1, step + 2]
    assert list(ranks.checkpoints.glob(".tmp-*")) == []
    assert len(ranks.whole()) == 2


def test_a_damaged_checkpoint_is_refused(start_ranks: Any) -> None:
    ranks: Ranks = start_ranks(document(duration={"steps": 2}))
    assert ranks.end() == [0], ranks.stderr()
    folder = ranks.checkpoints / ranks.whole()[-1]
    file = next(folder.glob("__0_*"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

    again: Ranks = start_ranks(document(duration={"steps": 4}), name="again", SHUNTER_RESUME_DIR=str(folder))

    assert again.end() == [1]
    failure = again.failure()
    assert failure is not None
    assert failure["reason"] == "checkpoint_failed"
    assert "__0_0.distcp was changed" in failure["message"]
