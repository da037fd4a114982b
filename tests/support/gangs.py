"""Many trainings in one gang of real ranks, since starting torch costs more than a small training."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.ranks import place

_PROGRAM = Path(__file__).with_name("gang_program.py")


@dataclass(frozen=True, slots=True)
class Training:
    """One training of a gang's plan; `resume` is a checkpoint that is there when its turn comes."""

    name: str
    document: Mapping[str, Any]
    resume: Path | None = None
    probe: bool = False
    """Whether to measure the memory of its tensors, see `support.memory_probe`."""

    def as_json(self, folder: Path) -> dict[str, Any]:
        """What the program of a rank reads; `folder` is the gang's."""
        return {
            "folder": str(folder / self.name),
            "resume": str(self.resume) if self.resume else "",
            "probe": self.probe,
        }


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training left behind."""

    folder: Path

    def values(self, name: str) -> dict[int, float]:
        """One metric by step."""
        lines = [json.loads(line) for line in (self.folder / "metrics-0.jsonl").read_text().splitlines()]
        return {line["step"]: line[name] for line in lines if name in line}

    @property
    def losses(self) -> dict[int, float]:
        """The loss by step."""
        return self.values("loss")

    def checkpoint(self, step: int) -> Path:
        """The folder of the checkpoint of a step."""
        return checkpoint_of(self.folder, step)


def checkpoint_of(folder: Path, step: int) -> Path:
    """Where the training with this folder keeps the checkpoint of a step."""
    return folder / "checkpoints" / f"step-{step:08d}"


def train_all(
    folder: Path, world_size: int, trainings: Sequence[Training], timeout_s: float = 110.0, **variables: str
) -> dict[str, Trained]:
    """Run all of them, one after the other, in `world_size` ranks, each in `folder / name`.

    Raises: AssertionError with the output of the ranks when one of them fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for training in trainings:
        (folder / training.name).mkdir()
        (folder / training.name / "document.json").write_text(json.dumps(training.document))
    plan = folder / f"plan-{world_size}.json"
    plan.write_text(json.dumps([training.as_json(folder) for training in trainings]))
    port = str(_free_port())
    ranks = [
        _start(folder, plan, {**place(rank, world_size, 1), "MASTER_PORT": port, **variables})
        for rank in range(world_size)
    ]
    try:
        codes = _ended(ranks, timeout_s)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    errors = [(folder / f"stderr-{world_size}-{rank}").read_text()[-4000:] for rank in range(world_size)]
    assert codes == [0] * world_size, "\n".join(errors)
    return {training.name: Trained(folder / training.name) for training in trainings}


def _ended(ranks: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> list[int]:
    """Exit codes; ranks that are still there after `timeout_s`, all in all, show where they stand and end."""
    latest = time.monotonic() + timeout_s
    codes = []
    for rank in ranks:
        try:
            codes.append(rank.wait(max(latest - time.monotonic(), 0.1)))
        except subprocess.TimeoutExpired:
            rank.send_signal(signal.SIGABRT)
            codes.append(rank.wait(10))
    return codes


def _start(folder: Path, plan: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu",
        "SHUNTER_GENERATION": "1",
        "SHUNTER_INPUTS_DIR": str(folder / "inputs"),
        **variables,
    }
    name = f"{variables['WORLD_SIZE']}-{variables['RANK']}"
    with (folder / f"stdout-{name}").open("wb") as out, (folder / f"stderr-{name}").open("wb") as err:
        return subprocess.Popen(
            [sys.executable, str(_PROGRAM), str(plan)], cwd=folder, env=environment, stdout=out, stderr=err
        )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
