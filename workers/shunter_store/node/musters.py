"""Who gathers with whom: what each node of a gang is told of the others before all of them run."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final

from pydantic import ValidationError
from shunter_schemas.muster import Endpoint, Muster, Peer
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import NodeState
from sqlalchemy import Connection, bindparam, select

from shunter_store.node.ledger_rows import NodeRow
from shunter_store.tables import nodes

MOST_ADDRESSES: Final = 16
_INNER: Final = ("docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "podman", "lxc", "lxd")
"""What interfaces of bridges and containers are called: other machines have the same addresses there."""

_GATHERING = (
    select(nodes.c.rank, nodes.c.status, nodes.c.addresses)
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


def addresses_of(muster: Muster, told: Mapping[str, str]) -> list[str]:
    """Where a node may be reached, the best first: where its provider says, then private addresses, then others.

    The provider alone may name the loopback: then all its nodes are on one machine.
    """
    own = [endpoint.address for endpoint in sorted(muster.endpoints, key=_publicity)]
    named = told.get("private")
    return list(dict.fromkeys([named, *own] if named else own))[:MOST_ADDRESSES]


def _publicity(endpoint: Endpoint) -> tuple[bool, bool, bool]:
    """Networks between containers of one machine last; private before public; IPv4 before IPv6."""
    try:
        address = ip_address(endpoint.address)
    except ValueError:
        return True, True, True
    inner = endpoint.interface.startswith(_INNER)
    return inner or address.is_loopback, not address.is_private, address.version == 6


def peers_of(conn: Connection, node: NodeRow) -> list[Peer]:
    """The other nodes that have opened their ports for the generation which `node` gathers for, by rank."""
    key = {"job": node.job_id, "of_generation": node.desired_generation, "node": node.id}
    rows = conn.execute(_GATHERING, key).all()
    found = [(row.rank, muster_of(row.status, node.desired_generation), row.addresses) for row in rows]
    there = [(rank, muster, addresses_of(muster, told)) for rank, muster, told in found if muster is not None]
    ranks = [rank for rank, _, _ in there]
    after = min((rank for rank in ranks if rank > node.rank), default=min(ranks, default=None))
    return [
        Peer(
            node_rank=rank,
            ticket=muster.ticket,
            addresses=addresses,
            rendezvous_port=muster.rendezvous_port,
            data_port=muster.data_port,
            measure=rank == after,
        )
        for rank, muster, addresses in there
    ]
