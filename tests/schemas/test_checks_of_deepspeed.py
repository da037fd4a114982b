"""DeepSpeed documents in job documents: every contradiction with both places, the numbers and the way out."""

from __future__ import annotations

from typing import Any

import pytest
from shunter_schemas.checks import cross_field_faults
from shunter_schemas.faults import Fault
from shunter_schemas.job import load_job
from shunter_schemas.strategies import DeepSpeedStrategy
from support.documents import ABSENT, changed, script, tiny_lm

Config = dict[str, Any]
BATCH = "train_batch_size"
MICRO = "train_micro_batch_size_per_gpu"
STEPS = "gradient_accumulation_steps"


def faults_of(config: Config, **changes: Any) -> list[Fault]:
    """Faults of the example training (32 samples on 2 ranks, fp32) under ZeRO 2 with this raw document."""
    strategy = {"kind": "deepspeed", "zero_stage": 2, "config": config, **changes.pop("strategy", {})}
    return list(cross_field_faults(load_job(changed(tiny_lm(), {"strategy": strategy, **changes}))))


def faults_of_script(config: Config, *arguments: str, ranks: int = 4, **strategy: Any) -> list[Fault]:
    document = changed(
        script(),
        {
            "strategy": {"kind": "deepspeed", "zero_stage": 2, "config": config, **strategy},
            "workload.arguments": list(arguments),
            "environment.variables": {"DEEPSPEED_FILE": "${deepspeed_config}"},
            "resources.cpu_processes": ranks,
        },
    )
    return list(cross_field_faults(load_job(document)))


@pytest.mark.parametrize(
    "config",
    [
        {},
        {BATCH: 64},
        {MICRO: 4},
        {STEPS: 3},
        {BATCH: 64, MICRO: 4},
        {BATCH: 64, STEPS: 2},
        {MICRO: 4, STEPS: 2},
        {BATCH: 32, MICRO: 4, STEPS: 2},
        {BATCH: "auto", MICRO: 3, STEPS: 5},
        {BATCH: 7, MICRO: "auto"},
        {BATCH: 2, MICRO: 1, "sequence_parallel_size": 2},
        {
            "zero_optimization": {
                "memory_efficient_linear": True,
                "sub_group_size": "auto",
                "reduce_bucket_size": "5000",
            }
        },
    ],
)
def test_every_form_of_batch_sizes_that_multiplies_is_taken(config: Config) -> None:
    assert faults_of_script(config) == []


@pytest.mark.parametrize(
    ("config", "detail"),
    [
        (
            {BATCH: 256, MICRO: 4, STEPS: 8},
            f"256 is not `{MICRO}` 4 x `{STEPS}` 8 x 4 ranks (/resources/cpu_processes), which is 128; use 128, or "
            "leave one of the three out",
        ),
        (
            {BATCH: 60, MICRO: 8},
            f"60 does not divide by `{MICRO}` 8 x 4 ranks (/resources/cpu_processes), together 32; use 32 or 64",
        ),
        (
            {BATCH: 6, STEPS: 2},
            f"6 does not divide by `{STEPS}` 2 x 4 ranks (/resources/cpu_processes), together 8; use 8",
        ),
        ({BATCH: 30}, "30 does not divide by 4 ranks (/resources/cpu_processes), together 4; use 28 or 32"),
    ],
)
def test_batch_sizes_that_do_not_multiply_are_refused_with_the_numbers(config: Config, detail: str) -> None:
    assert faults_of_script(config) == [Fault(f"/strategy/config/{BATCH}", detail)]


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "many", [4]])
def test_a_size_that_is_no_count_is_refused(value: Any) -> None:
    assert faults_of_script({MICRO: value}) == [
        Fault(f"/strategy/config/{MICRO}", "must be a whole number above 0"),
    ]


