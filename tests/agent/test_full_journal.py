"""The disk under an agent's journal is full: the program goes on to its end, and the end is told once there is room."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from support.agents import AgentMaker, AgentProcess, assignment, command
from support.node_service import NodeService
from support.waiting import wait_until

NO_LIMIT = resource.RLIM_INFINITY


@pytest.fixture
def agent(make_agent: AgentMaker) -> AgentProcess:
    """One that tells at once that it is stuck."""
    return make_agent(environment={"SHUNTER_AGENT_STUCK_S": "0.2"}).start()


def test_a_program_ends_well_on_a_node_that_can_write_no_record_and_its_end_is_told_later(
    service: NodeService, agent: AgentProcess, tmp_path: Path
) -> None:
    """A limit on the agent's files stands for the disk: a full one still has room in the journal's last block."""
    gate, end = tmp_path / "gate", tmp_path / "end"
    service.run(assignment(command("/bin/sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done; echo well >{end}")))
    service.wait_for("rank_up")

    fill(agent)
    gate.touch()
    wait_until(end.exists, timeout_s=30, description="the program is done")
    wait_until(lambda: "too large" in service.statuses[-1].stuck, timeout_s=30, description="it says what keeps it")
    untold = service.records("rank_exit", "done", "failed", "stopped")
    free(agent)

    service.wait_for("drained", seconds=30)
    assert untold == []
    assert end.read_text() == "well\n"
    assert [record.type for record in service.records("done", "failed", "stopped")] == ["done"]
    wait_until(lambda: not service.statuses[-1].stuck, timeout_s=30, description="nothing keeps it any more")
    assert len(service.journals) == 1, "it is the same journal, without a gap"


def test_a_stop_is_obeyed_by_a_node_that_can_write_no_record(service: NodeService, agent: AgentProcess) -> None:
    service.run(assignment(command("sleep", "600")))
    service.wait_for("rank_up")

    fill(agent)
    service.stop()
    wait_until(lambda: not agent.ranks(), timeout_s=30, description="the rank has ended")
    untold = service.records("stopped")
    free(agent)

    service.wait_for("drained", seconds=30)
    assert untold == []
    assert [record.type for record in service.records("done", "failed", "stopped")] == ["stopped"]


def fill(agent: AgentProcess) -> None:
    size = (agent.folder / "journal" / "journal.jsonl").stat().st_size
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (size, NO_LIMIT))


def free(agent: AgentProcess) -> None:
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (NO_LIMIT, NO_LIMIT))
