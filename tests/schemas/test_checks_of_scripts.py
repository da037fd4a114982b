"""Scripts that contradict themselves: both places, the numbers, and the way out."""

from __future__ import annotations

from typing import Any

import pytest
from shunter_schemas.checks import cross_field_faults
from shunter_schemas.faults import Fault
from shunter_schemas.job import load_job
from support.documents import ABSENT, BUNDLE_ID, changed, script

Changes = dict[str, Any]


def faults_of(document: dict[str, Any]) -> list[Fault]:
    return list(cross_field_faults(load_job(document)))


SCRIPTS: list[tuple[Changes, str, str]] = [
    (
        {"strategy": {"kind": "ddp"}, "workload.launcher": "plain"},
        "/strategy/kind",
        "`ddp` needs one process a rank, and `workload.launcher` plain starts one a node; use torch",
    ),
    (
        {"strategy": {"kind": "ddp", "bucket_mb": 50}},
        "/strategy/bucket_mb",
        "a script makes its own DistributedDataParallel; set this there",
    ),
    (
        {"strategy": {"kind": "fsdp"}, "resources": {"gpus": 2}},
        "/strategy/kind",
        "`fsdp` reaches a script through accelerate only, and `workload.launcher` is torch; use launcher accelerate, "
        "or strategy own for a program that shards itself",
    ),
    (
        {"strategy": {"kind": "hsdp", "shard_size": 2}, "workload.launcher": "accelerate"},
        "/strategy/kind",
        "accelerate does not do `hsdp` on CPUs, and `resources.cpu_processes` asks for them; use GPUs, ddp, or own",
    ),
    (
        {
            "strategy": {"kind": "fsdp", "reshard_after_forward": 2},
            "workload.launcher": "accelerate",
            "resources": {"gpus": 2},
        },
        "/strategy/reshard_after_forward",
        "2 is for `training`; accelerate, which brings this to a script, takes true or false; use true",
    ),
    (
        {"strategy": {"kind": "own", "deepspeed_file": "ds.json"}, "workload.launcher": "accelerate"},
        "/workload/launcher",
        "accelerate does not do DeepSpeed (/strategy/deepspeed_file) on CPUs (/resources/cpu_processes); use GPUs, or "
        "launcher torch for a program that calls DeepSpeed",
    ),
    ({"source": ABSENT}, "/workload/entrypoint", "a script needs `source`, where this file is; add it"),
    (
        {"workload.entrypoint": ABSENT},
        "/workload",
        "needs exactly one of `entrypoint` and `command`; neither is given",
    ),
    (
        {"workload.command": ["a"]},
        "/workload",
        "needs exactly one of `entrypoint` and `command`; both are given",
    ),
    (
        {"workload.entrypoint": ABSENT, "workload.command": ["a"], "workload.module": True},
        "/workload/module",
        "this is about `entrypoint`, and `command` is given; leave one of them out",
    ),
    (
        {"workload.entrypoint": ABSENT, "workload.command": ["a"], "workload.launcher": "torchrun"},
        "/workload/launcher",
        "`torchrun` starts Python, and `command` is given; use `plain`, `torch` or `entrypoint`",
    ),
    (
        {"workload.entrypoint": ABSENT, "workload.command": ["/usr/bin/torchrun", "--nproc-per-node", "2", "a.py"]},
        "/workload/command/0",
        "`torchrun` starts ranks itself, and `workload.launcher` torch starts it for each of 2 ranks "
        "(/resources/cpu_processes); use launcher plain, or `entrypoint` without it",
    ),
    (
        {"workload.entrypoint": ABSENT, "workload.command": ["python3", "-m", "accelerate.commands.launch", "a.py"]},
        "/workload/command/0",
        "`accelerate.commands.launch` starts ranks itself, and `workload.launcher` torch starts it for each of 2 ranks",
    ),
    (
        {"strategy": {"kind": "deepspeed"}},
        "/strategy/kind",
        "nothing hands the configuration to the program; name `${deepspeed_config}` in `workload.arguments`, use "
        "launcher accelerate, or strategy own for a program that brings its own",
    ),
    (
        {"workload.module": True},
        "/workload/entrypoint",
        "must be a module name such as `package.train`, since `module` is true",
    ),
    ({"workload.entrypoint": "../x.py"}, "/workload/entrypoint", "the path leaves its folder by `..`"),
    ({"strategy": {"kind": "auto"}}, "/strategy/kind", "`auto` is for `training`; a script distributes itself"),
    (
        {"workload.resume_arguments": ["--resume"]},
        "/workload/resume_arguments",
        "needs `workload.checkpoint`, which says how checkpoints are recognised; add it",
    ),
    (
        {"workload.arguments": ["${latest_checkpoint}"]},
        "/workload/arguments/0",
        "`${latest_checkpoint}` stands in `workload.resume_arguments` only: at the first start there is none",
    ),
    (
        {"workload.arguments": ["a", "x${inputs.tran}y"]},
        "/workload/arguments/1",
        "there is no input of this name in `inputs`; did you mean `train`?",
    ),
    (
        {"workload.arguments": ["${wrld_size}"]},
        "/workload/arguments/0",
        "unknown substitution; known: ${inputs.NAME}, ${checkpoint_dir}, ${latest_checkpoint}, ${output_dir}, "
        "${deepspeed_config}, ${accelerate_config}, ${world_size}, ${job_id}; did you mean `world_size`?",
    ),
    (
        {"workload.arguments": ["${deepspeed_config}"]},
        "/workload/arguments/0",
        "`${deepspeed_config}` needs `strategy`: deepspeed, or own with `deepspeed_file`",
    ),
    (
        {"workload.entrypoint": ABSENT, "workload.command": ["bash", "-c", "echo ${HOME}"]},
        "/workload/command/2",
        "unknown substitution; known: ${inputs.NAME}, ${checkpoint_dir}, ${latest_checkpoint}, ${output_dir}, "
        "${deepspeed_config}, ${accelerate_config}, ${world_size}, ${job_id}; "
        "a shell's own variable stands without braces: `$HOME`",
    ),
    ({"workload.arguments": ["${HOME"]}, "/workload/arguments/0", "`${` without `}`"),
    ({"workload.arguments": ["${}"]}, "/workload/arguments/0", "unknown substitution; known: "),
    (
        {"environment.variables": {"A": "${HOME}"}},
        "/environment/variables/A",
        "unknown substitution; known: ",
    ),
    (
        {
            "resources": {"gpus": 4},
            "recovery.min_gpus": 2,
            "workload.checkpoint": {"complete_file": "done"},
        },
        "/recovery/min_gpus",
        "a script that goes on with fewer ranks needs `workload.checkpoint.world_size`: `any`",
    ),
]


