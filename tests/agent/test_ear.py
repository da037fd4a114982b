"""An agent hears at once what else is wanted of its node, whatever the pace of its exchanges, and can do without."""

from __future__ import annotations

from typing import Any

from support.agents import AgentMaker, assignment, command
from support.node_service import NodeService
from support.waiting import wait_until

LATE_S = 600.0
"""Until the next exchange: nothing that a test waits for comes of it."""


def run_since(service: NodeService, since: float, task: dict[str, Any]) -> None:
    """Desire, from a moment on, that this runs."""
    service.run(task)
    service.desired = {**service.desired, "since": since}


def test_a_stop_does_not_wait_for_the_next_exchange(service: NodeService, make_agent: AgentMaker) -> None:
    make_agent().start()
    run_since(service, 1.5, assignment(command("sleep", "600")))
    service.wait_for("rank_up")
    service.next_sync_s = LATE_S
    wait_until(lambda: bool(service.listened), description="the agent listens")

    service.desired = {"phase": "stop", "generation": 1, "reason": "cancelled_by_user", "since": 2.5}

    assert service.wait_for("stopped")["reason"] == "cancelled_by_user"
    assert service.listened[0].since == 1.5


def test_what_is_new_on_the_node_is_told_while_the_ear_listens(service: NodeService, make_agent: AgentMaker) -> None:
    make_agent().start()
    run_since(service, 1.5, assignment(command("sleep", "1")))
    service.wait_for("rank_up")
    service.next_sync_s = LATE_S
    wait_until(lambda: bool(service.listened), description="the agent listens")

    service.wait_for("done")


def test_a_service_that_knows_no_listening_is_asked_once_and_heard_at_exchanges(
    service: NodeService, make_agent: AgentMaker
) -> None:
    service.knows_listening = False
    service.next_sync_s = 1.0
    agent = make_agent()
    agent.start()
    run_since(service, 1.5, assignment(command("sleep", "600")))
    service.wait_for("rank_up")
    wait_until(lambda: "ear: HTTP 404" in agent.log(), description="the ear was refused")
    exchanges = service.exchanges

    wait_until(lambda: service.exchanges > exchanges, description="exchanges go on")
    service.desired = {"phase": "stop", "generation": 1, "reason": "cancelled_by_user", "since": 2.5}

    service.wait_for("stopped")
    assert agent.log().count("ear:") == 1


def test_an_older_service_is_not_asked(service: NodeService, make_agent: AgentMaker) -> None:
    make_agent().start()
    service.next_sync_s = 1.0
    service.run(assignment(command("sleep", "600")))
    service.wait_for("rank_up")
    exchanges = service.exchanges

    wait_until(lambda: service.exchanges > exchanges, description="exchanges go on")

    assert service.listened == []


def test_an_agent_that_lost_the_service_listens_again(service: NodeService, make_agent: AgentMaker) -> None:
    make_agent().start()
    run_since(service, 1.5, assignment(command("sleep", "600")))
    service.wait_for("rank_up")
    service.next_sync_s = 1.0
    wait_until(lambda: bool(service.listened), description="the agent listens")

    with service.absent():
        listened = len(service.listened)
    wait_until(lambda: len(service.listened) > listened, description="it listens again")
    service.next_sync_s = LATE_S
    service.desired = {"phase": "stop", "generation": 1, "reason": "cancelled_by_user", "since": 2.5}

    service.wait_for("stopped")


def test_an_agent_that_shall_not_listen_does_not(service: NodeService, make_agent: AgentMaker) -> None:
    make_agent(environment={"SHUNTER_AGENT_LISTEN_S": "0"}).start()
    service.next_sync_s = 1.0
    run_since(service, 1.5, assignment(command("sleep", "600")))
    service.wait_for("rank_up")
    exchanges = service.exchanges

    wait_until(lambda: service.exchanges > exchanges, description="exchanges go on")

    assert service.listened == []
