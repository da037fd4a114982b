"""The example under other strategies, through a whole service: changed in one word, and in the middle."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from shunter import Client
from support.documents import REPOSITORY
from support.up_process import Up
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.trainer, pytest.mark.timeout(300)]

EXAMPLE = REPOSITORY / "examples" / "tiny-lm-ddp.json"
SHORT = ("workload.duration.steps=40", "workload.evaluation.every_steps=20")


def watched(up: Up, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shunter", *arguments, "--watch", "--json"],
        env={**os.environ, "SHUNTER_DATA_DIR": str(up.data_dir)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def settings(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--set", pair)]


@pytest.mark.parametrize("kind", ["fsdp", "deepspeed", pytest.param("hsdp", marks=pytest.mark.nightly)])
def test_the_example_succeeds_under_another_strategy_by_one_word(up: Up, tmp_path: Path, kind: str) -> None:
    ended = watched(up, "submit", str(EXAMPLE), *settings(*SHORT, f"strategy.kind={kind}"))

    assert ended.stdout, ended.stderr
    job = json.loads(ended.stdout)
    assert (ended.returncode, job["state"]) == (0, "succeeded"), ended.stderr
    with Client(data_dir=up.data_dir) as client:
        client.download_artifacts(job["id"], tmp_path)
        (losses,) = client.metrics(job["id"], names=["loss"]).series
    weights = load_file(tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    assert losses.steps[-1] == 40
    assert losses.values[-1] < losses.values[0] - 0.5
    assert sum(weight.numel() for weight in weights.values()) == 1_353_120
    assert weights["model.layers.3.mlp.up_proj.weight"].shape == (448, 160)
    assert config["architectures"] == ["LlamaForCausalLM"]


def test_a_stopped_ddp_job_goes_on_as_fsdp_on_another_number_of_ranks(up: Up) -> None:
    endless = ["workload.duration.steps=100000", "workload.checkpoint.every_steps=5", "limits.max_duration_s=8640000"]
    with Client(data_dir=up.data_dir) as client:
        first = client.submit(EXAMPLE, settings=endless)
        wait_until(lambda: list(client.checkpoints(first.id)), timeout_s=100, description="a checkpoint is committed")
        client.cancel(first.id)
        client.wait(first.id)
        saved = next(iter(client.checkpoints(first.id))).step

        second = client.retry(
            first.id, start_from="checkpoint", strategy={"kind": "fsdp"}, resources={"cpu_processes": 1}
        )
        wait_until(lambda: own(client, second.id), timeout_s=100, description="the second one saves too")
        client.cancel(second.id)
        client.wait(second.id)

        (losses,) = client.metrics(second.id, names=["loss"]).series
        assert losses.steps[0] > saved
        assert own(client, second.id)[0] > saved


def own(client: Client, job_id: str) -> list[int]:
    """Steps of the checkpoints that this job saved itself, newest first."""
    return [checkpoint.step for checkpoint in client.checkpoints(job_id) if checkpoint.from_job is None]
