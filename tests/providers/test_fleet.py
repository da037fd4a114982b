"""Agents that a fleet plays: they keep the nodes' protocol, and their process can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from shunter_providers.contract import Instance, Launch, OfferQuery
from shunter_providers.simulated import SimulatedProvider
from shunter_providers.simulated.entries import NEVER
from shunter_providers.simulated.fleet.line import Line
from shunter_providers.simulated.fleet.played import Birth, Played
from shunter_providers.simulated.settings import FleetSettings
from shunter_providers.testing import ProviderConformance, make_intent
from shunter_schemas.node_sync import LaunchFile, SyncRequest
from support.fleets import end_fleets, fleet_pids
from support.waiting import wait_until

BIRTH = Birth("sim-1", "shn-abcdef-1", "secret", "http://127.0.0.1:9", None, 100.0, NEVER)
MANNER = FleetSettings(prepare_s=1.0, run_s=10.0, stop_s=1.0, step_s=1.0)
ASSIGNMENT: dict[str, Any] = {
    "job_id": "job_1",
    "generation": 3,
    "document": {"workload": {"kind": "training"}},
    "ranks": {"node_rank": 0, "num_nodes": 1, "ranks_per_node": 2, "world_size": 2},
}


def played(manner: FleetSettings = MANNER, birth: Birth = BIRTH) -> Played:
    return Played(birth, manner, 0.0)


def said(agent: Played, now: float) -> SyncRequest:
    """What it sends, read as the service reads it."""
    return SyncRequest.model_validate_json(agent.message(now))


def answer(request: SyncRequest, phase: str, **desired: Any) -> dict[str, Any]:
    """The service's, which has everything now."""
    last = max((record.seq for record in request.records), default=0)
    return {"acknowledged": last, "desired": {"phase": phase, **desired}, "lease": {}, "next_sync_s": 5.0}


def exchange(agent: Played, now: float, phase: str, **desired: Any) -> list[str]:
    """One exchange; the types of what it told."""
    agent.act(now)
    request = said(agent, now)
    agent.hear(answer(request, phase, **desired), now, now)
    return [record.type for record in request.records]


def start(agent: Played, now: float = 0.0) -> None:
    exchange(agent, now, "run", generation=3, assignment=ASSIGNMENT)


def test_it_begins_with_its_boot_and_runs_what_it_is_told() -> None:
    agent = played()

    told = [
        exchange(agent, 0.0, "hold"),
        exchange(agent, 1.0, "run", generation=3, assignment=ASSIGNMENT),
        exchange(agent, 2.0, "run", generation=3),
        exchange(agent, 5.0, "run", generation=3),
    ]

    assert told == [["boot"], [], ["prepare", "prepare", "rank_up", "rank_up"], ["metrics", "progress"]]
    assert said(agent, 5.0).status.ranks_running == 2


def test_what_was_not_acknowledged_is_sent_again_with_the_same_numbers() -> None:
    agent = played()
    start(agent)
    agent.act(1.0)

    lost = said(agent, 1.0)
    agent.not_heard(0, 1.0)
    again = said(agent, 2.5)

    assert again.records[: len(lost.records)] == lost.records
    assert 1.0 < agent.next_at <= 12.0


def test_it_is_done_when_its_time_is_over_and_drained_when_everything_is_stored() -> None:
    agent = played()
    start(agent)
    exchange(agent, 1.0, "run", generation=3)

    agent.act(11.5)
    told = exchange(agent, 11.5, "run", generation=3)
    while agent.uploads:
        agent.uploaded(agent.uploads[0], 12.0)
    stored = exchange(agent, 12.0, "run", generation=3)

    assert told[-1] == "done"
    assert stored == ["checkpoint", "log", "drained"]


def test_a_stop_is_obeyed_and_told() -> None:
    agent = played()
    start(agent)
    exchange(agent, 1.0, "run", generation=3)

    exchange(agent, 2.0, "stop", generation=3, reason="cancelled")
    during = said(agent, 2.5).status.phase
    told = exchange(agent, 3.5, "stop", generation=3, reason="cancelled")

    assert during == "stopping"
    assert told[-1] == "stopped"


def test_a_generation_that_never_came_is_closed_when_it_is_stopped() -> None:
    agent = played()

    exchange(agent, 0.0, "stop", generation=3)

    assert exchange(agent, 1.0, "stop", generation=3) == ["stopped", "drained"]


def test_a_lease_that_ends_stops_it() -> None:
    agent = played(FleetSettings(prepare_s=0.0, stop_s=0.0))
    start(agent)
    agent.act(0.0)
    agent.hear(answer(said(agent, 0.0), "run", generation=3) | {"lease": {"expires_in_s": 50.0}}, 0.0, 0.0)

    agent.act(49.0)
    before = said(agent, 49.0).status.phase
    agent.act(51.0)
    after = said(agent, 51.0).status.phase

    assert before == "running"
    assert after in ("stopping", "ended")


def test_an_agent_that_is_told_of_a_change_comes_at_once_unless_the_service_is_away() -> None:
    agent = played()
    start(agent)
    exchange(agent, 2.0, "run", generation=3, since=1.5)
    calm = agent.wants_to_sync(3.0)

    agent.hurry(3.0)
    hurried = agent.wants_to_sync(3.0)
    said(agent, 3.0)
    agent.not_heard(0, 3.0)
    agent.hurry(3.0)

    assert (calm, hurried, agent.wants_to_sync(3.0)) == (False, True, False)
    assert agent.listens_since == 1.5


