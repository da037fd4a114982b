"""A CKS cluster: nodes as CoreWeave labels them, behind the kube API."""

from __future__ import annotations

from typing import Any

from support.clouds.kube_scheduler import node
from support.clouds.kubernetes import KubernetesCluster


def h100(name: str, fabric: str, region: str = "US-EAST-04A", **labels: str) -> dict[str, Any]:
    """A node with eight of them on InfiniBand."""
    shown = {
        "gpu.nvidia.com/class": "H100_NVLINK_80GB",
        "gpu.nvidia.com/vram": "80",
        "backend.coreweave.cloud/fabric": fabric,
        "backend.coreweave.cloud/flavor": "infiniband",
        **labels,
    }
    extended = {"rdma/ib": "1k"}
    return node(name, "gd-8xh100ib-i128", 128, 2048, gpus=8, region=region, labels=shown, extended=extended)


class CoreweaveCluster(KubernetesCluster):
    """Nodes in two countries, unless others are given."""

    def __init__(self, token: str, *nodes: dict[str, Any], **more: Any) -> None:
        super().__init__(token, **more)
        self.cluster_nodes = list(nodes) or [
            h100("g1", "f1"),
            h100("g2", "f1"),
            h100("g3", "f2", region="EU-SOUTH-03B"),
            node("c1", "turin-gp", 64, 256, region="EU-SOUTH-03B"),
        ]
