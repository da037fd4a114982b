"""Who gathers with whom: what each node of a gang is told of the others before all of them run."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from shunter_schemas.muster import Muster, Peer
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import NodeState
from sqlalchemy import Connection, bindparam, select

from shunter_store.ledger_rows import NodeRow
from shunter_store.tables import nodes

_GATHERING = (
    select(nodes.c.rank, nodes.c.status)
    .where(
        nodes.c.job_id == bindparam("job"),
        nodes.c.state.not_in([NodeState.RELEASING, NodeState.GONE]),
        nodes.c.desired_phase == Phase.MUSTER,
        nodes.c.desired_generation == bindparam("of_generation"),
        nodes.c.id != bindparam("node"),
    )
    .order_by(nodes.c.rank)
)


def muster_of(status: dict[str, Any], generation: int) -> Muster | None:
    """What a node's last status says of this generation's gathering; None: nothing yet."""
    found = status.get("muster")
    if not found or found.get("generation") != generation:
        return None
    try:
        return Muster.model_validate(found)
    except ValidationError:
        return None


def peers_of(conn: Connection, node: NodeRow) -> list[Peer]:
    """The other nodes that have opened their ports for the generation which `node` gathers for, by rank."""
    key = {"job": node.job_id, "of_generation": node.desired_generation, "node": node.id}
    rows = [(row.rank, muster_of(row.status, node.desired_generation)) for row in conn.execute(_GATHERING, key)]
    there = [(rank, muster) for rank, muster in rows if muster is not None]
    ranks = [rank for rank, _ in there]
    after = min((rank for rank in ranks if rank > node.rank), default=min(ranks, default=None))
    return [
        Peer(
            node_rank=rank,
            ticket=muster.ticket,
            addresses=[endpoint.address for endpoint in muster.endpoints],
            rendezvous_port=muster.rendezvous_port,
            data_port=muster.data_port,
            measure=rank == after,
        )
        for rank, muster in there
    ]
