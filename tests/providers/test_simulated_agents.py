"""The simulated cloud with real agents: the conformance kit, and what becomes of agents with their nodes."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from shunter_providers.contract import Launch, NodeCondition
from shunter_providers.machine import processes
from shunter_providers.machine.folders import NodeFolder
from shunter_providers.simulated import SimulatedProvider
from shunter_providers.testing import ProviderConformance
from shunter_schemas.ids import new_deployment_id
from support.simulated_clouds import AGENT, an_intent, cloud, entries


@pytest.fixture
def deployment() -> str:
    return new_deployment_id()


class TestWithAgents(ProviderConformance):
    @pytest.fixture
    def provider(self, tmp_path: Path) -> SimulatedProvider:
        return cloud(tmp_path, nodes="agents", boot_s=0.1)

    @pytest.fixture
    def launch(self) -> Launch:
        return AGENT


async def test_an_agent_is_warned_before_its_node_is_taken_and_killed_after(tmp_path: Path, deployment: str) -> None:
    faults = [{"fault": "preempted", "delay_s": 1.5}]
    provider = cloud(tmp_path, nodes="agents", spot_notice_s=1.0, faults=faults)
    handle = await provider.create(await an_intent(provider, deployment, AGENT))
    folder = NodeFolder(tmp_path / "simulated" / "sim.nodes" / handle)
    await provider.get(handle)
    agent = folder.agent()
    assert agent is not None
    assert processes.is_alive(agent)

    warned = await _tended_until(provider, deployment, lambda: entries(provider)[0].warned)
    killed = await _tended_until(provider, deployment, lambda: not folder.remains())

    assert warned <= killed
    assert (await provider.get(handle)).condition is NodeCondition.GONE


async def test_an_agent_that_died_is_started_again_on_its_node(tmp_path: Path, deployment: str) -> None:
    provider = cloud(tmp_path, nodes="agents")
    handle = await provider.create(await an_intent(provider, deployment, AGENT))
    folder = NodeFolder(tmp_path / "simulated" / "sim.nodes" / handle)
    await _tended_until(provider, deployment, folder.agent)
    first = folder.agent()
    assert first is not None
    processes.send(first, signal.SIGKILL)

    await _tended_until(
        provider,
        deployment,
        lambda: (agent := folder.agent()) and agent != first and processes.is_alive(agent),
    )

    assert (await provider.get(handle)).condition is NodeCondition.RUNNING
    await provider.terminate(handle)


async def test_a_node_that_fails_to_boot_starts_no_agent(tmp_path: Path, deployment: str) -> None:
    provider = cloud(tmp_path, nodes="agents", faults=[{"fault": "fails_to_boot"}])

    handle = await provider.create(await an_intent(provider, deployment, AGENT))

    assert (await provider.get(handle)).condition is NodeCondition.FAILED
    assert not (tmp_path / "simulated" / "sim.nodes" / handle).exists()


async def test_two_clouds_on_one_machine_leave_each_others_nodes_alone(tmp_path: Path, deployment: str) -> None:
    """Both count their handles from 1."""
    clouds = [cloud(tmp_path / name, nodes="agents") for name in ("one", "other")]
    handles = [await each.create(await an_intent(each, deployment, AGENT)) for each in clouds]
    for each in clouds:
        await each.list_owned(deployment)
    folders = [NodeFolder(tmp_path / name / "simulated" / "sim.nodes" / handles[0]) for name in ("one", "other")]
    before = [len(folder.remains()) for folder in folders]

    await clouds[0].terminate(handles[0])

    after = [len(folder.remains()) for folder in folders]
    await clouds[1].terminate(handles[1])
    assert handles[0] == handles[1]
    assert before == [1, 1]
    assert after == [0, 1]


async def _tended_until(provider: SimulatedProvider, deployment: str, holds: Callable[[], object]) -> float:
    """List, as a scanner does, until something holds; when that was."""
    for _ in range(200):
        await provider.list_owned(deployment)
        if holds():
            return time.monotonic()
        await asyncio.sleep(0.05)
    raise AssertionError("not within 200 listings")
