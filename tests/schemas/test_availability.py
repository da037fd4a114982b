"""Rows of the table of what this release cannot do: each refuses its document, and none is dead."""

from __future__ import annotations

import re
from typing import Any

import pytest
from shunter_schemas.availability import ROWS, Row, availability_faults
from shunter_schemas.faults import Fault
from shunter_schemas.job import load_job
from shunter_schemas.parse import parse_job
from support.documents import ABSENT, body, changed, script, tiny_lm

Changes = dict[str, Any]

TRAININGS: list[tuple[Changes, str]] = [
    ({"limits.max_gpu_idle_s": 60}, "/limits/max_gpu_idle_s"),
    ({"keep_alive_s": 60}, "/keep_alive_s"),
    ({"source": {"kind": "git", "url": "https://a/b", "secret": "TOKEN"}}, "/source/secret"),
    ({"inputs": {"a": {"from": "s3://acme/x"}}}, "/inputs/a/from"),
    ({"inputs": {"a": {"from": "hf://org/name@main"}}}, "/inputs/a/from"),
    ({"inputs": {"a": {"from": "./x", "mode": "stream"}}}, "/inputs/a/mode"),
    ({"inputs": {"a": {"from": "./x", "secret": "TOKEN"}}}, "/inputs/a/secret"),
    ({"workload.precision": "fp8"}, "/workload/precision"),
    ({"workload.precision": {"compute": "fp8"}}, "/workload/precision/compute"),
    ({"environment.registry": {"secret": "GHCR"}}, "/environment/registry"),
    ({"environment.python": "3.11"}, "/environment/python"),
    ({"environment.torch": "2.13"}, "/environment/torch"),
    ({"environment.secrets": ["HF_TOKEN"]}, "/environment/secrets"),
    ({"outputs": {"uri": "s3://acme/runs"}}, "/outputs/uri"),
    ({"outputs": {"secret": "S3"}}, "/outputs/secret"),
    ({"tracking": [{"kind": "wandb"}]}, "/tracking"),
]

CASES = [(tiny_lm, *case) for case in TRAININGS]


@pytest.mark.parametrize(("document", "changes", "pointer"), CASES)
def test_what_cannot_run_yet_is_refused_where_it_is_asked_for(document: Any, changes: Changes, pointer: str) -> None:
    (fault,) = availability_faults(load_job(changed(document(), changes)))

    assert fault.pointer == pointer
    assert fault.detail.startswith("not available yet: ")


def test_every_row_of_the_table_refuses_some_document() -> None:
    refused = {
        fault for document, changes, _ in CASES for fault in availability_faults(load_job(changed(document(), changes)))
    }

    dead = [row for row in ROWS if not any(_is_of(row, fault) for fault in refused)]

    assert dead == []


def _is_of(row: Row, fault: Fault) -> bool:
    place = re.escape(row.path).replace(r"\*", "[^.]+")
    return fault.detail.endswith(row.instead) and re.fullmatch(place, fault.pointer[1:].replace("/", ".")) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": {"kind": "auto"}},
        {"strategy": ABSENT},
        {"resources": {"gpus": {"min": 1, "max": 2}}},
        {"workload.precision": "bf16"},
        {"workload.precision": {"compute": "bf16"}},
        {"workload.precision": {"parameters": "bf16", "reduce": "bf16"}},
        {"workload.metrics": ["perplexity"], "workload.checkpoint.keep_best": "val_perplexity"},
        {"workload.export": ABSENT},
        {"workload.precision": "fp16", "workload.compile": True},
        {"workload.precision": {"compute": "fp16", "reduce": "fp16"}},
        {"workload.activation_checkpointing": "full"},
        {"workload.activation_checkpointing": "selective"},
        {"workload.profile": {"first_step": 2, "last_step": 4}, "workload.guards.loss_spikes.action": "stop"},
        {"workload.data.validation": {"kind": "sample"}},
        {"workload.data": {"kind": "synthetic", "validation": {"fraction": 0.1}}},
        {
            "workload.data": {"kind": "text", "path": "input:a/*.txt", "validation": {"fraction": 0.1}},
            "inputs.a.from": "./a",
        },
        {
            "workload.data": {"kind": "jsonl", "path": "input:a/x", "validation": {"fraction": 0.1}},
            "inputs.a.from": "./a",
        },
        {"workload.data": {"kind": "python", "target": "data:make", "validation": {"fraction": 0.1}}},
        {"workload.model": {"kind": "python", "target": "models:make"}},
        {"source": {"kind": "folder"}},
        {"source": {"kind": "git", "url": "https://git.example/a.git", "ref": "main"}},
        {"environment.requirements": ["einops"], "environment.setup": ["true"], "environment.variables": {"A": "b"}},
        {"resources": {"gpus": 4}, "placement.jurisdictions": ["EU"], "placement.providers": ["local"]},
        {"limits.max_cost_usd": 10.0, "limits.max_queue_s": 60, "recovery.user_restarts": 2},
    ],
)
def test_what_this_release_promises_is_accepted(changes: Changes) -> None:
    assert parse_job(body(changed(tiny_lm(), changes))).name == "tiny-lm-ddp"


@pytest.mark.parametrize("launcher", ["torch", "torchrun", "accelerate", "plain"])
def test_scripts_may_use_every_launcher(launcher: str) -> None:
    job = parse_job(body(changed(script(), {"workload.launcher": launcher})))

    assert job.workload.kind == "script"
    assert job.workload.launcher == launcher
