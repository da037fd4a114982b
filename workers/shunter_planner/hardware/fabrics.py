"""What joins nodes, by the class that an offer names, and what collectives get out of a link."""

from __future__ import annotations

from typing import Final, NamedTuple


class Fabric(NamedTuple):
    """Between nodes. Bandwidth in GB/s (10^9 bytes), each direction."""

    gb_per_s_per_gpu: float
    latency_s: float
    """Of one hop of a collective over nodes."""
    source: str


FABRICS: Final[dict[str, Fabric]] = {
    "rdma": Fabric(
        25.0,
        15e-6,
        "200 Gb/s a GPU: ND A100 v4 and MosaicML's A100 cluster (1,600 Gb/s a node of 8); newer nodes have 400 Gb/s",
    ),
    "ethernet": Fabric(
        1.56, 50e-6, "100 Gb/s a node of 8 GPUs over TCP: what clouds give a GPU node without RDMA (AWS p3dn, GCP a2)"
    ),
    "any": Fabric(0.31, 100e-6, "20 Gb/s a node of 8 GPUs: nothing is promised, so little is assumed"),
    "loopback": Fabric(1.0, 50e-6, "gloo between processes of one machine"),
}

COLLECTIVE_SHARE: Final = 0.75
"""Of a link's bandwidth, what ring collectives of large messages get.

Prior: nccl-tests on DGX A100 and H100 print bus bandwidths of 230 of 300 and 360 of 450 GB/s (what a bus bandwidth is
says github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md).
"""


_BETTER: Final = ("none", "any", "ethernet", "rdma")


def fabric_of(interconnect: str, network_gbps: float | None = None, per_node: int = 1) -> Fabric:
    """The class by an offer's `interconnect`; a word that is not known promises nothing.

    Args:
        network_gbps: what the offer says of a whole node, in Gbit/s; the ranks of a node share it.
    """
    usual = FABRICS.get(interconnect, FABRICS["any"])
    if not network_gbps:
        return usual
    return Fabric(network_gbps / 8 / per_node, usual.latency_s, "the offer says so")


def rank_of(interconnect: str) -> int:
    """The higher the better: an unknown network before none, rdma last. A word that is not known is no better than
    `any`."""
    return _BETTER.index(interconnect) if interconnect in _BETTER else _BETTER.index("any")
