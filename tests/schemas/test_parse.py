"""Documents with one thing wrong: where the fault points, and that it names the way out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from shunter_schemas.faults import DocumentError, Fault, nearest_existing
from shunter_schemas.parse import MAX_DOCUMENT_BYTES, parse_job, parse_posted_job
from support.documents import ABSENT, BUNDLE_ID, REPOSITORY, body, changed, script, tiny_lm

KINDS_OF_DATA = "sample, text, jsonl, chat, parquet, image_folder, webdataset, huggingface, python, synthetic"
ENDS = "with a letter or digit at both ends"


def faults_of(document: Any) -> list[Fault]:
    with pytest.raises(DocumentError) as refusal:
        parse_job(body(document))

    assert refusal.value.parseable
    return refusal.value.faults


@pytest.mark.parametrize("path", sorted((REPOSITORY / "examples").glob("*.json")), ids=lambda path: path.name)
def test_every_example_document_is_accepted_as_it_stands(path: Any) -> None:
    job = parse_job(path.read_bytes())

    assert job.version == "1"


def test_a_script_document_is_accepted() -> None:
    job = parse_posted_job(body(script()))

    assert job.strategy.kind == "own"
    assert job.world_size() == 2


@pytest.mark.parametrize(
    ("changes", "pointer", "detail"),
    [
        ({"name": ABSENT}, "", "`name` is missing"),
        ({"workload.batch": ABSENT}, "/workload", "`batch` is missing"),
        ({"workload.batch": {}}, "/workload/batch", "`global_size` is missing"),
        ({"workload.optimizer.betas": [0.9]}, "/workload/optimizer/betas", "`[1]` is missing"),
        (
            {"workload.optimizer.betas": [0.9, 0.9, 0.9]},
            "/workload/optimizer/betas",
            "must have at most 2 items, not 3",
        ),
        ({"resourcs": {}}, "/resourcs", "unknown field; did you mean `resources`?"),
        ({"workload.batch.globalSize": 1}, "/workload/batch/globalSize", "unknown field; did you mean `global_size`?"),
        ({"workload.model.layer": 3}, "/workload/model/layer", "unknown field; did you mean `layers`?"),
        ({"workload.batch.zzz": 1}, "/workload/batch/zzz", "unknown field; known here: global_size, micro_size"),
        (
            {"workload.batch.per_device_train_batch_size": 1},
            "/workload/batch/per_device_train_batch_size",
            "unknown field; did you mean `micro_size`?",
        ),
        (
            {"workload.batch.gradient_accumulation_steps": 2},
            "/workload/batch/gradient_accumulation_steps",
            "it follows from `global_size`, `micro_size` and the number of ranks; leave it out",
        ),
        ({"strategy.wrap": "auto"}, "/strategy/wrap", "unknown field; it goes with kind fsdp or hsdp"),
        (
            {"strategy.kind": "zero3"},
            "/strategy/kind",
            "unknown kind; kinds: auto, own, ddp, fsdp, hsdp, deepspeed; did",
        ),
        ({"workload.precision": "float16"}, "/workload/precision", "must be 'fp32', 'bf16', 'fp16' or 'fp8'; did you"),
        ({"strategy": {"kind": "fsdp", "wrap": "Block"}}, "/strategy/wrap", "must be 'auto', or a list"),
        ({"strategy.bucket": 3}, "/strategy/bucket", "unknown field; did you mean `bucket_mb`?"),
        ({"workload.training": 3}, "/workload/training", "unknown field; known here: kind, model"),
        ({"strategy.ddp": 3}, "/strategy/ddp", "unknown field; known here: kind, bucket_mb"),
        ({"inputs": {"a": {"from": "x", "from_": "x"}}}, "/inputs/a/from_", "unknown field; did you mean `from`?"),
        ({"inputs": {"a": {}}}, "/inputs/a", "`from` is missing"),
        ({"priority": "nromal"}, "/priority", "must be 'low', 'normal' or 'high'; did you mean `normal`?"),
        ({"version": "2"}, "/version", "must be '1'"),
        ({"version": 1}, "/version", "must be '1'"),
        (
            {"workload.kind": "trainig"},
            "/workload/kind",
            "unknown kind; kinds: training, script; did you mean `training`?",
        ),
        (
            {"workload.data.kind": "smaple"},
            "/workload/data/kind",
            f"unknown kind; kinds: {KINDS_OF_DATA}; did you mean",
        ),
        ({"workload.data.kind": 3}, "/workload/data/kind", f"unknown kind; kinds: {KINDS_OF_DATA}"),
        ({"workload.model": {}}, "/workload/model", "`kind` is missing; kinds: transformer, huggingface, python"),
        ({"strategy": "ddp"}, "/strategy", 'must be an object such as {"kind": "ddp"}; kinds: auto, own, ddp'),
        ({"strategy": ["ddp"]}, "/strategy", 'must be an object such as {"kind": "auto"}; kinds: auto, own, ddp'),
        ({"workload": None}, "/workload", 'must be an object such as {"kind": "training"}'),
        ({"resources": 3}, "/resources", "must be an object"),
        ({"labels": []}, "/labels", "must be an object"),
        ({"name": 3}, "/name", "must be a text"),
        ({"name": "-a"}, "/name", f"must be 1 to 63 letters, digits, spaces and `._-`, {ENDS}"),
        ({"name": "x" * 64}, "/name", f"must be 1 to 63 letters, digits, spaces and `._-`, {ENDS}"),
        ({"labels": {"/": "x"}}, "/labels/~1", "the key must be 1 to 63 letters, digits and `._/-`"),
        ({"labels": {"a": 3}}, "/labels/a", "must be a text"),
        ({"labels": {"a": "x" * 129}}, "/labels/a", "must have at most 128 characters"),
        ({"workload.seed": True}, "/workload/seed", "must be an integer"),
        ({"workload.seed": "17"}, "/workload/seed", "must be an integer"),
        ({"workload.seed": 1.0}, "/workload/seed", "must be an integer"),
        ({"workload.seed": -1}, "/workload/seed", "must be greater than or equal to 0"),
        ({"workload.gradient_clip_norm": "1"}, "/workload/gradient_clip_norm", "must be a number"),
        ({"workload.compile": 1}, "/workload/compile", "must be a text or true or false"),
        ({"workload.batch.micro_size": "aut"}, "/workload/batch/micro_size", "must be 'auto'; did you mean `auto`?"),
        ({"workload.batch.micro_size": 0}, "/workload/batch/micro_size", "must be greater than or equal to 1"),
        ({"workload.batch.micro_size": 1.5}, "/workload/batch/micro_size", "must be an integer"),
        ({"workload.batch.micro_size": True}, "/workload/batch/micro_size", "must be a text or a number"),
        (
            {"workload.precision": "fp23"},
            "/workload/precision",
            "must be 'fp32', 'bf16', 'fp16' or 'fp8'; did you mean `fp32`?",
        ),
        ({"workload.precision": {"reduce": "x"}}, "/workload/precision/reduce", "must be 'fp32', 'bf16' or 'fp16'"),
        ({"workload.precision": []}, "/workload/precision", "must be a text or an object"),
        ({"workload.data.validation": {"fraction": 1.0}}, "/workload/data/validation/fraction", "must be less than 1"),
        ({"workload.data.validation": {"fracton": 1}}, "/workload/data/validation", "`fraction` is missing"),
        ({"workload.data.validation": {"kind": "text"}}, "/workload/data/validation", "`path` is missing"),
        (
            {"workload.data.validation": {"kind": "text", "path": "a", "tokeniser": "bytes"}},
            "/workload/data/validation/tokeniser",
            "unknown field; did you mean `tokenizer`?",
        ),
        ({"resources": {"gpus": "2"}}, "/resources/gpus", "must be a number or an object"),
        ({"resources": {"gpus": {"min": 2}}}, "/resources/gpus", "`max` is missing"),
        ({"resources.gpu_models": ["H100", 3]}, "/resources/gpu_models/1", "must be a text"),
        ({"resources.gpu_models": "H100"}, "/resources/gpu_models", "must be a list"),
        (
            {"strategy": {"kind": "hsdp", "shard_size": "nod"}},
            "/strategy/shard_size",
            "must be 'node'; did you mean `node`?",
        ),
        ({"strategy": {"kind": "fsdp", "wrap": ["A", 1]}}, "/strategy/wrap/1", "must be a text"),
        ({"environment.variables": {"A-B": "x"}}, "/environment/variables/A-B", "the key must be a name of letters"),
        ({"placement.jurisdictions": ["eu"]}, "/placement/jurisdictions/0", "must be EU, EEA or an ISO country code"),
        ({"source": {"kind": "bundle", "id": "bun_1"}}, "/source/id", "must be `bun_` and 64 hex digits"),
        ({"source": {"kind": "git", "url": "ext::sh -c x"}}, "/source/url", "must be a URL (https, ssh, git or file)"),
        ({"source": {"kind": "git", "url": "https://a/b", "ref": "-x"}}, "/source/ref", "must be the name of a branch"),
        (
            {"tracking": [{"kind": "wandb"}, {"kind": "x"}]},
            "/tracking/1/kind",
            "must be 'wandb', 'mlflow' or 'tensorboard'",
        ),
        ({"limits": {"max_cost_usd": 0}}, "/limits/max_cost_usd", "must be greater than 0"),
    ],
)
def test_a_fault_in_the_shape_points_into_the_document(changes: dict[str, Any], pointer: str, detail: str) -> None:
    first = faults_of(changed(tiny_lm(), changes))[0]

    assert first.pointer == pointer
    assert first.detail.startswith(detail)


@pytest.mark.parametrize("document", [None, True, 3, "x", [], [tiny_lm()]])
def test_a_document_that_is_no_object_is_refused_as_a_whole(document: Any) -> None:
    assert faults_of(document) == [("", "must be an object")]


def test_all_faults_of_a_document_are_reported_at_once() -> None:
    document = changed(
        tiny_lm(), {"name": 3, "workload.batch.globl_size": 1, "strategy.kind": "dpd", "resources.disk_gib": -1}
    )

    pointers = [fault.pointer for fault in faults_of(document)]

    assert pointers == ["/name", "/workload/batch/globl_size", "/strategy/kind", "/resources/disk_gib"]


def test_a_broken_workload_is_not_blamed_on_the_strategy_it_would_have_chosen() -> None:
    document = changed(tiny_lm(), {"strategy": ABSENT, "workload.seed": "x"})

    assert faults_of(document) == [("/workload/seed", "must be an integer")]


@pytest.mark.parametrize(
    "changes",
    [
        {"environment.variables": {"TOKEN": 12345, "hunter2-hunter2": "hunter2-hunter2"}},
        {"environment.secrets": ["hunter2-hunter2"]},
        {"strategy.kind": "hunter2-hunter2"},
        {"name": "-hunter2-hunter2"},
        {"priority": "hunter2-hunter2"},
        {"source": {"kind": "git", "url": "https://me:hunter2-hunter2@git.example/x"}},
        {"inputs": {"a": {"from": "ftp://me:hunter2-hunter2@x"}}},
        {"workload": {"kind": "script", "command": ["a"], "arguments": ["${hunter2-hunter2}"]}},
    ],
)
def test_a_fault_never_repeats_a_value(changes: dict[str, Any]) -> None:
    details = [fault.detail for fault in faults_of(changed(tiny_lm(), changes))]

    assert details
    assert "hunter2" not in "".join(details)


def test_the_service_refuses_folders_that_the_command_line_would_replace() -> None:
    document = changed(script(), {"source": {"kind": "folder", "path": "."}, "inputs": {"train": {"from": "./data"}}})

    accepted = parse_job(body(document))
    with pytest.raises(DocumentError) as refusal:
        parse_posted_job(body(document))

    assert accepted.source is not None
    assert [fault.pointer for fault in refusal.value.faults] == ["/source/kind", "/inputs/train/from"]
    assert all("submit with the CLI, or upload a bundle" in fault.detail for fault in refusal.value.faults)


def test_a_fault_about_a_default_points_to_the_object_that_lacks_it() -> None:
    document = changed(tiny_lm(), {"strategy": ABSENT})

    assert nearest_existing("/strategy/kind", document) == ""


def test_a_range_of_gpus_over_which_no_batch_divides_is_refused_with_the_way_out() -> None:
    gpus = {"gpus": {"min": 5, "max": 7}}

    (fault,) = faults_of(changed(tiny_lm(), {"resources": gpus, "workload.batch": {"global_size": 16}}))

    assert fault.pointer == "/workload/batch/global_size"
    assert fault.detail == "16 samples divide over no number of ranks from 5 to 7 (/resources/gpus); use 15 or 20"


def test_a_document_of_a_megabyte_of_unknown_fields_lists_a_hundred_faults() -> None:
    document = {f"field{number}": number for number in range(40_000)}
    text = body(document)

    with pytest.raises(DocumentError) as refusal:
        parse_job(text)

    assert len(text) < MAX_DOCUMENT_BYTES
    assert len(refusal.value.faults) == 100


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("", ""),
        ("/a/b", "/a/b"),
        ("/a/c", "/a"),
        ("/x/y", ""),
        ("/list/1/k", "/list/1/k"),
        ("/list/2", "/list"),
        ("/list/-1", "/list"),
        ("/list/x", "/list"),
        ("/odd~1~0key", "/odd~1~0key"),
    ],
)
def test_a_pointer_is_cut_back_to_what_exists(pointer: str, expected: str) -> None:
    document = {"a": {"b": 1}, "list": [0, {"k": 1}], "odd/~key": 1}

    assert nearest_existing(pointer, document) == expected


def test_a_bundle_input_and_a_fixed_batch_are_accepted() -> None:
    document = changed(
        tiny_lm(),
        {
            "inputs": {"corpus": {"from": f"bundle:{BUNDLE_ID}"}},
            "workload.data": {"kind": "text", "path": "input:corpus/*.txt", "validation": {"fraction": 0.1}},
            "workload.batch": {"global_size": 16, "micro_size": 4},
        },
    )

    job = parse_posted_job(json.dumps(document, indent=4).encode())

    assert job.inputs["corpus"].from_ == f"bundle:{BUNDLE_ID}"


def test_the_address_of_a_schema_is_taken_and_dropped() -> None:
    job = parse_posted_job(body({"$schema": "http://127.0.0.1:8000/v1/schemas/job.json", **tiny_lm()}))

    assert job.model_dump(mode="json") == parse_posted_job(body(tiny_lm())).model_dump(mode="json")


@pytest.mark.parametrize("value", [3, {}, ["http://127.0.0.1"], "x" * 2049])
def test_what_is_no_address_of_a_schema_is_refused_at_its_place(value: Any) -> None:
    (fault,) = faults_of({"$schema": value, **tiny_lm()})

    assert fault.pointer == "/$schema"


def test_the_address_of_a_schema_belongs_at_the_top_only() -> None:
    (fault,) = faults_of(changed(tiny_lm(), {"workload.$schema": "http://127.0.0.1"}))

    assert fault.pointer == "/workload/$schema"
