"""DeepSpeed files of scripts: the same rules, the arguments of the program, and what is no document at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from shunter_schemas.deepspeed.file import MOST_BYTES, Program, file_faults
from shunter_schemas.faults import Fault

Config = dict[str, Any]
BATCH = "train_batch_size"
MICRO = "train_micro_batch_size_per_gpu"
SAME = 'give both the same value, or write "auto" there'


def file_faults_of(document: Any, *arguments: str, launcher: str = "torch") -> list[Fault]:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return list(file_faults(content, Program("ds.json", arguments, launcher, 4, "/resources/gpus")))


def test_a_file_of_a_script_is_held_to_the_same_rules_and_says_where() -> None:
    found = file_faults_of({BATCH: 30, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})

    assert found == [
        Fault(
            "/strategy/deepspeed_file",
            f"ds.json#/{BATCH}: 30 does not divide by 4 ranks (/resources/gpus), together 4; use 28 or 32",
        ),
        Fault(
            "/strategy/deepspeed_file",
            "ds.json#/zero_optimization/offload_param: works at stage 3 only, and `zero_optimization.stage` is 2; "
            "leave it out, or use 3",
        ),
    ]


def test_a_file_may_hold_keys_for_others_but_no_typing_errors() -> None:
    assert file_faults_of({"wandb_run": "x", "my_own_notes": {}}) == []
    assert [fault.detail for fault in file_faults_of({"train_batch_sise": 8})] == [
        f"ds.json#/train_batch_sise: DeepSpeed knows no such key; did you mean `{BATCH}`?"
    ]


@pytest.mark.parametrize(
    ("config", "arguments", "detail"),
    [
        (
            {MICRO: 4},
            ("--per_device_train_batch_size", "8"),
            f"`--per_device_train_batch_size` 8 contradicts `{MICRO}` 4 of ds.json; {SAME}",
        ),
        (
            {"bf16": {"enabled": False}},
            ("--bf16",),
            "`--bf16` true contradicts `bf16.enabled` false of ds.json; " + SAME,
        ),
        (
            {"bf16": {"enabled": True}},
            ("--fp16",),
            '`--fp16` contradicts `bf16.enabled` true of ds.json; give `--bf16`, or write "auto" for both there',
        ),
        (
            {"optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.95]}}},
            ("--adam-beta2=0.999",),
            "`--adam_beta2` 0.999 contradicts `optimizer.params.betas.1` 0.95 of ds.json; " + SAME,
        ),
        (
            {BATCH: 64, MICRO: "auto"},
            ("--per_device_train_batch_size=4", "--gradient_accumulation_steps", "2"),
            "the arguments give 4 on each of 4 ranks x 2 steps of accumulation, 32, and "
            f'`{BATCH}` says 64 of ds.json; write "auto" there',
        ),
    ],
)
def test_arguments_of_hugging_face_and_the_file_must_agree(
    config: Config, arguments: tuple[str, ...], detail: str
) -> None:
    found = file_faults_of(config, "--deepspeed", "ds.json", *arguments)

    assert found == [Fault("/workload/arguments/2", detail)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--per_device_train_batch_size", "4", "--bf16", "true", "--learning_rate", "1e-4"),
        ("--model", "x", "--learning_rate", "0.0001"),
    ],
)
def test_arguments_that_agree_with_the_file_are_taken(arguments: tuple[str, ...]) -> None:
    config = {MICRO: 4, "bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}

    assert file_faults_of(config, "--deepspeed", "${deepspeed_config}", *arguments) == []


def test_arguments_of_other_programs_are_not_read_as_hugging_faces() -> None:
    assert file_faults_of({MICRO: 4}, "--deepspeed_config", "ds.json", "--per_device_train_batch_size", "8") == []


def test_what_is_no_json_is_refused_where_the_program_reads_json() -> None:
    commented = b"{ // DeepSpeed itself takes comments\n}"

    assert file_faults_of(commented) == []
    assert file_faults_of(commented, launcher="accelerate")[0].detail.startswith("ds.json is not JSON: ")
    assert file_faults_of(commented, "--deepspeed", "ds.json")[0].detail.startswith("ds.json is not JSON: ")


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b'{"bf16": {}, "bf16": {}}', "ds.json: `bf16` stands there twice"),
        (b" " * (MOST_BYTES + 1), f"ds.json has {MOST_BYTES + 1} bytes, which is no DeepSpeed configuration"),
        (b"[]", "ds.json#: a DeepSpeed document is an object"),
    ],
)
def test_a_file_that_is_no_document_is_refused(content: bytes, detail: str) -> None:
    assert [fault.detail for fault in file_faults_of(content)] == [detail]


@pytest.mark.parametrize("document", [{"zero_optimization": {"stage": "3"}}, {"zero_optimization": None}, {"fp16": []}])
def test_odd_values_are_findings_and_never_crash(document: Config) -> None:
    found = file_faults_of({**document, "optimizer": 3, "scheduler": [], "bf16": {"enabled": 1}, BATCH: {}})

    assert all(fault.pointer == "/strategy/deepspeed_file" for fault in found)
    assert len(found) >= 2
