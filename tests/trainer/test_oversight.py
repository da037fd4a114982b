"""Early stopping, loss spikes, loss scaling and measurements, by themselves and in whole trainings."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from shunter_schemas.gpu_peaks import GPU_PEAKS, peak_tflops
from shunter_schemas.oversight import EarlyStopping, LossSpikes, is_better
from shunter_trainer.checkpoint.manifest import read_manifest
from shunter_trainer.failures import LossSpiked, NonFinite, UserFault
from shunter_trainer.guards.finite import FiniteGuard
from shunter_trainer.guards.plateau import PlateauGuard
from shunter_trainer.guards.spikes import SpikeGuard
from shunter_trainer.measuring.phases import Phases
from shunter_trainer.measuring.utilisation import peak_flops
from shunter_trainer.models.dimensions import Dimensions, flops_per_token
from shunter_trainer.models.transformer import Shape, Transformer
from shunter_trainer.optim.loss_scale import FIRST, LossScale
from support.ranks import Ranks
from support.trainings import document

CPU = torch.device("cpu")
FP16_TOLERANCE = 5e-3


def judged(guard: PlateauGuard, values: list[float]) -> list[bool]:
    return [guard.check(step, {"val_loss": value}) is not None for step, value in enumerate(values, 1)]


def test_a_training_ends_after_evaluations_without_a_new_best() -> None:
    guard = PlateauGuard(EarlyStopping(patience=2, min_delta=0.1))

    assert judged(guard, [3.0, 2.95, 2.5, 2.45, 2.41]) == [False, False, False, False, True]


def test_what_early_stopping_has_seen_goes_through_a_checkpoint() -> None:
    first, resumed = (PlateauGuard(EarlyStopping(patience=2)) for _ in range(2))
    judged(first, [3.0, 3.1])

    resumed.recall(json.loads(json.dumps(first.memory())))

    assert resumed.check(9, {"val_loss": 3.2}) == (
        "stopped early at step 9: val_loss did not get better in the last 2 evaluations (best 3, now 3.2)"
    )


def test_values_that_are_no_numbers_are_no_better() -> None:
    assert judged(PlateauGuard(EarlyStopping(patience=2)), [math.nan, math.nan]) == [False, True]


@pytest.mark.parametrize(("name", "better"), [("val_top1", True), ("val_loss", False), ("loss", False)])
def test_accuracies_are_to_rise_and_losses_to_fall(name: str, better: bool) -> None:
    assert is_better(name, 0.9, 0.8) is better


def spikes(**members: Any) -> SpikeGuard:
    return SpikeGuard(LossSpikes(**{"window_steps": 8, **members}))


STEADY = [2.0, 2.1, 1.9, 2.0, 2.05, 1.95, 2.0, 2.1]


def test_a_spike_is_told_once_and_counted_for_every_step() -> None:
    guard = spikes()
    guard.check(1, STEADY)

    told = [guard.check(9, [2.0, 9.0]), guard.check(11, [9.5]), guard.check(12, [2.0]), guard.check(13, [8.0])]

    assert told[0] is not None
    assert told[0].startswith("At step 10 the loss jumped to 9; over the 8 steps before, its median was 2")
    assert [message is not None for message in told] == [True, False, False, True]
    assert guard.count == 3


@pytest.mark.parametrize("losses", [[2.5, 1.5, 2.4], [0.1], [math.nan], [math.inf]])
def test_noise_and_what_is_not_finite_are_no_spikes(losses: list[float]) -> None:
    guard = spikes()
    guard.check(1, STEADY)

    assert guard.check(9, losses) is None
    assert guard.count == 0


def test_nothing_is_judged_before_the_window_is_full() -> None:
    guard = spikes()
    guard.check(1, STEADY[:7])

    assert guard.check(8, [99.0]) is None


def test_a_spike_ends_the_training_where_the_document_asks_for_it() -> None:
    guard = spikes(action="stop")
    guard.check(1, STEADY)

    with pytest.raises(LossSpiked, match="At step 9 the loss jumped to 9"):
        guard.check(9, [9.0])


def test_overflowing_gradients_are_no_fault_until_the_loss_scale_collapses() -> None:
    guard = FiniteGuard(patience_steps=3)
    overflowing = [math.inf] * 9

    guard.check(1, [2.0] * 9, overflowing, loss_scale=16.0)

    assert guard.healthy
    with pytest.raises(NonFinite, match=r"At step 18 the loss scale of fp16 fell to 0.5: .* Use precision bf16"):
        guard.check(10, [2.0] * 9, overflowing, loss_scale=0.5)


def test_the_loss_scale_halves_when_gradients_overflow_and_is_remembered() -> None:
    scale, resumed = LossScale(CPU), LossScale(CPU)
    for norm in (math.inf, math.nan, 1.0):
        scale.update(torch.tensor(norm))

    resumed.recall(scale.memory())

    assert resumed.value == scale.value == FIRST / 4
    assert scale.memory()["loss_scale_good_steps"] == 1.0
    assert (scale.scaled(torch.tensor(3.0)) * scale.inverse).item() == 3.0


def test_the_loss_scale_doubles_after_2000_good_steps() -> None:
    scale = LossScale(CPU)

    for _ in range(2000):
        scale.update(torch.tensor(1.0))

    assert scale.value == 2 * FIRST


def test_the_work_of_a_token_is_counted_by_hand() -> None:
    shape = Shape(layers=2, hidden=8, heads=2, kv_heads=1, ffn=16, vocab=32, context=64)
    module = Transformer(shape)
    dimensions = Dimensions.of({"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2})
    assert dimensions is not None

    found = flops_per_token(module, dimensions, 64)

    block = 2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 16 + 2 * 8
    assert found == 6 * (2 * block + 8 + 32 * 8) + 12 * 2 * 2 * 4 * 64


def test_frozen_weights_work_a_third_less_and_tied_tables_count_as_heads() -> None:
    tied = Shape(layers=1, hidden=8, heads=2, kv_heads=2, ffn=16, vocab=32, context=64, tied_embeddings=True)
    module = Transformer(tied)
    module.requires_grad_(False)

    found = flops_per_token(module, Dimensions(0, 2, 4), 64)

    assert found == 4 * tied.parameters


@pytest.mark.parametrize("config", [{}, {"num_hidden_layers": 2}, {"model": {"kind": "python"}}])
def test_other_models_have_no_dimensions(config: dict[str, Any]) -> None:
    assert Dimensions.of(config) is None


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989.5),
        ("NVIDIA H100 PCIe", 756.5),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA A10", 125.0),
        ("NVIDIA A10G", 70.0),
        ("NVIDIA L4", 121.0),
        ("NVIDIA RTX A4000", None),
        ("NVIDIA GeForce GTX 1080", None),
    ],
)
def test_a_gpu_is_known_by_the_drivers_name(name: str, tflops: float | None) -> None:
    assert peak_tflops(name) == tflops


def test_no_row_of_the_table_of_gpus_hides_a_later_one() -> None:
    assert [peak_tflops(" ".join(gpu.words)) for gpu in GPU_PEAKS] == [gpu.tflops for gpu in GPU_PEAKS]


def test_a_document_may_say_the_peak_itself() -> None:
    assert peak_flops(CPU, {"SHUNTER_PEAK_TFLOPS": "1.5"}) == 1.5e12
    assert peak_flops(CPU, {}) is None
    with pytest.raises(UserFault, match="/environment/variables/SHUNTER_PEAK_TFLOPS: must be a positive number"):
        peak_flops(CPU, {"SHUNTER_PEAK_TFLOPS": "many"})


def test_phases_are_measured_in_the_steps_that_are_wanted_only() -> None:
    phases = Phases(CPU)
    found = []
    for step in range(3):
        if step == 1:
            phases.want()
        phases.begin()
        for name in ("forward", "backward", "forward"):
            phases.mark(name)
        phases.end("optimizer")
        found.append(phases.read())

    assert found[0] == found[2] == {}
    assert list(found[1]) == ["forward", "backward", "optimizer"]
    assert all(seconds >= 0 for seconds in found[1].values())


MEMBERS: dict[str, Any] = {
    "data": {"kind": "sample", "sequence_length": 32, "validation": {"kind": "synthetic", "samples": 9}},
    "duration": {"steps": 40},
    "evaluation": {"every_steps": 4, "early_stopping": {"patience": 2, "min_delta": 0.05}},
    "precision": "fp16",
    "checkpoint": {"every_steps": 4, "keep": 9},
}


@pytest.mark.trainer
def test_a_whole_training_in_fp16_is_measured_traced_and_ends_early(start_ranks: Any) -> None:
    traced = {**MEMBERS, "profile": {"first_step": 3, "last_step": 4}}
    half: Ranks = start_ranks(document(**traced), 2, name="half", SHUNTER_PEAK_TFLOPS="0.1")
    full: Ranks = start_ranks(document(**{**MEMBERS, "precision": "fp32"}), name="full")
    assert (half.end(), full.end()) == ([0, 0], [0]), half.stderr() + full.stderr()
    *points, last = half.lines()
    stopped = max(half.values("loss"))

    resumed: Ranks = start_ranks(
        document(**MEMBERS), 2, name="resumed", SHUNTER_RESUME_DIR=str(half.checkpoints / "step-00000004")
    )

    assert resumed.end() == [0, 0], resumed.stderr()
    assert last["event"] == "done"
    assert last["message"].startswith(f"stopped early at step {stopped}: val_loss did not get better by more than 0.05")
    assert stopped < 40
    assert half.values("loss") == pytest.approx(
        {step: full.values("loss")[step] for step in half.values("loss")}, rel=FP16_TOLERANCE
    )
    assert resumed.values("loss") == {step: half.values("loss")[step] for step in range(5, stopped + 1)}
    assert resumed.lines()[-1] == last
    assert set(half.values("loss_scale").values()) == {FIRST}
    assert read_position(half.checkpoints / f"step-{stopped:08d}")["memory"]["early_stopping_best"] > 0
    measured = {"data_time_s", "forward_time_s", "backward_time_s", "optimizer_time_s", "communication_time_s"}
    assert measured <= {name for point in points for name in point}
    assert 0.1 < points[-1]["peak_memory_gib"] < 8
    assert 0 < points[-1]["mfu"] < 10
    with gzip.open(half.output / "profile" / "trace-rank0.json.gz") as trace:
        assert len(json.load(trace)["traceEvents"]) > 100


def read_position(folder: Path) -> dict[str, Any]:
    assert read_manifest(folder)["values"]
    position: dict[str, Any] = json.loads((folder / "trainer.json").read_text())
    return position


HANGING = """
import os, time
from torch import nn

