"""Nodes of made-up gangs that gather: what they tell of it, and rows that have told it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shunter_schemas.muster import Endpoint, Muster, Peer, Reach
from shunter_schemas.node_sync import Phase
from shunter_store.node.ledger import NodeRow

PORT = 23456
Faults = Mapping[tuple[int, int], str]
"""By ranks of the caller and the called: what goes wrong on every address."""


def muster(rank: int, generation: int = 1, reached: Sequence[Reach] = (), **changes: Any) -> Muster:
    """What the node of this rank tells; its address is `10.0.0.(rank + 1)` on `eth1`."""
    told: dict[str, Any] = {
        "generation": generation,
        "ticket": f"ticket-{rank}",
        "endpoints": [Endpoint(address=f"10.0.0.{rank + 1}", interface="eth1")],
        "rendezvous_port": PORT + rank,
        "data_port": 40000 + rank,
        "reached": list(reached),
    }
    return Muster(**{**told, **changes})


def reach(peer: Peer, fault: str = "") -> Reach:
    """A call of this peer, which answers unless there is a fault."""
    measured = {} if fault else {"rtt_ms": 0.2, "gbit_per_s": 9.0}
    return Reach(node_rank=peer.node_rank, ticket=peer.ticket, answers=dict.fromkeys(peer.addresses, fault), **measured)


def gathering(node: NodeRow, generation: int = 1, **changes: Any) -> NodeRow:
    """The row of a node that was told to gather and has opened its ports, and more or less."""
    told = muster(node.rank, generation).model_dump()
    ready = replace(node, desired_phase=Phase.MUSTER, desired_generation=generation, run_generation=generation - 1)
    return replace(ready, status={"phase": "idle", "muster": told}, **changes)


def gathered(nodes: Sequence[NodeRow], generation: int = 1, faults: Faults | None = None) -> list[NodeRow]:
    """The rows of nodes that have all called each other."""
    rows = [gathering(node, generation) for node in nodes]
    return [replace(row, status={**row.status, "muster": _called(row, rows, generation, faults or {})}) for row in rows]


def _called(row: NodeRow, rows: Sequence[NodeRow], generation: int, faults: Faults) -> dict[str, Any]:
    found = []
    for other in rows:
        if other is row:
            continue
        theirs = Muster.model_validate(other.status["muster"])
        named = other.addresses.get("private")
        own = [endpoint.address for endpoint in theirs.endpoints]
        peer = Peer(
            node_rank=other.rank,
            ticket=theirs.ticket,
            addresses=list(dict.fromkeys([named, *own] if named else own)),
            rendezvous_port=theirs.rendezvous_port,
            data_port=theirs.data_port,
        )
        found.append(reach(peer, faults.get((row.rank, other.rank), "")))
    return muster(row.rank, generation, found).model_dump()
