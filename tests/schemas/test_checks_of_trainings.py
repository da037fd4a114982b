"""Trainings that contradict themselves: both places, the numbers, and the way out."""

from __future__ import annotations

from typing import Any

import pytest
from shunter_schemas.checks import cross_field_faults
from shunter_schemas.faults import Fault
from shunter_schemas.job import load_job
from support.documents import ABSENT, BUNDLE_ID, changed, tiny_lm

Changes = dict[str, Any]
PYTHON_MODEL = {"kind": "python", "target": "models:make"}
LLAMA = {"kind": "huggingface", "config": {"model_type": "llama"}}
VIT = {"kind": "huggingface", "config": {"model_type": "vit"}, "task": "image_classification"}
PICTURES = {"kind": "image_folder", "path": "input:a", "validation": {"fraction": 0.1}}
LORA = {"kind": "lora", "rank": 4, "alpha": 8}
IMAGES = {"image": {"shape": [3, 8, 8], "dtype": "float32"}}


def faults_of(document: dict[str, Any]) -> list[Fault]:
    return list(cross_field_faults(load_job(document)))


MODELS: list[tuple[Changes, str, str]] = [
    ({"workload.model.hidden": 130}, "/workload/model/hidden", "130 does not divide by `heads` 4; use 128 or 132"),
    (
        {"workload.model.hidden": 132},
        "/workload/model/hidden",
        "132 / `heads` 4 gives heads of odd width 33; use 128 or 136",
    ),
    (
        {"workload.model.kv_heads": 3},
        "/workload/model/kv_heads",
        "`heads` 4 does not divide by `kv_heads` 3; use a divisor of 4",
    ),
    (
        {"workload.model.vocab": 128},
        "/workload/model/vocab",
        "`vocab` 128 is below the 256 ids of `bytes` (/workload/data/tokenizer); use 256 or more",
    ),
    (
        {"workload.data.sequence_length": 129},
        "/workload/data/sequence_length",
        "129 tokens are more than the model's `context` 128; use 128 or less",
    ),
    (
        {"workload.data.validation": {"kind": "sample", "sequence_length": 999}},
        "/workload/data/validation/sequence_length",
        "999 tokens are more than the model's `context` 128; use 128 or less",
    ),
    (
        {"workload.model": PYTHON_MODEL, "workload.data.sequence_length": ABSENT},
        "/workload/data",
        "`sequence_length` is missing, and a `python` model does not give it; say how many tokens a sample has",
    ),
    ({"workload.loss": {"kind": "mse"}}, "/workload/loss/kind", "`mse` does not fit a `transformer` model"),
    (
        {
            "workload.data": {"kind": "image_folder", "path": "input:a", "validation": {"fraction": 0.1}},
            "inputs.a.from": "./a",
        },
        "/workload/data/kind",
        "`image_folder` gives no tokens, which a `transformer` model takes",
    ),
    (
        {"workload.adapter": {"kind": "lora", "rank": 4, "alpha": 8, "targets": ["q"]}},
        "/workload/adapter",
        "adapters are for `huggingface` models, and this is a `transformer` model; leave it out",
    ),
    (
        {"workload.export.weights": "merged"},
        "/workload/export/weights",
        "`merged` needs `workload.adapter`, which is not given; use full",
    ),
]

HUGGINGFACE: list[tuple[Changes, str, str]] = [
    (
        {"workload.model": {"kind": "huggingface"}},
        "/workload/model",
        "neither `weights` nor `config` is given; name pretrained weights, or a `config` with its `model_type`",
    ),
    (
        {"workload.model": {"kind": "huggingface", "config": {"hidden_size": 8}}},
        "/workload/model/config",
        '`model_type` is missing, such as "llama"; without `weights` it is needed',
    ),
    (
        {"workload.model": LLAMA, "workload.loss": {"kind": "cross_entropy"}},
        "/workload/loss/kind",
        "`cross_entropy` does not fit /workload/model/task 'causal_lm'; use causal_lm, or leave `loss` out",
    ),
    (
        {"workload.model": VIT, "workload.data": PICTURES, "inputs.a.from": "./a"}
        | {"workload.loss": {"kind": "causal_lm"}},
        "/workload/loss/kind",
        "`causal_lm` does not fit /workload/model/task 'image_classification'; use cross_entropy",
    ),
    (
        {"workload.model": LLAMA, "workload.metrics": ["top1"]},
        "/workload/metrics/0",
        "`top1` needs `workload.loss`: cross_entropy",
    ),
    (
        {"workload.model": LLAMA, "workload.adapter": {**LORA, "targets": ["q_proj", "v_proj", "q_proj"]}},
        "/workload/adapter/targets/2",
        "'q_proj' is given already (/workload/adapter/targets/0); leave it out",
    ),
]

