"""Data that do not fit the model, or come from nowhere: the place and the way out."""

from __future__ import annotations

from typing import Any

import pytest
from shunter_schemas.checks import cross_field_faults
from shunter_schemas.faults import Fault
from shunter_schemas.job import load_job
from support.documents import ABSENT, changed, tiny_lm

Changes = dict[str, Any]
CLASSIFIER = {"kind": "huggingface", "config": {"model_type": "bert"}, "task": "sequence_classification"}
VISION = {"kind": "huggingface", "config": {"model_type": "vit"}, "task": "image_classification"}
LINES = {"kind": "jsonl", "path": "input:a/x", "sequence_length": 64}
HUB = {"kind": "huggingface", "name": "input:a", "sequence_length": 64}
ALWAYS = {"inputs": {"a": {"from": "./a"}}, "workload.evaluation": ABSENT, "workload.checkpoint": ABSENT}


def faults_of(changes: Changes) -> list[Fault]:
    return list(cross_field_faults(load_job(changed(tiny_lm(), {**ALWAYS, **changes}))))


@pytest.mark.parametrize(
    ("changes", "pointer", "detail"),
    [
        (
            {"workload.data": {**HUB, "name": "acme/corpus"}},
            "/workload/data/name",
            "'acme/corpus' is a name of the hub, which nodes do not reach; download it, give its folder as an input, "
            "and name it `input:NAME`",
        ),
        (
            {"workload.data": {**HUB, "name": "input:b"}},
            "/workload/data/name",
            "there is no input of this name in `inputs`",
        ),
        (
            {"workload.data.validation": {**HUB, "name": "./corpus"}},
            "/workload/data/validation/name",
            "this is a path in the source, and `source` is not given; add it, or use input:NAME",
        ),
        (
            {"workload.data": {**HUB, "name": "input:a/../b"}},
            "/workload/data/name",
            "the path leaves its folder by `..`",
        ),
        (
            {"workload.data": {**HUB, "revision": "main"}},
            "/workload/data/revision",
            "a folder has no revisions; leave it out",
        ),
        (
            {"workload.data.tokenizer": "model"},
            "/workload/data/tokenizer",
            "`model` is the tokenizer of its `weights`, which this `transformer` model does not have; use `bytes` or "
            "`input:NAME[/path]`",
        ),
        (
            {"workload.data": {**LINES, "label": "class"}},
            "/workload/data/label",
            "classes are for models that classify texts; leave it out, or use a `huggingface` model with task "
            "'sequence_classification'",
        ),
        (
            {"workload.model": CLASSIFIER, "workload.data": LINES},
            "/workload/data/label",
            "'sequence_classification' needs classes; name the column of the classes",
        ),
        (
            {"workload.model": CLASSIFIER, "workload.data": {**LINES, "kind": "text"}},
            "/workload/data/kind",
            "'sequence_classification' needs classes; use jsonl or parquet with `label`",
        ),
        (
            {"workload.model": VISION, "workload.data": LINES},
            "/workload/data/kind",
            "`jsonl` does not fit /workload/model/task 'image_classification'",
        ),
    ],
)
def test_data_that_do_not_fit_are_named_with_the_way_out(changes: Changes, pointer: str, detail: str) -> None:
    (fault,) = faults_of(changes)

    assert (fault.pointer, fault.detail) == (pointer, detail)


@pytest.mark.parametrize(
    "changes",
    [
        {"workload.data": HUB},
        {"workload.data": {**HUB, "name": "input:a/sub"}},
        {"workload.model": CLASSIFIER, "workload.data": {**LINES, "label": "class"}},
        {"workload.model": VISION, "workload.data": {"kind": "image_folder", "path": "input:a"}},
        {
            "workload.model": {"kind": "huggingface", "weights": "input:a"},
            "workload.data": {**LINES, "tokenizer": "model", "validation": {**HUB, "tokenizer": "model"}},
        },
    ],
)
def test_data_that_fit_have_no_faults(changes: Changes) -> None:
    assert faults_of(changes) == []
