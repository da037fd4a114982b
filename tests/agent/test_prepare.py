"""Set-up: source, inputs, packages, commands; what fails is the user's to see, what is there is kept."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.agents import AgentMaker, AgentProcess, assignment, bundle, command, python
from support.node_service import NodeService
from support.waiting import wait_until

BUNDLE = {"source": {"kind": "bundle"}}


def entrypoint(name: str, **rest: Any) -> dict[str, Any]:
    return {"kind": "script", "entrypoint": name, **rest}


def test_a_bundle_is_unpacked_and_its_entrypoint_runs_in_it(service: NodeService, agent: AgentProcess) -> None:
    files = {"main.py": "import os, sys, other; print(other.X, sys.argv[1:], os.listdir('.'))", "other.py": "X = 7"}
    source = service.store("bundles/a", bundle(files)).model_dump()
    service.run(assignment(entrypoint("main.py", arguments=["--n", "1"]), source=source, document=BUNDLE))

    service.wait_for("drained")

    out = service.log(0, "stdout").decode()
    assert out.startswith("7 ['--n', '1']")
    assert "other.py" in out


def test_a_module_runs_as_a_module(service: NodeService, agent: AgentProcess) -> None:
    source = service.store(
        "bundles/a", bundle({"pkg/__init__.py": "", "pkg/__main__.py": "print(__name__)"})
    ).model_dump()
    service.run(assignment(entrypoint("pkg", module=True), source=source, document=BUNDLE))

    service.wait_for("drained")

    assert service.log(0, "stdout") == b"__main__\n"


def test_inputs_lie_where_the_document_says(service: NodeService, agent: AgentProcess) -> None:
    ref = service.store("bundles/in", bundle({"deep/data.txt": "numbers"})).model_dump()
    workload = command("cat", "${inputs.train}/deep/data.txt")
    document = {"inputs": {"train": {"from": "bundle:x"}}}
    service.run(assignment(workload, inputs={"train": ref}, document=document))

    service.wait_for("drained")

    assert service.log(0, "stdout") == b"numbers"
    data = agent.folder / "inputs/train/deep/data.txt"
    assert data.read_text() == "numbers"
    assert not data.stat().st_mode & 0o222


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    for number in (1, 2):
        (folder / "main.py").write_text(f"print('version {number}')")
        git(folder, "add", ".")
        git(folder, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", f"v{number}")
        git(folder, "tag", f"v{number}")
    return folder


@pytest.mark.parametrize(("ref", "version"), [(None, 2), ("main", 2), ("v1", 1)])
def test_a_git_source_is_checked_out_and_its_commit_told(
    service: NodeService, agent: AgentProcess, repository: Path, ref: str | None, version: int
) -> None:
    source = {"kind": "git", "url": f"file://{repository}", "ref": ref}
    service.run(assignment(entrypoint("main.py"), document={"source": source}))

    service.wait_for("drained")

    assert service.log(0, "stdout").decode() == f"version {version}\n"
    done = next(data for data in service.data("prepare") if data["status"] == "done")
    assert done["facts"] == {"commit": git(repository, "rev-parse", f"v{version}")}
    assert b"git fetch" in service.log(-1, "setup")


def test_a_later_attempt_gets_the_commit_of_the_first(
    service: NodeService, agent: AgentProcess, repository: Path
) -> None:
    commit = git(repository, "rev-parse", "v1")
    source = {"kind": "git", "url": f"file://{repository}", "ref": "main"}
    service.run(assignment(entrypoint("main.py"), document={"source": source}, source_commit=commit, generation=2))

    service.wait_for("drained")

    assert service.log(0, "stdout", generation=2) == b"version 1\n"


def test_a_missing_repository_is_the_users_to_see(service: NodeService, agent: AgentProcess, tmp_path: Path) -> None:
    source = {"kind": "git", "url": f"file://{tmp_path}/nowhere"}
    service.run(assignment(entrypoint("main.py"), document={"source": source}))

    failed = service.wait_for("failed")

    assert (failed["failure_class"], failed["reason"]) == ("user", "setup_failed")
    assert failed["message"].startswith("source: `git fetch")
    assert "nowhere" in failed["message"]


def test_setup_commands_run_in_the_source_with_the_documents_variables(
    service: NodeService, agent: AgentProcess
) -> None:
    source = service.store("bundles/a", bundle({"x": ""})).model_dump()
    environment = {"setup": ["echo $WHO > made; ls", "echo two | cat >> made"], "variables": {"WHO": "${job_id}"}}
    service.run(assignment(command("cat", "made"), source=source, document={**BUNDLE, "environment": environment}))

    service.wait_for("drained")

    assert service.log(0, "stdout") == b"job_test\ntwo\n"
    assert service.log(-1, "setup").startswith(b"$ echo $WHO > made; ls\nmade\nx\n$ echo two")


def test_a_setup_command_that_fails_shows_its_last_lines(service: NodeService, agent: AgentProcess) -> None:
    environment = {"setup": ["echo compiling; false | true; echo not reached"]}
    service.run(assignment(command("true"), document={"environment": environment}))

    failed = service.wait_for("failed")

    assert failed["reason"] == "setup_failed"
    assert "exited with code 1" in failed["message"]
    assert failed["message"].endswith("compiling")
    assert [(data["part"], data["status"]) for data in service.data("prepare")] == [
        ("setup", "started"),
        ("setup", "failed"),
    ]
    service.wait_for("drained")
    assert b"compiling\n" in service.log(-1, "setup")


def test_a_stop_ends_a_setup_that_takes_long(service: NodeService, agent: AgentProcess) -> None:
    service.run(assignment(command("true"), document={"environment": {"setup": ["sleep 60 & sleep 60"]}}))
    wait_until(lambda: len(agent.ranks()) == 3, description="the shell and both sleeps")

    service.stop()
    stopped = service.wait_for("stopped", seconds=5)

    assert stopped["reason"] == "cancelled_by_user"
    assert not agent.ranks()
    assert service.wait_for("drained") == {}
    assert service.records("rank_up", "failed") == []


def test_a_later_generation_keeps_what_the_node_has(service: NodeService, agent: AgentProcess) -> None:
    source = service.store("bundles/a", bundle({"x": ""})).model_dump()
    document = {**BUNDLE, "environment": {"setup": ["echo ran >> made"]}}
    service.run(assignment(command("cat", "made"), source=source, document=document))
    service.wait_for("drained")

    service.objects.pop("bundles/a")
    service.run(assignment(command("cat", "made"), source=source, document=document, generation=2))
    service.wait_for("drained", generation=2)

    assert service.log(0, "stdout", generation=2) == b"ran\n"


def test_requirements_come_into_an_environment_over_the_nodes_own(
    tmp_path: Path, service: NodeService, make_agent: AgentMaker
) -> None:
    wheel(tmp_path / "wheels", "shunter_test_one", "1.0")
    wheel(tmp_path / "wheels", "shunter_test_two", "2.0")
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels"), "PIP_NO_CACHE_DIR": "1"}
    agent = make_agent(environment=offline).start()
    files = {"main.py": "import shunter_test_one, shunter_test_two, pydantic, sys; print(sys.prefix)"}
    source = service.store("bundles/a", bundle({**files, "requirements.txt": "shunter-test-two>=1"})).model_dump()
    environment = {"requirements": ["shunter-test-one==1.0"], "requirements_file": "requirements.txt"}
    document = {**BUNDLE, "environment": environment}
    service.run(assignment(entrypoint("main.py"), source=source, document=document))

    service.wait_for("drained", seconds=60)

    assert service.log(0, "stderr") == b""
    assert service.log(0, "stdout").decode() == f"{agent.folder}/env\n"
    assert b"Successfully installed shunter-test-one-1.0 shunter-test-two-2.0" in service.log(-1, "setup")


def test_a_requirement_that_cannot_be_had_fails_with_pips_words(
    tmp_path: Path, service: NodeService, make_agent: AgentMaker
) -> None:
    (tmp_path / "wheels").mkdir()
    make_agent(environment={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}).start()
    service.run(assignment(python("pass"), document={"environment": {"requirements": ["shunter-test-none"]}}))

    failed = service.wait_for("failed", seconds=60)

    assert failed["reason"] == "setup_failed"
    assert "No matching distribution found for shunter-test-none" in failed["message"]


def git(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    answer = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()


def wheel(folder: Path, name: str, version: str) -> None:
    """A wheel of one empty module."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