LEARNING: list[tuple[Changes, str, str]] = [
    (
        {"workload.metrics": ["perplexity", "top1"]},
        "/workload/metrics/1",
        "`top1` needs `workload.loss`: cross_entropy",
    ),
    (
        {"workload.metrics": ["perplexity"], "workload.evaluation": ABSENT, "workload.checkpoint": ABSENT},
        "/workload/metrics",
        "needs `workload.evaluation`; add it, or leave this out",
    ),
    (
        {"workload.precision": {"parameters": "bf16", "compute": "bf16"}},
        "/workload/precision/reduce",
        "ddp reduces in the type of the `parameters`, bf16, and `reduce` is fp32; use bf16 for it",
    ),
    (
        {"workload.precision": {"parameters": "bf16", "compute": "fp32", "reduce": "bf16"}},
        "/workload/precision/compute",
        "fp32 is wider than the `parameters`, which are bf16; use bf16",
    ),
    (
        {"workload.schedule.warmup_ratio": 0.1},
        "/workload/schedule/warmup_ratio",
        "`warmup_steps` is given too; give one of them",
    ),
    (
        {"workload.schedule": {"kind": "wsd", "warmup_ratio": 0.5, "decay_ratio": 0.6}},
        "/workload/schedule/decay_ratio",
        "`warmup_ratio` 0.5 and `decay_ratio` 0.6 are more than all steps; together they may be 1 at the most",
    ),
    (
        {"workload.schedule.warmup_steps": 301},
        "/workload/schedule/warmup_steps",
        "301 steps of warm-up are more than `duration.steps` 300; use 300 or less",
    ),
    (
        {"workload.optimizer": {"kind": "sgd", "lr": 0.1, "nesterov": True}},
        "/workload/optimizer/nesterov",
        "needs `momentum` above 0, and it is 0; use 0.9",
    ),
    (
        {"workload.data.validation": ABSENT},
        "/workload/evaluation",
        'needs `data.validation`, such as {"fraction": 0.05}',
    ),
    (
        {"workload.data.validation": {"kind": "sample", "validation": {"fraction": 0.1}}},
        "/workload/data/validation/validation",
        "validation data has no validation itself; leave it out",
    ),
    (
        {"workload.evaluation": ABSENT},
        "/workload/checkpoint/keep_best",
        "`val_loss` needs `workload.evaluation`; add it, or leave `keep_best` out",
    ),
    (
        {"workload.checkpoint.keep_best": "valloss"},
        "/workload/checkpoint/keep_best",
        "must be val_loss or loss; did you mean `val_loss`?",
    ),
    (
        {"workload.evaluation.early_stopping": {"metric": "valloss", "patience": 2}},
        "/workload/evaluation/early_stopping/metric",
        "must be val_loss; did you mean `val_loss`?",
    ),
    (
        {"workload.evaluation.early_stopping": {"metric": "val_top1", "patience": 2}},
        "/workload/evaluation/early_stopping/metric",
        "`val_top1` is not measured; add 'top1' to `workload.metrics`",
    ),
    (
        {"workload.profile": {"first_step": 12, "last_step": 11}},
        "/workload/profile/last_step",
        "`last_step` 11 comes before `first_step` 12; use 12 or more for `last_step`",
    ),
    (
        {"workload.profile": {"last_step": 301}},
        "/workload/profile/last_step",
        "`last_step` 301 is more than `duration.steps` 300; use 300 or less",
    ),
    (
        {"workload.precision": {"parameters": "fp16", "compute": "fp16"}},
        "/workload/precision/parameters",
        "small updates vanish in fp16 parameters; use fp32",
    ),
    (
        {"workload.precision": {"parameters": "bf16", "compute": "fp16", "reduce": "bf16"}},
        "/workload/precision/compute",
        "fp16 goes with fp32 `parameters`, and these are bf16; use bf16",
    ),
    (
        {"workload.precision": {"reduce": "fp16"}},
        "/workload/precision/reduce",
        "only fp16 gradients are scaled to its range, and `compute` is bf16; use fp32 or bf16",
    ),
]

SYNTHETIC: list[tuple[Changes, str, str]] = [
    (
        {"workload.data": {"kind": "synthetic", "fields": IMAGES, "validation": {"fraction": 0.1}}},
        "/workload/data/fields",
        "a `transformer` model takes random tokens; leave `fields` out",
    ),
    (
        {"workload.model": PYTHON_MODEL, "workload.data": {"kind": "synthetic", "validation": {"fraction": 0.1}}},
        "/workload/data",
        "`fields` is missing: say which tensors a `python` model takes",
    ),
    (
        {
            "workload.model": PYTHON_MODEL,
            "workload.data": {
                "kind": "synthetic",
                "fields": {"label": {"shape": [], "dtype": "int64"}},
                "validation": {"fraction": 0.1},
            },
        },
        "/workload/data/fields/label",
        "int64 needs `high`; add or drop it",
    ),
]

