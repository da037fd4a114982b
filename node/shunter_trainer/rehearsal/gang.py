"""Two ranks on this machine, started as an agent starts them, and ended with the rehearsal."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from shunter_trainer.checkpoint.manifest import whole_checkpoints

CHECKPOINTS = "checkpoints"
OUTPUT = "output"
_POLL_S = 0.05
_PLACE = re.compile(r"\$\{([^{}]*)\}")


class Gang:
    """One start of all ranks; files of each act lie in `folder`."""

    def __init__(
        self, folder: Path, document: Mapping[str, Any], places: Mapping[str, Path], world_size: int, **variables: str
    ) -> None:
        """`places`: `source` and `inputs`. `variables` are added to the ranks' environment."""
        self.folder = folder
        self.checkpoints = folder / CHECKPOINTS
        self.output = folder / OUTPUT
        folder.mkdir(parents=True)
        (folder / "document.json").write_text(json.dumps(document), encoding="utf-8")
        self._late_after_s: float | None = None
        given = {**substituted(document, places["inputs"], folder, world_size), **variables}
        port = _free_port()
        self._ranks = [self._start(rank, world_size, port, places, given) for rank in range(world_size)]

    def __enter__(self) -> Gang:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def end(self, within_s: float) -> bool:
        """Wait until all ranks have ended; whether all succeeded. Once one has failed, the others are ended too."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            codes = [rank.poll() for rank in self._ranks]
            if all(code == 0 for code in codes):
                return True
            if any(code not in (None, 0) for code in codes):
                self._give_a_moment()
                break
            time.sleep(_POLL_S)
        else:
            self._late_after_s = within_s
        self.kill()
        return False

    def await_checkpoint(self, within_s: float) -> Path | None:
        """The first whole checkpoint; None when the ranks ended or the time was over before."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if found := whole_checkpoints(self.checkpoints):
                return found[0][1]
            if any(rank.poll() is not None for rank in self._ranks):
                return None
            time.sleep(_POLL_S)
        self._late_after_s = within_s
        return None

    @property
    def alive(self) -> bool:
        """Whether every rank still runs."""
        return all(rank.poll() is None for rank in self._ranks)

    def kill(self) -> None:
        """SIGKILL to every rank that still runs."""
        for rank in self._ranks:
            if rank.poll() is None:
                rank.send_signal(signal.SIGKILL)
        for rank in self._ranks:
            rank.wait()

    def lines(self, rank: int = 0) -> list[dict[str, Any]]:
        """What a rank wrote into its metrics file."""
        file = self.folder / f"metrics-{rank}.jsonl"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def values(self, name: str) -> dict[int, float]:
        """One metric by step."""
        return {line["step"]: line[name] for line in self.lines() if name in line and "step" in line}

    def why(self) -> str:
        """Why it failed: by the words of the rank that had a cause of its own, else the end of what was printed."""
        failures = [line for rank in range(len(self._ranks)) for line in self.lines(rank) if "reason" in line]
        own = [line for line in failures if line["reason"] != "peer_lost"] or failures
        if own:
            return str(own[0]["message"])
        tails = [(self.folder / f"stderr-{rank}").read_text(errors="replace") for rank in range(len(self._ranks))]
        words = "\n".join(tail[-2000:].strip() for tail in tails if tail.strip())
        if self._late_after_s is not None:
            return f"it was not over after {self._late_after_s:.0f} s and was ended. {words}".strip()
        return words or "the ranks ended without a word"

    def _give_a_moment(self) -> None:
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline and any(rank.poll() is None for rank in self._ranks):
            time.sleep(_POLL_S)

    def _start(
        self, rank: int, world_size: int, port: int, places: Mapping[str, Path], variables: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(max((os.cpu_count() or 2) // world_size, 1)),
            **variables,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "CUDA_VISIBLE_DEVICES": "",
            "SHUNTER_GENERATION": "1",
            "SHUNTER_DOCUMENT": str(self.folder / "document.json"),
            "SHUNTER_INPUTS_DIR": str(places["inputs"]),
            "SHUNTER_CHECKPOINT_DIR": str(self.checkpoints),
            "SHUNTER_OUTPUT_DIR": str(self.output),
            "SHUNTER_METRICS_FILE": str(self.folder / f"metrics-{rank}.jsonl"),
        }
        with (self.folder / f"stdout-{rank}").open("wb") as out, (self.folder / f"stderr-{rank}").open("wb") as err:
            command = [sys.executable, "-m", "shunter_trainer"]
            return subprocess.Popen(command, cwd=places["source"], env=environment, stdout=out, stderr=err)


def substituted(document: Mapping[str, Any], inputs: Path, folder: Path, world_size: int) -> dict[str, str]:
    """The document's variables, with what an agent puts in the place of `${…}`; `folder` is that of an act."""
    values = {
        "checkpoint_dir": str(folder / CHECKPOINTS),
        "output_dir": str(folder / OUTPUT),
        "world_size": str(world_size),
        "job_id": "rehearsal",
        **{f"inputs.{name}": str(inputs / name) for name in document.get("inputs") or {}},
    }
    given = (document.get("environment") or {}).get("variables") or {}
    return {name: _PLACE.sub(lambda found: values.get(found[1], found[0]), text) for name, text in given.items()}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
