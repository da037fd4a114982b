"""The time of a step: what published runs took, and how the parts move."""

from __future__ import annotations

import statistics
from dataclasses import replace

from shunter_planner.hardware.fabrics import FABRICS, fabric_of
from shunter_planner.hardware.gpus import every_gpu, gpu_of
from shunter_planner.recipe import Cut, Recipe, Spread
from shunter_planner.timing.estimate import StepTime, step_time
from shunter_planner.timing.messages import messages
from support.published import LIMITS, LLAMA_8B, POINTS, Point

H100 = gpu_of("H100", 80)
RDMA = fabric_of("rdma")
MEASURED = [point for point in POINTS if point.tokens_per_s_per_gpu and point.covered]


CUT = Cut(2, 4, "none")


def timed(spread: Spread, cut: Cut = CUT, interconnect: str = "rdma") -> StepTime:
    return step_time(LLAMA_8B, 4096, Recipe(), spread, cut, H100, fabric_of(interconnect))


def test_published_speeds_are_met() -> None:
    errors = sorted(abs(error) for error in map(error_of, MEASURED))

    assert len(errors) > 140
    assert statistics.median(errors) <= 0.08
    assert errors[round(0.9 * len(errors))] <= 0.20


def test_speeds_of_runs_that_set_no_constant_are_met() -> None:
    errors = sorted(abs(error_of(point)) for point in LIMITS if point.tokens_per_s_per_gpu)

    assert len(errors) >= 6
    assert statistics.median(errors) <= 0.05
    assert errors[-1] <= 0.15


def test_no_group_of_published_runs_is_off_by_much() -> None:
    groups: dict[tuple[str, str], list[float]] = {}
    for point in MEASURED:
        groups.setdefault((point.gpu.name, point.recipe.dtype), []).append(error_of(point))

    worst = max(abs(statistics.median(errors)) for errors in groups.values())

    assert worst <= 0.20


def test_recomputing_everything_costs_less_than_a_third_more() -> None:
    spread = Spread("fsdp", 8, 8, shards=8)

    plain, full = timed(spread), timed(spread, Cut(2, 4, "full"))

    assert 1.15 * plain.total < full.total < 1.34 * plain.total


def test_a_slow_network_shows_under_fsdp_and_less_in_groups_of_a_node() -> None:
    fsdp, hsdp = Spread("fsdp", 16, 8, shards=16), Spread("hsdp", 16, 8, shards=8)

    fast, slow, grouped = timed(fsdp), timed(fsdp, interconnect="any"), timed(hsdp, interconnect="any")

    assert slow.exposed_messages > 5 * fast.exposed_messages
    assert grouped.exposed_messages < 0.5 * slow.exposed_messages


def test_a_rank_by_itself_sends_nothing() -> None:
    sent = messages(LLAMA_8B, Recipe(), Spread("ddp", 1, 1), H100, RDMA)

    assert (sent.every_pass, sent.every_step) == (0.0, 0.0)


def test_data_parallelism_reduces_once_a_step_however_often_it_accumulates() -> None:
    spread = Spread("ddp", 16, 8)

    once, often = timed(spread, Cut(2, 1, "none")), timed(spread, Cut(2, 8, "none"))

    assert often.exposed_messages == once.exposed_messages


def test_offloading_takes_longer_than_keeping() -> None:
    kept = Spread("deepspeed", 8, 8, shards=8, zero_stage=3)

    away = timed(replace(kept, offload_optimizer=True, offload_parameters=True))

    assert away.optimizer > 3 * timed(kept).optimizer


def test_mfu_is_the_share_of_the_peak_that_the_counted_operations_need() -> None:
    time = timed(Spread("fsdp", 8, 8, shards=8))

    assert 0.3 < time.mfu(H100, 8) < 0.6


def test_every_gpu_of_the_table_has_sources_and_plausible_figures() -> None:
    for gpu, source in every_gpu():
        assert source, gpu
        assert 8 < gpu.memory_gib < 300, gpu
        assert 30 < gpu.bf16_tflops < 3000, gpu
        assert 200 < gpu.hbm_gb_per_s < 9000, gpu
        assert 50 < gpu.tdp_w < 2000, gpu
    assert all(fabric.source for fabric in FABRICS.values())


def test_gpus_are_found_by_the_names_that_providers_and_drivers_give_them() -> None:
    assert gpu_of("A100-80GB-SXM").memory_gib == gpu_of("NVIDIA A100-SXM4-80GB").memory_gib == 79.2
    assert gpu_of("A100", 40).memory_gib == 39.4
    assert gpu_of("RTX4090", 24).name == "RTX 4090"
    assert gpu_of("H100-PCIe", 80).link_gb_per_s < 100
    assert not gpu_of("V100", 16).has_bf16


def test_a_gpu_that_nobody_knows_is_a_guess_and_says_so() -> None:
    gpu = gpu_of("XPU-9", 48)

    assert (gpu.known, gpu.memory_gib) == (False, 0.94 * 48)


def error_of(point: Point) -> float:
    error: float = point.time().tokens_per_s / point.spread.world / point.tokens_per_s_per_gpu - 1
    return error