def test_an_agent_that_comes_often_or_knows_no_moment_need_not_listen() -> None:
    agent = played()
    request = said(agent, 0.0)

    agent.hear(answer(request, "hold", since=1.5) | {"next_sync_s": 0.2}, 0.0, 0.0)
    often = agent.listens_since
    agent.hear(answer(request, "hold"), 0.0, 0.0)

    assert (often, agent.listens_since) == (None, None)


def test_a_node_that_is_about_to_be_taken_away_fails_as_a_node() -> None:
    birth = Birth("sim-1", "shn-abcdef-1", "secret", "http://127.0.0.1:9", None, None, warned_at=5.0)
    agent = played(birth=birth)
    start(agent)
    exchange(agent, 1.0, "run", generation=3)

    agent.act(5.0)
    agent.act(6.0)

    [end] = [record for record in said(agent, 6.0).records if record.type == "failed"]
    assert (end.data["failure_class"], end.data["reason"]) == ("node", "interrupted")


def test_a_fleet_that_is_started_again_goes_on_where_time_says_it_is() -> None:
    killed, next_one = played(), played()
    start(killed)
    killed.act(1.0)

    next_one.take_up(json.loads(json.dumps(killed.kept())), 6.0)
    told = said(next_one, 8.0)

    assert next_one.journal_id != killed.journal_id
    assert (told.status.phase, told.status.generation) == ("running", 3)
    assert [
        point["step"] for record in told.records if record.type == "metrics" for point in record.data["points"]
    ] == [
        5,
        6,
    ]


def taken_up(killed: Played, now: float) -> Played:
    """The agent as the next fleet plays it."""
    agent = Played(BIRTH, MANNER, now)
    agent.take_up(json.loads(json.dumps(killed.kept())), now)
    return agent


def test_an_end_that_was_not_heard_is_said_again_by_the_next_fleet() -> None:
    killed = played()
    start(killed)
    exchange(killed, 1.0, "run", generation=3)
    killed.act(11.5)

    agent = taken_up(killed, 15.0)
    told = exchange(agent, 15.0, "run", generation=3)

    assert told == ["boot", "done", "drained"]
    assert said(agent, 16.0).status.phase == "drained"


def test_what_was_heard_is_not_said_again_by_the_next_fleet() -> None:
    killed = played()
    start(killed)
    exchange(killed, 1.0, "run", generation=3)
    killed.act(11.5)
    killed.uploads.clear()
    exchange(killed, 12.0, "run", generation=3)

    agent = taken_up(killed, 15.0)
    told = exchange(agent, 15.0, "run", generation=3)

    assert told == ["boot"]


def test_a_stop_under_way_keeps_its_reason_when_the_fleet_is_killed() -> None:
    killed = played()
    start(killed)
    exchange(killed, 1.0, "run", generation=3)
    exchange(killed, 2.0, "stop", generation=3, reason="cancelled")

    agent = taken_up(killed, 5.0)
    agent.act(5.0)

    [end] = [record for record in said(agent, 5.0).records if record.type == "stopped"]
    assert end.data == {"reason": "cancelled"}


@asynccontextmanager
async def server(*replies: bytes) -> AsyncIterator[str]:
    """Gives each connection one reply of these for each request, then hangs up."""
    left = list(replies)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(left.pop(0))
            await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()


async def test_a_line_that_was_closed_is_opened_again() -> None:
    ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    line = Line(5.0)

    async with server(ok, ok) as base:
        replies = [await line.call(base, "POST", "/", {}, b"") for _ in range(2)]
        line.close()

    assert [reply.status for reply in replies] == [200, 200]


async def test_no_answer_is_no_error_of_the_line() -> None:
    line = Line(5.0)

    async with server(b"") as base:
        hung_up = await line.call(base, "POST", "/", {}, b"")
    refused = await line.call("http://127.0.0.1:9", "POST", "/", {}, b"")

    assert (hung_up.status, refused.status) == (0, 0)


LAUNCH = Launch(
    argv=("true",),
    files={
        "launch.json": LaunchFile(node="shn-test", sync_token="secret", service_url="http://127.0.0.1:9")
        .model_dump_json()
        .encode()
    },
)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[SimulatedProvider]:
    settings = {"nodes": "fleet", "boot_s": 0.1, "fleet": {"idle_exit_s": 2.0}}
    yield SimulatedProvider(Instance("sim", "simulated", settings, str(tmp_path)))
    end_fleets(tmp_path)


class TestWithAFleet(ProviderConformance):
    @pytest.fixture
    def provider(self, fleet: SimulatedProvider) -> SimulatedProvider:
        return fleet

    @pytest.fixture
    def launch(self) -> Launch:
        return LAUNCH


def test_one_process_plays_and_it_is_started_again_when_it_was_killed(fleet: SimulatedProvider, tmp_path: Path) -> None:
    asyncio.run(make_nodes(fleet, 3))
    wait_until(lambda: len(fleet_pids(tmp_path)) == 1, timeout_s=30, description="a fleet plays")
    [first] = fleet_pids(tmp_path)

    os.kill(first, signal.SIGKILL)

    def plays_again() -> bool:
        asyncio.run(fleet.list_owned("abcdef"))
        return fleet_pids(tmp_path) not in ([], [first])

    wait_until(plays_again, timeout_s=30, description="another one plays")


async def make_nodes(fleet: SimulatedProvider, count: int) -> None:
    offer = (await fleet.offers(OfferQuery()))[0]
    await asyncio.gather(*(fleet.create(make_intent("abcdef", offer, LAUNCH)) for _ in range(count)))
