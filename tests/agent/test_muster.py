"""Nodes that gather: agents open ports, call each other, say what came of it, and hold the master's port."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from shunter_agent.keeping.tuning import Tuning
from shunter_agent.muster.calling import Unanswered, call
from shunter_agent.muster.listening import Hold, Listener
from shunter_agent.muster.meeting import Meeting
from shunter_schemas.muster import Muster, Peer
from support.waiting import wait_until

QUICK = Tuning(call_timeout_s=0.3, muster_s=0.2)


@pytest.fixture
def listener() -> Iterator[Listener]:
    opened = Listener("right", fixed=False)
    yield opened
    opened.close()


@pytest.fixture
def meetings() -> Iterator[list[Meeting]]:
    opened = [Meeting(3, QUICK, lambda: None) for _ in range(2)]
    yield opened
    for meeting in opened:
        meeting.close()


def peer_of(meeting: Meeting, **changes: Any) -> dict[str, Any]:
    told = Muster.model_validate(meeting.status())
    peer = Peer(
        node_rank=1,
        ticket=told.ticket,
        addresses=["127.0.0.1"],
        rendezvous_port=told.rendezvous_port,
        data_port=told.data_port,
        measure=True,
    )
    return {**peer.model_dump(), **changes}


def reached(meeting: Meeting) -> list[dict[str, Any]]:
    wait_until(lambda: meeting.status()["reached"], description="the call is over")
    found: list[dict[str, Any]] = meeting.status()["reached"]
    return found


def test_a_call_is_answered_and_measured(listener: Listener) -> None:
    answered = call("127.0.0.1", listener.port, "right", 3.0, measure=True)

    assert answered.rtt_ms < 1000
    assert answered.gbit_per_s is not None
    assert answered.gbit_per_s > 0


@pytest.mark.parametrize(("ticket", "port"), [("wrong", None), ("right", 1)], ids=["another machine", "nobody"])
def test_a_call_of_another_machine_or_nobody_says_so(listener: Listener, ticket: str, port: int | None) -> None:
    with pytest.raises(Unanswered, match="another machine answers there" if port is None else "refused"):
        call("127.0.0.1", port or listener.port, ticket, 3.0)


def test_a_call_that_nobody_takes_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()

        with pytest.raises(Unanswered, match=r"no answer within 0\.2 s"):
            call("127.0.0.1", silent.getsockname()[1], "right", 0.2)

    assert time.monotonic() - began < 5


def test_a_closed_port_is_free_at_once() -> None:
    opened = Listener("right", fixed=True)
    threading.Thread(target=call, args=("127.0.0.1", opened.port, "right", 3.0)).run()

    opened.close()

    socket.create_server(("127.0.0.1", opened.port)).close()


def test_a_held_port_answers_nobody_and_is_given_to_nobody_who_asks_for_any() -> None:
    opened = Listener("right", fixed=True)
    opened.close()

    held = Hold(opened.port)

    with pytest.raises(Unanswered, match="refused"):
        call("127.0.0.1", opened.port, "right", 3.0)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", opened.port))
    held.close()
    socket.create_server(("127.0.0.1", opened.port)).close()


def test_nodes_that_gather_reach_each_other(meetings: list[Meeting]) -> None:
    first, second = meetings

    first.call([peer_of(second)])

    (found,) = reached(first)
    assert (found["ticket"], found["answers"]) == (second.ticket, {"127.0.0.1": ""})
    assert found["gbit_per_s"] > 0
    Muster.model_validate(first.status())


def test_a_peer_out_of_reach_is_told_with_its_port(meetings: list[Meeting]) -> None:
    first, second = meetings
    port = second.status()["rendezvous_port"]
    peer = peer_of(second)
    second.close()

    first.call([peer])

    (found,) = reached(first)
    assert found["answers"] == {"127.0.0.1": f"port {port} (rendezvous): connection refused"}


def test_a_peer_that_another_one_replaced_is_called_anew_and_the_old_one_forgotten(meetings: list[Meeting]) -> None:
    first, second = meetings
    first.call([peer_of(second)])
    reached(first)

    first.call([peer_of(second, ticket="another", addresses=[])])

    wait_until(lambda: [one["ticket"] for one in reached(first)] == ["another"], description="it is called")


def test_the_masters_port_stays_held_until_it_is_let_go(meetings: list[Meeting]) -> None:
    first, second = meetings
    ports = [meeting.status()["rendezvous_port"] for meeting in meetings]

    first.settle(as_master=True)
    second.settle(as_master=False)

    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", ports[0]))
    socket.create_server(("127.0.0.1", ports[1])).close()
    first.close()
    socket.create_server(("127.0.0.1", ports[0])).close()
