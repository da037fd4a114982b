"""Agents as real processes in a test's own folder, and the assignments that they get."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.node_service import TOKEN, NodeService
from support.waiting import wait_until

JOB = "job_test"
QUICK = {
    "SHUNTER_AGENT_LOOK_S": "0.05",
    "SHUNTER_AGENT_UP_AFTER_S": "0.1",
    "SHUNTER_AGENT_FAIL_GRACE_S": "1",
    "SHUNTER_AGENT_METRICS_S": "0.05",
    "SHUNTER_AGENT_SETTLE_S": "0.3",
    "SHUNTER_AGENT_RETRY_FIRST_S": "0.05",
    "SHUNTER_AGENT_RETRY_MOST_S": "0.3",
    "SHUNTER_AGENT_SYNC_TIMEOUT_S": "3",
}
"""Shorter waits than on a real node."""


class AgentProcess:
    """`shunter_agent run` on a folder of its own."""

    def __init__(
        self,
        folder: Path,
        service: NodeService,
        *,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        **launch: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._python = python
        self._environment = {**os.environ, **QUICK, "PYTHONPATH": _AGENT_PATH, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        told = {"node": f"shn-test-{folder.name}", "sync_token": TOKEN, "service_url": service.url, **launch}
        (folder / "launch.json").write_text(json.dumps(told))

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self) -> AgentProcess:
        argv = [self._python, "-m", "shunter_agent", "run", "--dir", str(self.folder)]
        with (self.folder / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(argv, env=self._environment, stdout=log, stderr=log, cwd=self.folder)
        return self

    def kill(self) -> None:
        """As a crash would end it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """However the test went: nothing of it is left."""
        self.kill()
        wait_until(lambda: not self.ranks(), description=f"ranks of {self.folder} gone")

    def wait(self, timeout_s: float = 15.0) -> int:
        return self.process.wait(timeout_s)

    def ranks(self) -> list[int]:
        """Live processes that belong to this agent (zombies have no environment)."""
        mark = f"SHUNTER_AGENT_DIR={self.folder}".encode()
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark in variables:
                found.append(int(name))
        return found

    def journal(self) -> list[dict[str, Any]]:
        """The records on the disk."""
        lines = (self.folder / "journal" / "journal.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines[1:]]

    def log(self) -> str:
        return (self.folder / "agent.log").read_text()


AgentMaker = Callable[..., AgentProcess]
"""What the fixture `make_agent` is: the arguments of `AgentProcess` after the first two, `name` before them."""

_AGENT_PATH = str(Path(__file__).parents[2] / "node")


def assignment(
    workload: Mapping[str, Any], *, generation: int = 1, ranks: Mapping[str, Any] | None = None, **rest: Any
) -> dict[str, Any]:
    """An assignment of one node; `document` is merged into the job document, everything else replaces its member."""
    place = {
        "node_rank": 0,
        "num_nodes": 1,
        "ranks_per_node": 1,
        "master_addr": "127.0.0.1",
        "master_port": 0,
        **(ranks or {}),
    }
    place.setdefault("world_size", place["num_nodes"] * place["ranks_per_node"])
    document = {"version": "1", "name": "test", "workload": dict(workload), **rest.pop("document", {})}
    return {
        "job_id": JOB,
        "generation": generation,
        "document": document,
        "ranks": place,
        "stop_grace_s": 5.0,
        **rest,
    }


def command(*argv: str, **workload: Any) -> dict[str, Any]:
    """A script workload that runs a command in each rank."""
    return {"kind": "script", "command": list(argv), **workload}


def python(program: str, **workload: Any) -> dict[str, Any]:
    """A script workload that runs a Python program in each rank."""
    return command("python", "-c", program, **workload)


TRAINING = {"kind": "training"}


def trainer(agent: AgentProcess, program: str) -> AgentProcess:
    """Put a trainer of this program into the agent's folder, for `TRAINING`."""
    package = agent.folder / "trainer.zip" / "shunter_trainer"  # a folder serves on PYTHONPATH as well as a zip
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(program)
    return agent


def bundle(files: Mapping[str, str | bytes], executable: Sequence[str] = ()) -> bytes:
    """A `tar.gz` of these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mode = 0o755 if name in executable else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
