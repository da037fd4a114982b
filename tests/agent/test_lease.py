"""The dead-man lease and the machine's end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shunter_agent.keeping.clock import boot_id, boottime_s
from shunter_agent.keeping.launchfile import LaunchFile
from shunter_agent.keeping.lease import Lease
from support.agents import AgentMaker, assignment, command
from support.node_service import NodeService
from support.waiting import wait_until

ELSEWHERE: dict[str, Any] = {"ends_machine": True, "home_boot_id": "another machine's", "lease": {"expires_in_s": 0.5}}


def test_a_lease_that_is_not_renewed_stops_the_ranks(service: NodeService, make_agent: AgentMaker) -> None:
    agent = make_agent(ends_machine=False).start()
    service.lease = {"expires_in_s": 1.0}
    service.run(assignment(command("sleep", "60")))
    service.wait_for("rank_up")

    with service.absent():
        wait_until(lambda: not agent.ranks(), description="the lease ends the ranks")
    stopped = service.wait_for("stopped")

    assert stopped["reason"] == "lease_expired"
    assert "silent" in stopped["message"]
    service.wait_for("drained")
    assert agent.process.poll() is None


def test_a_lease_that_is_renewed_stops_nothing(service: NodeService, make_agent: AgentMaker) -> None:
    make_agent(lease={"expires_in_s": 1.5}).start()
    service.lease = {"expires_in_s": 1.5}
    service.run(assignment(command("sleep", "3")))

    service.wait_for("done")

    assert service.records("stopped") == []


def test_the_end_of_time_or_budget_stops_the_ranks(service: NodeService, make_agent: AgentMaker) -> None:
    make_agent().start()
    service.lease = {"expires_in_s": 3600, "stop_in_s": 1.0}
    service.run(assignment(command("sleep", "60")))
    service.wait_for("rank_up")
    service.lease = {"expires_in_s": 3600, "stop_in_s": 0.1}

    stopped = service.wait_for("stopped")

    assert (stopped["reason"], stopped["message"]) == ("lease_expired", "the time or budget is used up")
    service.wait_for("drained")


def test_a_node_that_never_met_its_service_ends_its_machine(
    tmp_path: Path, service: NodeService, make_agent: AgentMaker
) -> None:
    off = tmp_path / "off"
    with service.absent():
        make_agent(**ELSEWHERE, environment={"SHUNTER_AGENT_POWER_OFF": f"touch '{off}'"}).start()

        wait_until(off.exists, description="the power is off")


def test_a_machine_is_ended_in_its_provider_s_way_where_it_has_one(
    service: NodeService, make_agent: AgentMaker
) -> None:
    with service.absent():
        agent = make_agent(
            **ELSEWHERE, power_off="kill -TERM $PPID", environment={"SHUNTER_AGENT_POWER_OFF": "false"}
        ).start()

        wait_until(lambda: agent.process.poll() is not None, description="the agent, and the container with it, ends")


@pytest.mark.parametrize(
    ("told", "ends"),
    [
        ({"ends_machine": True, "home_boot_id": "another"}, True),
        ({"ends_machine": True, "home_boot_id": boot_id()}, False),
        ({"ends_machine": True, "home_boot_id": ""}, False),
        ({"ends_machine": True}, False),
        ({"home_boot_id": "another"}, False),
    ],
)
def test_the_machine_of_the_worker_is_never_powered_off(told: dict[str, Any], ends: bool, tmp_path: Path) -> None:
    path = tmp_path / "launch.json"
    path.write_text(json.dumps({"node": "shn-1", "sync_token": "t", "service_url": "http://127.0.0.1:1", **told}))

    assert LaunchFile(str(path)).ends_machine is ends


def test_one_s_own_machine_is_never_powered_off(tmp_path: Path, service: NodeService, make_agent: AgentMaker) -> None:
    off = tmp_path / "off"
    agent = make_agent(lease={"expires_in_s": 0.2}, environment={"SHUNTER_AGENT_POWER_OFF": f"touch '{off}'"})
    service.lease = {"expires_in_s": 0.2}
    service.next_sync_s = 1.5
    agent.start()

    service.run(assignment(command("sleep", "60")))
    service.wait_for("stopped")
    service.wait_for("drained")

    assert not off.exists()


def test_a_restart_does_not_lengthen_the_lease(tmp_path: Path) -> None:
    path = str(tmp_path / "lease.json")
    first = Lease(path, {"expires_in_s": 100.0})
    first.renew({"expires_in_s": 5.0, "stop_in_s": None}, boottime_s() - 4.5)

    again = Lease(path, {"expires_in_s": 100.0})

    left = again.next_s()
    assert left is not None
    assert left <= 0.5
    wait_until(again.expired, description="it ends when the first would have", timeout_s=2)
    assert not again.stop_due()


def test_after_a_reboot_the_wall_clock_counts(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    Lease(str(path), {"expires_in_s": 100.0})
    path.write_text(path.read_text().replace('"boot_id":"', '"boot_id":"another-'))

    left = Lease(str(path), {}).next_s()

    assert left is not None
    assert 95 < left <= 101


def test_no_lease_never_ends(tmp_path: Path) -> None:
    lease = Lease(str(tmp_path / "lease.json"), {"expires_in_s": None, "stop_in_s": None})

    assert (lease.expired(), lease.stop_due(), lease.next_s()) == (False, False, None)