CONTRADICTIONS: list[tuple[Config, str, str]] = [
    ({"optimzer": {}}, "/optimzer", "DeepSpeed knows no such key; did you mean `optimizer`?"),
    ({"overlap_comm": True}, "/overlap_comm", "DeepSpeed knows no such key; it belongs into `zero_optimization`"),
    ({"zzz": 1}, "/zzz", "DeepSpeed knows no such key"),
    ({"lr": 0.1}, "/lr", "DeepSpeed knows no such key; it belongs into `optimizer.params`"),
    ({"zero_stage": 3}, "/zero_stage", "DeepSpeed knows no such key; it belongs into `zero_optimization` as `stage`"),
    (
        {"amp": {}},
        "/amp",
        "DeepSpeed no longer has it: Apex AMP is gone; use fp16, bf16 or torch_autocast; leave it out",
    ),
    (
        {"zero_optimization": {"cpu_offload": True}},
        "/zero_optimization/cpu_offload",
        'this is the old name; write offload_optimizer: {"device": "cpu"}',
    ),
    (
        {"zero_optimization": {"overlap_com": True}},
        "/zero_optimization/overlap_com",
        "`zero_optimization` has no such key; did you mean `overlap_comm`?",
    ),
    ({"zero_optimization": True}, "/zero_optimization", 'must be an object such as {"stage": 2}'),
    (
        {"fp16": {"enabled": True}, "bf16": {"enabled": True}},
        "/fp16/enabled",
        "`bf16.enabled` is true as well, and there is one precision; set one of them",
    ),
    (
        {"bf16": {"enabled": True}, "torch_autocast": {"enabled": True}},
        "/torch_autocast/enabled",
        "`bf16.enabled` is true as well; set one of them",
    ),
    ({"fp16": {"enabled": "yes"}}, "/fp16/enabled", "must be true or false"),
    (
        {"fp16": {"loss_scale_window": 0}},
        "/fp16/loss_scale_window",
        "must be a whole number above 0 while `loss_scale` is 0",
    ),
    (
        {"data_types": {"param_dtype": "bf16"}},
        "/data_types/param_dtype",
        "`bf16` needs `bf16.enabled`; leave it out",
    ),
    (
        {"bf16": {"enabled": True, "bf16_optimizer_states": True}},
        "/bf16/bf16_optimizer_states",
        "needs `bf16.bf16_master_weights_and_grads`: true",
    ),
    (
        {"zero_optimization": {"offload_param": {"device": "cpu"}}},
        "/zero_optimization/offload_param",
        "works at stage 3 only, and /strategy/zero_stage is 2; leave it out, or use 3",
    ),
    (
        {"zero_optimization": {"stage3_prefetch_bucket_size": 5}},
        "/zero_optimization/stage3_prefetch_bucket_size",
        "works at stage 3 only, and /strategy/zero_stage is 2; leave it out, or use 3",
    ),
    (
        {"zero_optimization": {"stage3_gather_16bit_weights_on_model_save": True}},
        "/zero_optimization/stage3_gather_16bit_weights_on_model_save",
        "works at stage 3 only, and /strategy/zero_stage is 2; leave it out, or use 3",
    ),
    (
        {"zero_optimization": {"reduce_bucket_size": "5e8"}},
        "/zero_optimization/reduce_bucket_size",
        "must be a number; write it without quotes",
    ),
    (
        {"optimizer": {"type": "AdamW", "params": {"lr": "1e-4"}}},
        "/optimizer/params/lr",
        "must be a number; write it without quotes",
    ),
    ({"bf16": True}, "/bf16", 'must be an object such as {"enabled": true}'),
    (
        {"zero_optimization": {"offload_optimizer": "cpu"}},
        "/zero_optimization/offload_optimizer",
        'must be an object such as {"device": "cpu"}',
    ),
    (
        {"zero_optimization": {"offload_optimizer": {"device": "gpu"}}},
        "/zero_optimization/offload_optimizer/device",
        "must be none, cpu or nvme",
    ),
    (
        {"zero_optimization": {"offload_optimizer": {"ratio": 0.5}}},
        "/zero_optimization/offload_optimizer/ratio",
        "works at stage 3 only, and /strategy/zero_stage is 2; leave it out, or use 3",
    ),
    (
        {"zero_optimization": {"legacy_stage1": True}},
        "/zero_optimization/legacy_stage1",
        "DeepSpeed no longer has it; leave it out",
    ),
    (
        {"optimizer": {"type": "SGD"}},
        "/optimizer/type",
        "`SGD` is not tested with ZeRO, and /strategy/zero_stage is 2; use Adam or AdamW, or set "
        "`zero_allow_untested_optimizer`: true",
    ),
    ({"optimizer": {"type": "AdmW"}}, "/optimizer/type", "there is no such optimizer; did you mean `AdamW`?"),
    ({"optimizer": {"type": "OneBitAdam"}}, "/optimizer/type", "DeepSpeed no longer has it; use Adam, AdamW or Lion"),
    (
        {"optimizer": {"type": "Adam", "params": {"max_grad_norm": 1.0}}},
        "/optimizer/params/max_grad_norm",
        "DeepSpeed refuses it here; use `gradient_clipping`",
    ),
    ({"scheduler": {"type": "WarmUpLR"}}, "/scheduler/type", "there is no such scheduler; did you mean `WarmupLR`?"),
    (
        {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_step": 3}}},
        "/scheduler/params/warmup_num_step",
        "`WarmupLR` takes no such parameter; did you mean `warmup_num_steps`?",
    ),
    ({"scheduler": {"type": "WarmupDecayLR"}}, "/scheduler", "`WarmupDecayLR` needs `params.total_num_steps`"),
    ({"scheduler": {"type": "WarmupLR", "params": 3}}, "/scheduler/params", 'must be an object such as {"lr": 0.001}'),
    ({"gradient_clipping": -1}, "/gradient_clipping", "must be a number, 0 or above (0: no clipping)"),
    (
        {"zero_optimization": {"stage": 3}},
        "/zero_optimization/stage",
        "3 contradicts /strategy/zero_stage, which says 2; leave it out here, it follows from there",
    ),
    (
        {"zero_optimization": {"stage": "2"}},
        "/zero_optimization/stage",
        "must stand without quotes; or leave it out here, it follows from /strategy/zero_stage 2",
    ),
    (
        {"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}}},
        "/zero_optimization/offload_optimizer/device",
        "nvme contradicts /strategy/offload_optimizer, which takes none and cpu; use cpu, or a script with a DeepSpeed "
        "file of its own (strategy own with `deepspeed_file`)",
    ),
]


@pytest.mark.parametrize(("config", "place", "detail"), CONTRADICTIONS)
def test_a_contradiction_in_the_raw_document_names_both_places(config: Config, place: str, detail: str) -> None:
    assert Fault(f"/strategy/config{place}", detail) in faults_of_script(config)


@pytest.mark.parametrize(
    ("zero", "place"),
    [
        ({"offload_optimizer": {"device": "cpu"}}, "`zero_optimization.offload_optimizer`"),
        ({}, "/strategy/offload_optimizer"),
    ],
)
@pytest.mark.parametrize("optimizer", ["Lamb", "SGD"])
def test_an_optimizer_without_a_form_for_offloaded_state_is_refused(zero: Config, place: str, optimizer: str) -> None:
    config = {"optimizer": {"type": optimizer}, "zero_optimization": zero}

    (fault,) = faults_of_script(config, ranks=2, offload_optimizer="cpu")

    assert fault == Fault(
        "/strategy/config/optimizer/type",
        f"`{optimizer}` has no form for offloaded state, and {place} says cpu; use Adam, AdamW, Adagrad or Lion, or "
        "leave the offload out",
    )


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ({}, (2, "none", "none")),
        ({"config": {"zero_optimization": {"stage": 1}}}, (1, "none", "none")),
        ({"config": {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}}, (3, "none", "cpu")),
        ({"config": {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}}, (2, "cpu", "none")),
        ({"config": {"zero_optimization": {"stage": "auto", "offload_optimizer": 3}}}, (2, "none", "none")),
        ({"config": {"zero_optimization": {"stage": 3}}, "zero_stage": 2}, (2, "none", "none")),
    ],
)
def test_stage_and_offload_are_what_the_raw_document_says_unless_they_are_given(
    strategy: Config, expected: tuple[int, str, str]
) -> None:
    job = load_job(changed(tiny_lm(), {"strategy": {"kind": "deepspeed", **strategy}}))

    found = job.strategy
    assert isinstance(found, DeepSpeedStrategy)
    assert (found.zero_stage, found.offload_optimizer, found.offload_parameters) == expected


