"""The agent stays small, starts fast, and runs on other Pythons."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import shunter_agent
from support.agents import AgentMaker, AgentProcess, assignment, command
from support.node_service import NodeService
from support.waiting import wait_until

SOURCES = sorted(Path(shunter_agent.__file__).parent.glob("*.py"))
STANDARD = {"list", "dict", "set", "frozenset", "tuple", "type", "deque"}


def other_pythons() -> Iterator[str]:
    """Interpreters other than ours that really are there."""
    homes = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")]
    for minor in (8, 9, 10, 12, 13):
        found = [str(path) for home in homes for path in home.glob(f"3.{minor}.*/bin/python3")]
        found += [path for path in [shutil.which(f"python3.{minor}")] if path and "shims" not in path]
        yield from found[:1]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_file_is_python_3_8(path: Path) -> None:
    tree = ast.parse(path.read_text(), filename=str(path), feature_version=(3, 8))

    assert [imported.names[0].name for imported in tree.body[1:2] if isinstance(imported, ast.ImportFrom)] in (
        [],
        ["annotations"],
    )
    assert list(generics_at_run_time(tree)) == []


def generics_at_run_time(tree: ast.Module) -> Iterator[str]:
    """`list[int]` and the like outside of annotations, which Python 3.8 cannot evaluate."""
    annotations = set()
    for node in ast.walk(tree):
        noted = [getattr(node, field, None) for field in ("annotation", "returns")]
        annotations |= {id(inner) for one in noted if one is not None for inner in ast.walk(one)}
    for node in ast.walk(tree):
        generic = isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in STANDARD
        if generic and id(node) not in annotations:
            yield ast.unparse(node)


@pytest.mark.parametrize("python", list(other_pythons()) or [None])
def test_a_generation_runs_on_another_python(service: NodeService, make_agent: AgentMaker, python: str | None) -> None:
    if python is None:
        pytest.skip("no other Python here")
    make_agent(python=python).start()
    document = {"environment": {"setup": ["echo prepared"]}}
    service.run(assignment(command("sh", "-c", "echo $RANK"), ranks={"ranks_per_node": 2}, document=document))

    service.wait_for("drained")

    version = service.data("boot")[0]["python"]
    assert service.log(1, "stdout") == b"1\n"
    assert version.split(".")[1] != str(sys.version_info[1])


def test_an_idle_agent_takes_less_than_25_mb(service: NodeService, agent: AgentProcess) -> None:
    service.run(assignment(command("true")))
    service.wait_for("drained")
    wait_until(lambda: service.statuses[-1].phase == "drained", description="nothing is left to do")

    resident = Path(f"/proc/{agent.pid}/status").read_text().split("VmRSS:")[1].split()[0]

    assert int(resident) < 25_000


def test_nothing_slow_is_imported_before_the_first_exchange() -> None:
    program = "import sys, shunter_agent.agent; print(*sorted(sys.modules))"

    listing = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True, env=PATHS
    )

    slow = {"subprocess", "ctypes", "argparse", "logging", "urllib.request", "tarfile", "dataclasses", "asyncio", "ast"}
    assert slow & set(listing.stdout.split()) == set()


PATHS = {**os.environ, "PYTHONPATH": str(SOURCES[0].parents[1])}


@pytest.mark.parametrize("argv", [[], ["start"], ["run", "--dir"], ["stop", "--dir", "x"], ["run", "--folder", "x"]])
def test_wrong_usage_is_told(argv: list[str]) -> None:
    ended = subprocess.run([sys.executable, "-m", "shunter_agent", *argv], capture_output=True, text=True)

    assert ended.returncode == 2
    assert ended.stderr.startswith("usage: agent.pyz")
