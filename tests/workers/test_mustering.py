"""What the muster of a gang comes to: addresses that all can use, or the node that spoils it and how."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from shunter_planner.values import as_json
from shunter_schemas.muster import Endpoint
from shunter_schemas.states import State
from shunter_store.node.ledger import NodeRow
from shunter_workers.deciding import decide
from shunter_workers.decisions import Settle
from shunter_workers.mustering import Meeting, Unmet, impostor, judge, tell
from shunter_workers.states.avoiding import avoided
from shunter_workers.view import Memory, View, memory_of
from support.meetings import PORT, gathered, muster
from support.views import CLOUD_OFFER, NOW, brief, job, on_cloud, on_cloud_node, plan_on, view

DROPPED = "port 23456 (rendezvous): no answer within 3 s"


def nodes(number: int, **changes: Any) -> list[NodeRow]:
    return [on_cloud_node(rank=rank, addresses={}, **changes) for rank in range(number)]


def met(rows: list[NodeRow]) -> Meeting:
    found = judge(rows, 1)
    assert isinstance(found, Meeting), found
    return found


def unmet(rows: list[NodeRow]) -> Unmet:
    found = judge(rows, 1)
    assert isinstance(found, Unmet), found
    return found


def seen(*rows: NodeRow, memory: Memory | None = None) -> View:
    plan = as_json(plan_on(CLOUD_OFFER, num_nodes=len(rows)))
    return view(job(State.PROVISIONING, on_cloud(), plan=plan, memory=memory or Memory()), *rows)


def with_endpoints(rows: list[NodeRow], rank: int, *endpoints: tuple[str, str]) -> list[NodeRow]:
    """The node of this rank has these addresses; the others have called it on each of them."""
    own = [Endpoint(address=address, interface=name) for address, name in endpoints]
    found = []
    for row in rows:
        told = dict(row.status["muster"])
        if row.rank == rank:
            told["endpoints"] = [endpoint.model_dump() for endpoint in own]
        else:
            told["reached"] = [
                {**reach, "answers": {one.address: "" for one in own}} if reach["node_rank"] == rank else reach
                for reach in told["reached"]
            ]
        found.append(replace(row, status={**row.status, "muster": told}))
    return found


def test_a_gang_that_reaches_each_other_meets_where_the_first_node_holds_a_port() -> None:
    meeting = met(gathered(nodes(3)))

    assert meeting.master_port == PORT
    assert meeting.addresses == {"node_0": "10.0.0.1", "node_1": "10.0.0.2", "node_2": "10.0.0.3"}
    assert set(meeting.interfaces.values()) == {"eth1"}


def test_nothing_is_known_before_every_node_has_called_every_other() -> None:
    rows = gathered(nodes(3))
    told = {**rows[1].status["muster"], "reached": rows[1].status["muster"]["reached"][:1]}

    assert judge([rows[0], replace(rows[1], status={"muster": told}), rows[2]], 1) is None
    assert judge([rows[0], replace(rows[1], status={}), rows[2]], 1) is None
    assert judge(rows, 2) is None, "that is another generation's"


def test_calls_of_a_node_that_was_replaced_meanwhile_do_not_count() -> None:
    rows = gathered(nodes(2))
    fresh = muster(1, ticket="another").model_dump()

    assert judge([rows[0], replace(rows[1], status={"muster": fresh})], 1) is None


@pytest.mark.parametrize(
    ("endpoints", "chosen"),
    [
        ([("5.9.0.9", "eth0"), ("10.1.0.9", "eth1")], ("10.1.0.9", "eth1")),
        ([("172.17.0.1", "docker0"), ("10.1.0.9", "eth1")], ("10.1.0.9", "eth1")),
        ([("172.17.0.1", "docker0"), ("5.9.0.9", "eth0")], ("5.9.0.9", "eth0")),
        ([("2a01:4f8::9", "eth0"), ("5.9.0.9", "eth0")], ("5.9.0.9", "eth0")),
    ],
    ids=["private over public", "no bridge of containers", "public before a bridge", "IPv4 before IPv6"],
)
def test_the_better_of_several_addresses_is_chosen(endpoints: list[tuple[str, str]], chosen: tuple[str, str]) -> None:
    meeting = met(with_endpoints(gathered(nodes(2)), 1, *endpoints))

    assert (meeting.addresses["node_1"], meeting.interfaces["node_1"]) == chosen


def test_what_the_provider_calls_private_goes_first_with_its_interface() -> None:
    rows = [replace(row, addresses={"private": "10.9.9.9", "interface": "ens5"}) for row in nodes(1)]
    meeting = met(gathered([*rows, *nodes(2)[1:]]))

    assert (meeting.addresses["node_0"], meeting.interfaces["node_0"]) == ("10.9.9.9", "ens5")


def test_a_firewall_is_named_with_who_cannot_reach_whom_and_where() -> None:
    found = unmet(gathered(nodes(2), faults={(0, 1): DROPPED}))

    assert found.node.rank == 1
    assert (
        "node 0 (10.0.0.1) cannot reach node 1: 10.0.0.2 port 23456 (rendezvous): no answer within 3 s" in found.detail
    )
    assert "20000-32000" in found.detail


@pytest.mark.parametrize(
    ("faults", "guilty"),
    [
        ({(0, 2), (1, 2), (3, 2)}, 2),
        ({(2, 0), (2, 1), (2, 3)}, 2),
        ({(1, 0), (2, 0), (3, 0)}, 0),
        ({(1, 3)}, 3),
        ({(3, 0)}, 0),
    ],
    ids=["nobody reaches it", "it reaches nobody", "the master is the one", "one call", "one call of the master"],
)
def test_the_node_that_the_failed_calls_have_in_common_is_blamed(faults: set[tuple[int, int]], guilty: int) -> None:
    found = unmet(gathered(nodes(4), faults=dict.fromkeys(faults, DROPPED)))

    assert found.node.rank == guilty


def test_what_nodes_say_is_cleaned_before_it_is_told() -> None:
    found = unmet(gathered(nodes(2), faults={(0, 1): "\x1b[31mred\x00" + "x" * 10_000}))

    assert "\x1b" not in found.detail
    assert "\x00" not in found.detail
    assert len(found.detail) < 1000


GPU = {"name": "NVIDIA H100 80GB HBM3", "memory_gib": 79.6}


@pytest.mark.parametrize(
    ("boot", "lie"),
    [
        ({"gpus": [GPU, GPU]}, None),
        ({"gpus": [GPU]}, "1 GPUs of 2"),
        ({"gpus": []}, "0 GPUs of 2"),
        ({"gpus": [GPU, {"name": "NVIDIA A100-SXM4-80GB", "memory_gib": 79.6}]}, "A100"),
        ({"gpus": [GPU, {**GPU, "memory_gib": 39.8}]}, "39.8 GiB instead of 80"),
        ({"gpus": [GPU, GPU], "cuda_error": "cuInit fails with error 999"}, "cuInit fails with error 999"),
        (None, None),
    ],
    ids=["as offered", "too few", "none", "another model", "less memory", "no CUDA", "not known"],
)
def test_a_node_that_lies_about_its_gpus_is_found_out(boot: dict[str, Any] | None, lie: str | None) -> None:
    rows = [replace(row, boot=boot) for row in nodes(2)]

    found = impostor(seen(*rows), rows)

    assert (found is None) == (lie is None)
    assert lie is None or (found is not None and lie in found.detail)


def test_a_refused_nodes_machine_is_passed_over_and_its_rank_is_made_anew() -> None:
    machines = [{"private": f"10.0.0.{rank + 1}", "machine": f"host-{rank}"} for rank in (0, 1)]
    rows = [replace(row, addresses=machines[row.rank]) for row in nodes(2)]

    decision = decide(seen(*gathered(rows, faults={(0, 1): DROPPED})), NOW)

    assert isinstance(decision, Settle)
    ((kind, data),) = decision.change.events
    assert (kind, data["machine"]) == ("node.refused", "host-1")
    assert decision.memory is not None
    memory = memory_of(job(State.PROVISIONING, facts={"steps": dict(decision.memory)}))
    assert [entry["machine"] for entry in memory.avoid] == ["host-1"]
    far = [{**entry, "until": 4e9} for entry in memory.avoid]
    assert avoided(seen(*rows, memory=Memory(avoid=far)), "cloud") == ("host-1",)
    assert avoided(seen(*rows, memory=Memory(avoid=far)), "another") == ()
    assert avoided(seen(*rows, memory=Memory(avoid=[{**far[0], "until": 1.0}])), "cloud") == ()


@pytest.mark.parametrize(
    ("shown", "machine"),
    [
        pytest.param({"condition": "running", "addresses": {"machine": "host-1"}}, "host-1", id="shown"),
        pytest.param({"condition": "unknown", "addresses": {}}, "", id="not shown"),
    ],
)
def test_where_a_refused_node_is_that_no_listing_has_shown_is_asked_once(shown: dict[str, Any], machine: str) -> None:
    rows = gathered(nodes(2, condition=None), faults={(0, 1): DROPPED})

    first = decide(seen(*rows), NOW)
    then = decide(seen(rows[0], replace(rows[1], **shown)), NOW)

    assert brief(first) == ["look node_1"]
    assert brief(then) == ["release node_1"]
    assert isinstance(then, Settle)
    assert [data["machine"] for _, data in then.change.events] == [machine]
    assert then.memory is not None
    assert [entry["machine"] for entry in then.memory["avoid"]] == [machine] * bool(machine)


def test_the_machine_of_a_node_that_is_refused_while_its_job_runs_is_passed_over_too() -> None:
    rows = [replace(row, addresses={"machine": f"host-{row.rank}"}) for row in nodes(2)]
    running = replace(seen(*rows).job, state=State.RUNNING)

    decision = decide(replace(seen(*rows), job=running, refusals={"node_1": "its agent has ended"}), NOW)

    assert isinstance(decision, Settle)
    assert decision.memory is not None
    assert [entry["machine"] for entry in decision.memory["avoid"]] == ["host-1"]


def test_the_history_tells_who_is_where_what_goes_through_and_whose_clock_is_wrong() -> None:
    rows = gathered(nodes(2))
    rows[1] = replace(rows[1], last_sync_at=NOW, status={**rows[1].status, "clock": NOW.timestamp() + 300})

    decision = decide(seen(*rows), NOW)

    events = dict(decision.change.events) if isinstance(decision, Settle) else {}
    assert events["node.clock_skew"] == {"node": "node_1", "node_rank": 1, "skew_s": 300.0}
    assert events["gang.met"] == tell(rows, met(rows), 1)
    assert events["gang.met"]["nodes"][1] == {
        "node_rank": 1,
        "address": "10.0.0.2",
        "interface": "eth1",
        "clock_skew_s": 300.0,
    }
    assert events["gang.met"]["links"][0] == {"from": 0, "to": 1, "rtt_ms": 0.2, "gbit_per_s": 9.0}