def test_a_deepspeed_document_alone_is_a_strategy() -> None:
    config = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}

    job = load_job(changed(tiny_lm(), {"strategy": {"kind": "deepspeed", "config": config}}))

    assert list(cross_field_faults(job)) == []


def test_groups_of_secondary_partitions_must_divide_the_ranks() -> None:
    (fault,) = faults_of_script({"zero_optimization": {"zero_hpz_partition_size": 3}}, zero_stage=3)

    assert fault.detail == "4 ranks (/resources/cpu_processes) do not divide into groups of 3; use a divisor of 4"


GIVEN = {
    "workload.batch.global_size": 32,
    "workload.batch.micro_size": 8,
    "workload.gradient_clip_norm": 1.0,
}
TRAININGS: list[tuple[Config, str, str]] = [
    ({BATCH: 64}, f"/{BATCH}", "64 contradicts /workload/batch/global_size, which says 32"),
    ({STEPS: 4}, f"/{STEPS}", "4 contradicts /workload/batch (32 samples on 2 ranks), which says 2"),
    ({MICRO: 4}, f"/{MICRO}", "4 contradicts /workload/batch/micro_size, which says 8"),
    ({"gradient_clipping": 0.5}, "/gradient_clipping", "0.5 contradicts /workload/gradient_clip_norm, which says 1.0"),
    ({"bf16": {"enabled": True}}, "/bf16/enabled", "true contradicts /workload/precision (fp32), which says false"),
    (
        {"communication_data_type": "fp16"},
        "/communication_data_type",
        "fp16 contradicts /workload/precision (reduce), which says fp32",
    ),
    (
        {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}},
        "/zero_optimization/offload_optimizer/device",
        "cpu contradicts /strategy/offload_optimizer, which says none",
    ),
]