@pytest.mark.parametrize(("changes", "pointer", "detail"), SCRIPTS)
def test_a_contradiction_in_a_script_names_place_numbers_and_way_out(
    changes: Changes, pointer: str, detail: str
) -> None:
    (fault,) = faults_of(changed(script(), changes))

    assert fault.pointer == pointer
    assert fault.detail.startswith(detail)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"workload.module": True, "workload.entrypoint": "package.train", "source": ABSENT},
        {"workload.entrypoint": ABSENT, "workload.command": ["nvidia-smi"], "source": ABSENT},
        {
            "workload.entrypoint": ABSENT,
            "workload.command": ["bash", "run.sh", "${inputs.train}"],
            "workload.launcher": "plain",
        },
        {
            "workload.checkpoint": {"complete_file": "trainer_state.json", "world_size": "any"},
            "workload.resume_arguments": ["--resume", "${latest_checkpoint}"],
            "recovery.min_gpus": 2,
            "resources": {"gpus": 4},
        },
        {"workload.arguments": ["${deepspeed_config}"], "strategy": {"kind": "own", "deepspeed_file": "ds.json"}},
        {"workload.arguments": ["${deepspeed_config}"], "strategy": {"kind": "deepspeed", "zero_stage": 3}},
        {"workload.entrypoint": ABSENT, "workload.command": ["torchrun", "a.py"], "workload.launcher": "plain"},
        {
            "workload.entrypoint": ABSENT,
            "workload.command": ["torchrun", "a.py"],
            "resources": {"cpu_processes": 1},
        },
        {"workload.entrypoint": ABSENT, "workload.command": ["python", "-m", "my.launcher"]},
        {"workload.arguments": ["${output_dir}/x", "${world_size}${job_id}", "$HOME", "{}", "$$"]},
        {"inputs": {"train": {"from": f"bundle:{BUNDLE_ID}"}, "more": {"from": "./a:b"}}},
    ],
)
def test_a_script_without_contradictions_has_no_faults(changes: Changes) -> None:
    assert faults_of(changed(script(), changes)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": {"kind": "ddp"}},
        {"strategy": {"kind": "ddp"}, "workload.launcher": "torchrun"},
        {"strategy": {"kind": "ddp"}, "workload.launcher": "accelerate"},
        {"strategy": {"kind": "fsdp"}, "workload.launcher": "accelerate", "resources": {"gpus": 2}},
        {"strategy": {"kind": "hsdp"}, "workload.launcher": "accelerate", "resources": {"gpus": 2}},
        {"strategy": {"kind": "deepspeed"}, "workload.arguments": ["--deepspeed", "${deepspeed_config}"]},
        {"strategy": {"kind": "deepspeed"}, "environment.variables": {"DS_CONFIG": "${deepspeed_config}"}},
        {"strategy": {"kind": "deepspeed"}, "workload.launcher": "accelerate", "resources": {"gpus": 2}},
        {
            "strategy": {"kind": "own", "deepspeed_file": "ds.json"},
            "workload.launcher": "accelerate",
            "resources": {"cpu_processes": 1},
        },
    ],
)
def test_a_strategy_that_the_launcher_carries_is_taken(changes: Changes) -> None:
    assert faults_of(changed(script(), changes)) == []
