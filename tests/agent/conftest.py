"""A service and an agent for each test; both are ended, and what they did wrong is raised."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.agents import AgentMaker, AgentProcess
from support.node_service import NodeService


@pytest.fixture
def service() -> Iterator[NodeService]:
    running = NodeService()
    yield running
    running.close()


@pytest.fixture
def make_agent(tmp_path: Path, service: NodeService) -> Iterator[AgentMaker]:
    made: list[AgentProcess] = []

    def make(name: str = "node", **options: Any) -> AgentProcess:
        made.append(AgentProcess(tmp_path / name, service, **options))
        return made[-1]

    yield make
    for agent in made:
        agent.end()


@pytest.fixture
def agent(make_agent: AgentMaker) -> AgentProcess:
    """A running agent."""
    return make_agent().start()
