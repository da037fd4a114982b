"""Ranks that do not divide or contradict themselves: both places, the numbers, and the way out."""

from __future__ import annotations

from typing import Any

import pytest
from shunter_schemas.checks import cross_field_faults
from shunter_schemas.faults import Fault
from shunter_schemas.job import load_job
from support.documents import changed, tiny_lm

Changes = dict[str, Any]


def faults_of(document: dict[str, Any]) -> list[Fault]:
    return list(cross_field_faults(load_job(document)))


RESOURCES: list[tuple[Changes, str, str]] = [
    ({"resources": {}}, "/resources", "the number of ranks is not given: give `gpus`, or `cpu_processes`"),
    (
        {"resources": {"nodes": 2}},
        "/resources/nodes",
        "`nodes` alone does not say how many GPUs: give `gpus` too, or both `nodes` and `gpus_per_node`",
    ),
    (
        {"resources": {"gpus_per_node": 8}},
        "/resources/gpus_per_node",
        "`gpus_per_node` alone does not say how many GPUs: give `gpus` too, or both `nodes` and `gpus_per_node`",
    ),
    (
        {"resources": {"cpu_processes": 2, "gpus": 2}},
        "/resources/gpus",
        "`gpus` is for GPUs, `cpu_processes` for CPUs; give one of them",
    ),
    (
        {"resources": {"cpu_processes": 2, "nodes": 2, "gpus_per_node": 1}},
        "/resources/gpus_per_node",
        "`gpus_per_node` is for GPUs, `cpu_processes` for CPUs; give one of them",
    ),
    (
        {"resources": {"gpus": 10, "nodes": 4}},
        "/resources/gpus",
        "10 GPUs do not divide by `nodes` 4; use 8 or 12 GPUs",
    ),
    (
        {"resources": {"gpus": 2, "gpus_per_node": 8}},
        "/resources/gpus",
        "2 GPUs do not divide by `gpus_per_node` 8; use 8 GPUs",
    ),
    (
        {"resources": {"gpus": 16, "nodes": 3, "gpus_per_node": 4}},
        "/resources/gpus",
        "16 GPUs are not 3 nodes of 4; give 12, or two of the three",
    ),
    ({"resources": {"gpus": {"min": 8, "max": 4}}}, "/resources/gpus/min", "`min` 8 is above `max` 4"),
    (
        {"resources.min_gpu_memory_gib": 80},
        "/resources/min_gpu_memory_gib",
        "this is about GPUs, and `resources.cpu_processes` asks for CPUs; leave one of them out",
    ),
    (
        {"limits.max_gpu_idle_s": 60},
        "/limits/max_gpu_idle_s",
        "this is about GPUs, and `resources.cpu_processes` asks for CPUs; leave one of them out",
    ),
    (
        {"resources": {"gpus": 4}, "recovery.min_gpus": 8},
        "/recovery/min_gpus",
        "`min_gpus` 8 is above the 4 ranks of /resources/gpus; use 4 or less",
    ),
    (
        {"resources": {"gpus": 8}, "workload.batch.global_size": 64, "recovery.min_gpus": 5},
        "/recovery/min_gpus",
        "no number of GPUs from 5 to 7 divides `global_size` 64 (/workload/batch/global_size); use 4, or leave it out",
    ),
]

