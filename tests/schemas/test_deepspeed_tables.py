"""The tables of DeepSpeed's keys against the DeepSpeed that is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from shunter_schemas.deepspeed import tables

pytestmark = pytest.mark.slow

# In a process of its own: importing DeepSpeed patches torch, sets loggers up and warns.
_ASK = """
import inspect, json
from deepspeed.git_version_info import version
from deepspeed.runtime import config, constants, lr_schedules, precision_config
from deepspeed.runtime.zero import config as zero, leaf_module_config, offload_config
from deepspeed.runtime.zenflow.zenflow_config import ZenFlowConfig
from deepspeed.comm.config import CommsLoggerConfig
from deepspeed.monitor import config as monitor
from deepspeed.runtime.zero.utils import ZERO_SUPPORTED_OPTIMIZERS
import torch

def keys(model, deprecated=False):
    return sorted(
        field.alias or name for name, field in model.model_fields.items()
        if bool((field.json_schema_extra or {}).get("deprecated")) == deprecated
    )

def parameters(scheduler):
    names = inspect.signature(getattr(lr_schedules, scheduler).__init__).parameters
    return [name for name in names if name not in ("self", "optimizer")]

print(json.dumps({
    "version": version,
    "removed": [
        *config._REMOVED_TOP_LEVEL_CONFIG_KEYS, *("zero_optimization." + n for n in config._REMOVED_ZERO_CONFIG_KEYS)
    ],
    "deprecated": sorted("zero_optimization." + n for n in keys(zero.DeepSpeedZeroConfig, True)),
    "optimizers": config.DEEPSPEED_OPTIMIZERS,
    "zero_optimizers": sorted({kind.__name__ for kind in ZERO_SUPPORTED_OPTIMIZERS}),
    "schedulers": {
        n: parameters(n) for n in lr_schedules.VALID_LR_SCHEDULES
    },
    "source": inspect.getsource(config) + inspect.getsource(constants),
    "sections": {
        "zero_optimization": keys(zero.DeepSpeedZeroConfig),
        "zero_optimization.offload_param": keys(offload_config.DeepSpeedZeroOffloadParamConfig),
        "zero_optimization.offload_optimizer": keys(offload_config.DeepSpeedZeroOffloadOptimizerConfig),
        "zero_optimization.leaf_module": keys(leaf_module_config.DeepSpeedZeroLeafModuleConfig),
        "zero_optimization.zenflow": keys(ZenFlowConfig),
        "fp16": keys(precision_config.DeepSpeedFP16Config),
        "bf16": keys(precision_config.DeepSpeedBF16Config),
        "comms_logger": keys(CommsLoggerConfig),
        "tensorboard": keys(monitor.TensorBoardConfig),
        "wandb": keys(monitor.WandbConfig),
        "csv_monitor": keys(monitor.CSVConfig),
        "comet": keys(monitor.CometConfig),
    },
    "torch_optimizers": sorted(
        n for n, v in vars(torch.optim).items()
        if isinstance(v, type) and issubclass(v, torch.optim.Optimizer) and v is not torch.optim.Optimizer
    ),
}))
"""


@pytest.fixture(scope="module")
def installed() -> Mapping[str, Any]:
    import json

    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _ASK], env=environment, capture_output=True, text=True, timeout=90
    )
    assert answer.returncode == 0, answer.stderr
    found: Mapping[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


def test_the_tables_are_those_of_the_installed_release(installed: Mapping[str, Any]) -> None:
    assert installed["version"] == tables.DEEPSPEED_VERSION


def test_members_of_parts_are_those_that_deepspeed_reads(installed: Mapping[str, Any]) -> None:
    known = {place: sorted(tables.SECTIONS[place]) for place in installed["sections"]}

    assert known == {place: sorted(keys) for place, keys in installed["sections"].items()}


def test_old_keys_are_known_as_such(installed: Mapping[str, Any]) -> None:
    assert sorted(tables.REMOVED) == sorted(installed["removed"])
    assert set(installed["deprecated"]) <= set(tables.DEPRECATED)


def test_every_member_of_the_document_is_read_somewhere_in_deepspeed(installed: Mapping[str, Any]) -> None:
    parts_read_elsewhere = {
        *("aio", "autotuning", "checkpoint_writer", "comet", "comms_logger", "csv_monitor", "data_efficiency"),
        *("data_parallel_size", "datastates_ckpt", "flops_profiler", "activation_checkpointing", "tensor_parallel"),
        *("tensorboard", "timers", "train_iters", "train_steps", "wandb", "allgather_size"),
    }

    unread = {name for name in tables.TOP_LEVEL - parts_read_elsewhere if f'"{name}"' not in installed["source"]}

    assert {name for name in unread if f"'{name}'" not in installed["source"]} == set()


def test_optimizers_and_schedulers_are_deepspeeds(installed: Mapping[str, Any]) -> None:
    schedulers = {name: sorted(parameters) for name, parameters in tables.SCHEDULERS.items()}

    assert sorted(name.lower() for name in tables.OPTIMIZERS) == sorted(installed["optimizers"])
    assert schedulers == {name: sorted(found) for name, found in installed["schedulers"].items()}
    assert set(tables.TORCH_OPTIMIZERS) == set(installed["torch_optimizers"])
    named = {name.lower() for name in installed["zero_optimizers"]}
    assert {name for name in tables.ZERO_OPTIMIZERS if name != "muon"} <= {
        name.removeprefix("fused").removeprefix("deepspeedcpu") for name in named
    }


def test_every_optimizer_of_a_training_is_named_as_it_is_written() -> None:
    assert all(name == written.lower() for name, written in tables.TRAINING_OPTIMIZERS.items())