REFERENCES: list[tuple[Changes, str, str]] = [
    (
        {"inputs": {"a": {"from": f"bundle:{BUNDLE_ID}\n"}}},
        "/inputs/a/from",
        "must be `bundle:bun_` and 64 hex digits, as the upload answered it",
    ),
    (
        {"inputs": {"a": {"from": "bundle:bun_12"}}},
        "/inputs/a/from",
        "must be `bundle:bun_` and 64 hex digits, as the upload answered it",
    ),
    (
        {"inputs": {"a": {"from": "http://x"}}},
        "/inputs/a/from",
        "unknown scheme; known: bundle, s3, gs, az, https, hf; did you mean `https`?",
    ),
    (
        {"environment.requirements_file": "requirements.txt"},
        "/environment/requirements_file",
        "this is a path in the source, and `source` is not given; add it, or use input:NAME",
    ),
    (
        {
            "workload.data": {"kind": "text", "path": "input:tran/x", "validation": {"fraction": 0.1}},
            "inputs.train.from": "./x",
        },
        "/workload/data/path",
        "there is no input of this name in `inputs`; did you mean `train`?",
    ),
    (
        {"workload.data.validation": {"kind": "jsonl", "path": "input:t/a/../../b"}, "inputs.t.from": "./x"},
        "/workload/data/validation/path",
        "the path leaves its folder by `..`",
    ),
    (
        {"workload.data.tokenizer": "input:tok"},
        "/workload/data/tokenizer",
        "there is no input of this name in `inputs`",
    ),
    (
        {"workload.model": {"kind": "huggingface", "weights": "input:base"}},
        "/workload/model/weights",
        "there is no input of this name in `inputs`",
    ),
    (
        {"source": {"kind": "git", "url": "https://token@git.example/x.git"}},
        "/source/url",
        "the URL holds credentials, which would be stored and shown; use `source.secret`",
    ),
    (
        {"source": {"kind": "git", "url": "ssh://git:pw@git.example/x.git"}},
        "/source/url",
        "the URL holds credentials, which would be stored and shown; use `source.secret`",
    ),
    (
        {"environment.variables": {"MASTER_ADDR": "x"}},
        "/environment/variables/MASTER_ADDR",
        "the agent sets this variable; use another name",
    ),
    (
        {"environment.variables": {"SHUNTER_JOB_ID": "x"}},
        "/environment/variables/SHUNTER_JOB_ID",
        "the agent sets this variable; use another name",
    ),
    (
        {"environment.variables": {"TOKEN": "x"}, "environment.secrets": ["TOKEN"]},
        "/environment/variables/TOKEN",
        "`environment.secrets` gives a variable of this name too; leave one of them out",
    ),
    (
        {"environment.registry": {"secret": "GHCR"}},
        "/environment/registry",
        "needs `environment.image`, which is not given; add it, or leave this out",
    ),
    (
        {"outputs": {"secret": "S3"}},
        "/outputs/secret",
        "needs `outputs.uri`, which is not given; add it, or leave this out",
    ),
]


@pytest.mark.parametrize(
    ("changes", "pointer", "detail"),
    [*MODELS, *HUGGINGFACE, *LEARNING, *SYNTHETIC, *REFERENCES],
)
def test_a_contradiction_in_a_training_names_place_numbers_and_way_out(
    changes: Changes, pointer: str, detail: str
) -> None:
    (fault,) = faults_of(changed(tiny_lm(), changes))

    assert fault.pointer == pointer
    assert fault.detail.startswith(detail)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"resources": {"gpus": 4}},
        {"resources": {"nodes": 2, "gpus_per_node": 4}},
        {"resources": {"gpus": 8, "nodes": 2, "gpus_per_node": 4}},
        {"resources": {"gpus": {"min": 2, "max": 4}}},
        {"resources": {"gpus": 4, "min_gpu_memory_gib": 80}, "limits.max_gpu_idle_s": 60},
        {"strategy": {"kind": "hsdp"}},
        {"strategy": {"kind": "deepspeed", "zero_stage": 3, "offload_parameters": "cpu", "offload_optimizer": "cpu"}},
        {"workload.batch": {"global_size": 24, "micro_size": 4}},
        {"workload.duration": {"tokens": 10_000}},
        {"workload.schedule": {"kind": "linear", "warmup_ratio": 0.1}},
        {"workload.data.sequence_length": ABSENT},
        {"workload.model.kv_heads": 2},
        {"workload.data": {"kind": "synthetic", "validation": {"fraction": 0.1}}},
        {"source": {"kind": "git", "url": "ssh://git@git.example/x.git"}, "environment.requirements_file": "r.txt"},
        {"environment.variables": {"OMP_NUM_THREADS": "2", "A": "${job_id} costs $5 {}"}},
    ],
)
def test_a_training_without_contradictions_has_no_faults(changes: Changes) -> None:
    assert faults_of(changed(tiny_lm(), changes)) == []