STRATEGIES: list[tuple[Changes, str, str]] = [
    (
        {"strategy.sync_batch_norm": True},
        "/strategy/sync_batch_norm",
        "works on GPUs only, and `resources.cpu_processes` asks for CPUs; use false",
    ),
    ({"strategy": {"kind": "own"}}, "/strategy/kind", "`own` is for scripts; a `training` is spread by our trainer"),
    (
        {
            "strategy": {"kind": "hsdp", "shard_size": 4},
            "resources": {"nodes": 3, "gpus_per_node": 2},
            "workload.batch.global_size": 12,
        },
        "/strategy/shard_size",
        "6 ranks (/resources/nodes) do not divide into groups of 4; use 4 or 8 ranks, or groups of 2 or 3 or 6",
    ),
    (
        {"strategy": {"kind": "hsdp", "shard_size": 8}},
        "/strategy/shard_size",
        "2 ranks (/resources/cpu_processes) do not divide into groups of 8; use 8 ranks, or groups of 2",
    ),
    (
        {
            "strategy": {"kind": "hsdp", "shard_size": 32},
            "resources": {"gpus": {"min": 8, "max": 16}},
        },
        "/strategy/shard_size",
        "no number of ranks from 8 to 16 (/resources/gpus) divides into groups of 32; use 32 ranks",
    ),
    (
        {
            "strategy": {"kind": "hsdp", "shard_size": "node", "reshard_after_forward": 3},
            "resources": {"nodes": 3, "cpu_processes": 4},
            "workload.batch.global_size": 12,
        },
        "/strategy/reshard_after_forward",
        "3 does not divide the 4 ranks over which parameters are split (/resources/cpu_processes); use 2 or 4, or true",
    ),
    (
        {"strategy": {"kind": "fsdp", "reshard_after_forward": 3}},
        "/strategy/reshard_after_forward",
        "3 does not divide the 2 ranks over which parameters are split (/resources/cpu_processes); use 2, or true",
    ),
    (
        {
            "strategy": {"kind": "hsdp", "shard_size": 4, "reshard_after_forward": 8},
            "resources": {"nodes": 2, "gpus_per_node": 8},
        },
        "/strategy/reshard_after_forward",
        "8 does not divide the 4 ranks over which parameters are split (/strategy/shard_size); use 2 or 4, or true",
    ),
    (
        {
            "strategy": {"kind": "hsdp", "reshard_after_forward": 3},
            "resources": {"gpus": 16, "nodes": 2},
        },
        "/strategy/reshard_after_forward",
        "3 does not divide the 8 ranks over which parameters are split (/resources/nodes); use 2 or 4 or 8, or true",
    ),
    (
        {"strategy": {"kind": "deepspeed", "zero_stage": 2, "offload_parameters": "cpu"}},
        "/strategy/offload_parameters",
        "parameters are split at `zero_stage` 3 only, and it is 2; use 3 or `none`",
    ),
    (
        {"strategy": {"kind": "deepspeed", "zero_stage": 0, "offload_optimizer": "cpu"}},
        "/strategy/offload_optimizer",
        "needs `zero_stage` 1 or more, and it is 0; use 1 or `none`",
    ),
]

BATCHES: list[tuple[Changes, str, str]] = [
    (
        {"workload.batch.global_size": 15},
        "/workload/batch/global_size",
        "15 samples do not divide over 2 ranks (/resources/cpu_processes); use 14 or 16",
    ),
    (
        {"workload.batch.global_size": 1, "resources": {"gpus": 4}},
        "/workload/batch/global_size",
        "1 samples do not divide over 4 ranks (/resources/gpus); use 4",
    ),
    (
        {"workload.batch": {"global_size": 24, "micro_size": 8}},
        "/workload/batch/micro_size",
        "8 on each of 2 ranks (/resources/cpu_processes) do not divide `global_size` 24; use 4 or `auto`",
    ),
    (
        {"workload.batch": {"global_size": 2**53 - 2, "micro_size": 2**53 - 1}},
        "/workload/batch/micro_size",
        f"{2**53 - 1} on each of 2 ranks (/resources/cpu_processes) do not divide",
    ),
    (
        {"workload.duration": {}},
        "/workload/duration",
        "needs exactly one of steps, epochs and tokens; none is given",
    ),
    (
        {"workload.duration": {"steps": 300, "epochs": 1}},
        "/workload/duration",
        "needs exactly one of steps, epochs and tokens; steps and epochs are given",
    ),
    (
        {
            "workload.duration": {"tokens": 1},
            "workload.data": {"kind": "python", "target": "a:b", "validation": {"fraction": 0.1}},
        },
        "/workload/duration/tokens",
        "counting tokens needs `data.sequence_length`, which this data does not have; use steps or epochs",
    ),
]


@pytest.mark.parametrize(
    ("changes", "pointer", "detail"),
    [*RESOURCES, *STRATEGIES, *BATCHES],
)
def test_a_gang_that_cannot_be_names_place_numbers_and_way_out(changes: Changes, pointer: str, detail: str) -> None:
    (fault,) = faults_of(changed(tiny_lm(), changes))

    assert fault.pointer == pointer
    assert fault.detail.startswith(detail)
