"""Real ranks of the trainer, started as an agent starts them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.waiting import wait_until

ENDS_WITHIN_S = 100.0


class Ranks:
    """A gang of trainer processes. Its files lie in `folder`; its source folder is `folder / "source"`."""

    program = "shunter_trainer"
    """The module that each rank runs."""
    ends_within_s = ENDS_WITHIN_S

    def __init__(
        self, folder: Path, document: Mapping[str, Any], world_size: int = 1, nodes: int = 1, **variables: str
    ) -> None:
        """Start the ranks. `variables` are added to their environment, over what is set here.

        Several nodes differ by their variables and have a folder of checkpoints each (`checkpoints-1` and so on).
        """
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self.output = folder / "output"
        self.source = folder / "source"
        self.source.mkdir(parents=True, exist_ok=True)
        (folder / "document.json").write_text(json.dumps(document))
        port = str(_free_port())
        local = world_size // nodes
        self.processes = [
            self._start(rank, {**place(rank, local, nodes), "MASTER_PORT": port, **variables})
            for rank in range(world_size)
        ]

    def end(self) -> list[int]:
        """Wait for all ranks; their exit codes."""
        return [process.wait(self.ends_within_s) for process in self.processes]

    def kill(self, *ranks: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to these ranks, or to all."""
        for rank in ranks or range(len(self.processes)):
            if self.processes[rank].poll() is None:
                self.processes[rank].send_signal(number)

    def close(self) -> None:
        """Leave no process behind."""
        self.kill()
        self.end()

    def lines(self, rank: int = 0) -> list[dict[str, Any]]:
        """What a rank wrote into its metrics file."""
        file = self.folder / f"metrics-{rank}.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def values(self, name: str) -> dict[int, float]:
        """One metric by step."""
        return {line["step"]: line[name] for line in self.lines() if name in line}

    def failure(self, rank: int = 0) -> dict[str, Any] | None:
        """Why a rank ended, by its own words."""
        return next((line for line in self.lines(rank) if line.get("event") == "failure"), None)

    def stderr(self, rank: int = 0) -> str:
        """What a rank wrote to stderr."""
        return (self.folder / f"stderr-{rank}").read_text()

    def whole(self) -> list[str]:
        """Names of the checkpoints that are there, oldest first."""
        return sorted(entry.name for entry in self.checkpoints.glob("step-*"))

    def await_step(self, step: int) -> None:
        """Wait until the training has come so far."""
        wait_until(
            lambda: self.lines() and self.lines()[-1].get("step", 0) >= step,
            description=f"step {step}",
            timeout_s=ENDS_WITHIN_S,
        )

    def _start(self, rank: int, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        node = variables["GROUP_RANK"]
        environment = {
            **os.environ,
            "MASTER_ADDR": "127.0.0.1",
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "SHUNTER_GENERATION": "1",
            "SHUNTER_DOCUMENT": str(self.folder / "document.json"),
            "SHUNTER_INPUTS_DIR": str(self.folder / "inputs"),
            "SHUNTER_CHECKPOINT_DIR": str(self.checkpoints) if node == "0" else f"{self.checkpoints}-{node}",
            "SHUNTER_OUTPUT_DIR": str(self.output),
            "SHUNTER_METRICS_FILE": str(self.folder / f"metrics-{rank}.jsonl"),
            **variables,
        }
        with (self.folder / f"stdout-{rank}").open("wb") as out, (self.folder / f"stderr-{rank}").open("wb") as err:
            return subprocess.Popen(
                [sys.executable, "-m", self.program], cwd=self.source, env=environment, stdout=out, stderr=err
            )


def place(rank: int, local: int, nodes: int) -> dict[str, str]:
    """Torchrun's variables for a rank, with `local` ranks on each node."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % local),
        "WORLD_SIZE": str(local * nodes),
        "LOCAL_WORLD_SIZE": str(local),
        "GROUP_RANK": str(rank // local),
        "GROUP_WORLD_SIZE": str(nodes),
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