class Sleepy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.step = nn.Linear(4, 4), 0

    def forward(self, x):
        self.step += 1
        if self.step == 6 and os.environ["RANK"] == "1":
            self.fall_asleep()
        return {"loss": self.layer(x).square().mean()}

    def fall_asleep(self):
        time.sleep(60)
"""


@pytest.mark.trainer
def test_a_rank_that_hangs_is_shown_together_with_those_that_wait_for_it(start_ranks: Any, tmp_path: Path) -> None:
    (tmp_path / "gang" / "source").mkdir(parents=True)
    (tmp_path / "gang" / "source" / "models.py").write_text(HANGING)
    hanging = document(
        model={"kind": "python", "target": "models:Sleepy"},
        data={"kind": "synthetic", "samples": 64, "fields": {"x": {"shape": [4], "dtype": "float32"}}},
        duration={"steps": 1000},
        guards={"hang_s": 2},
    )
    ranks: Ranks = start_ranks(hanging, 2)

    codes = ranks.end()

    failures = [ranks.failure(rank) for rank in (0, 1)]
    assert 1 in codes
    assert failures[1] is not None
    assert failures[1]["reason"] == "hang"
    assert "It stood in fall_asleep (models.py:" in failures[1]["message"]
    assert "fall_asleep" in ranks.stderr(1)
    assert "Where every thread stands" in ranks.stderr(0)
    assert "loop.py" in ranks.stderr(0)