@pytest.mark.parametrize(("config", "place", "detail"), TRAININGS)
def test_a_training_decides_what_the_raw_document_may_only_repeat(config: Config, place: str, detail: str) -> None:
    faults = faults_of(config, strategy={"offload_optimizer": "none"}, **GIVEN)

    wanted = Fault(f"/strategy/config{place}", f"{detail}; leave it out here, it follows from there")
    assert wanted in faults


def test_a_raw_document_that_repeats_the_training_is_taken() -> None:
    config = {BATCH: 32, MICRO: 8, STEPS: 2, "gradient_clipping": 1.0, "bf16": {"enabled": False}}

    assert faults_of(config, **GIVEN) == []


@pytest.mark.parametrize(
    ("config", "pointer"),
    [
        ({"gradient_clipping": "auto"}, "/strategy/config/gradient_clipping"),
        (
            {"zero_optimization": {"reduce_bucket_size": "auto"}},
            "/strategy/config/zero_optimization/reduce_bucket_size",
        ),
        ({"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}, "/strategy/config/optimizer/params/lr"),
    ],
)
def test_auto_is_legal_in_scripts_and_refused_in_trainings(config: Config, pointer: str) -> None:
    in_training = faults_of(config, **{"workload.optimizer": ABSENT})

    assert in_training == [Fault(pointer, "`auto` is resolved by Hugging Face's libraries in scripts; give the value")]
    assert faults_of_script(config) == []


def test_one_optimizer_and_one_schedule_decide() -> None:
    config = {"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupLR"}}
    given = {"workload.optimizer": {"kind": "sgd", "lr": 1.0}, "workload.schedule": {"kind": "constant"}}

    faults = faults_of(config, **given)
    alone = faults_of(config, **{"workload.optimizer": ABSENT, "workload.schedule": ABSENT})

    assert [(fault.pointer, fault.detail) for fault in faults] == [
        ("/strategy/config/optimizer", "`/workload/optimizer` is given too, and one of them decides; leave one out"),
        ("/strategy/config/scheduler", "`/workload/schedule` is given too, and one of them decides; leave one out"),
    ]
    assert alone == []


@pytest.mark.parametrize(
    "path",
    ["checkpoint", "tensor_parallel", "torch_autocast", "compile", "data_efficiency", "hybrid_engine", "autotuning"],
)
def test_parts_without_a_place_in_a_training_are_refused_with_the_reason(path: str) -> None:
    (fault,) = faults_of({path: {"enabled": True}})

    assert fault.pointer == f"/strategy/config/{path}"
    assert fault.detail.startswith("a `training` does not take it: ")


def test_zero_keeps_parameters_in_fp32() -> None:
    precision = {"parameters": "bf16", "compute": "bf16", "reduce": "bf16"}

    faults = faults_of({}, **{"workload.precision": precision})

    assert [fault.pointer for fault in faults] == ["/workload/precision/parameters"]
