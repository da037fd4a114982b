"""Memory of one GPU: the numbers that papers print, and how the parts move."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
from shunter_planner.memory.estimate import GIB, Memory, peak_memory
from shunter_planner.memory.states import model_states
from shunter_planner.models.shape import ModelShape, with_lora
from shunter_planner.recipe import Checkpointing, Cut, Recipe, Spread
from shunter_planner.search.sizing import ROOM, SURELY_TOO_LARGE
from support.published import LIMITS, LLAMA_8B, POINTS, Point

ZERO_PAPER = replace(LLAMA_8B, parameters=7_500_000_000)
FP16 = Recipe(reduce_bytes=2)
WITH_MEMORY = [point for point in POINTS if point.peak_gib and point.covered]


def zero(stage: int, **changes: object) -> Spread:
    spread = Spread("deepspeed", 64, 8, shards=64, zero_stage=stage)
    return replace(spread, **changes)  # type: ignore[arg-type]  # fields by name


def peak(spread: Spread, checkpointing: Checkpointing = "none", shape: ModelShape = LLAMA_8B, micro: int = 1) -> Memory:
    return peak_memory(shape, 4096, Recipe(), spread, Cut(micro, 1, checkpointing))


@pytest.mark.parametrize(("stage", "gigabytes"), [(1, 31.4), (2, 16.6), (3, 1.9)])
def test_states_are_those_of_figure_1_of_the_zero_paper(stage: int, gigabytes: float) -> None:
    states = model_states(ZERO_PAPER, FP16, zero(stage))

    assert states.total / 1e9 == pytest.approx(gigabytes, rel=0.02)


def test_plain_data_parallelism_takes_120_gigabytes_for_the_papers_model() -> None:
    states = model_states(ZERO_PAPER, Recipe(), Spread("ddp", 64, 8))

    assert states.total / 1e9 == pytest.approx(120.0)


def test_sharding_divides_states_by_the_ranks_of_a_group() -> None:
    whole = model_states(LLAMA_8B, Recipe(), Spread("ddp", 16, 8))
    fsdp = model_states(LLAMA_8B, Recipe(), Spread("fsdp", 16, 8, shards=16))
    hsdp = model_states(LLAMA_8B, Recipe(), Spread("hsdp", 16, 8, shards=8))

    assert fsdp.total == whole.total / 16
    assert hsdp.total == whole.total / 8


def test_offloaded_states_lie_in_the_hosts_memory() -> None:
    spread = zero(3, offload_optimizer=True, offload_parameters=True)

    states = model_states(LLAMA_8B, Recipe(), spread)

    assert states.total == 0
    assert states.host == pytest.approx(18 * LLAMA_8B.parameters / 64)


def test_frozen_weights_have_neither_gradients_nor_moments() -> None:
    adapted = with_lora(LLAMA_8B, 16, 2, 6_815_744)

    states = model_states(adapted, Recipe(), Spread("ddp", 1, 1))

    assert states.parameters == 2 * LLAMA_8B.parameters + 4 * 6_815_744
    assert states.gradients + states.optimizer == 12 * 6_815_744


def test_each_kind_of_checkpointing_keeps_less_than_the_one_before() -> None:
    spread = Spread("fsdp", 8, 8, shards=8)

    none, selective, full = (peak(spread, kind, micro=2).activations for kind in ("none", "selective", "full"))

    assert none > 1.5 * selective > 1.5 * full


def test_scores_that_are_written_out_grow_with_the_square_of_the_sequence() -> None:
    eager = replace(LLAMA_8B, eager_attention=True)
    spread, cut = Spread("fsdp", 8, 8, shards=8), Cut(1, 1, "none")

    fused = [peak_memory(LLAMA_8B, n, Recipe(), spread, cut).activations for n in (2048, 4096)]
    scores = [peak_memory(eager, n, Recipe(), spread, cut).activations for n in (2048, 4096)]

    assert fused[1] == pytest.approx(2 * fused[0])
    assert scores[1] - fused[1] == pytest.approx(4 * (scores[0] - fused[0]))


def test_the_peak_moves_from_the_logits_to_the_last_blocks_backward_pass() -> None:
    small = replace(LLAMA_8B, vocab=1000)
    spread = Spread("fsdp", 8, 8, shards=8)

    assert peak(spread, micro=4).logits > 0
    assert peak(spread, micro=4, shape=small).logits == 0


def test_more_samples_never_take_less_memory() -> None:
    spread = Spread("hsdp", 16, 8, shards=8)

    totals = [peak(spread, micro=micro).total for micro in (1, 2, 4, 8)]

    assert totals == sorted(totals)


def test_parts_add_up_to_what_the_card_must_have() -> None:
    memory = peak(Spread("fsdp", 8, 8, shards=8))

    assert sum(memory.parts_gib().values()) == pytest.approx(memory.total / GIB, abs=0.01)


def test_published_peaks_are_met_to_a_few_per_cent() -> None:
    errors = sorted(abs(error_of(point)) for point in WITH_MEMORY)

    assert len(errors) >= 5
    assert statistics.median(errors) <= 0.05
    assert errors[-1] <= 0.10


def test_no_more_than_one_in_fifty_published_runs_is_said_not_to_fit() -> None:
    ran = [point for point in (*POINTS, *LIMITS) if point.covered and not point.ran_out]

    refused = [point for point in ran if share_of(point) > 1]

    assert len(refused) <= len(ran) / 50
    assert all(share_of(point) < 1.02 for point in refused)


def test_no_published_run_that_ran_out_of_memory_is_said_to_fit() -> None:
    ran_out = [point for point in (*POINTS, *LIMITS) if point.covered and point.ran_out]

    shares = sorted(share_of(point) for point in ran_out)

    assert len(shares) >= 14
    assert shares[0] > ROOM
    assert sum(share > SURELY_TOO_LARGE for share in shares) >= len(shares) - 1


def share_of(point: Point) -> float:
    share: float = point.memory().total / (point.gpu.memory_gib * GIB)
    return share


def error_of(point: Point) -> float:
    error: float = point.memory().reserved / GIB / point.peak_gib - 1
    return error
