"""CoreWeave: pods of a cluster of its Kubernetes service (CKS), with its kinds of nodes, labels, fabrics and prices.

Nodes come and go with node pools, which bill by the hour whether pods stand on them or not. CoreWeave publishes prices
on a page and in no API: they come from the bundled catalogue, unless the settings name others. Spot nodes have no
label of their own: give the pool one (`nodeLabels`), and name it in `spot_labels`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Final

from pydantic import Field

from shunter_providers import catalogue
from shunter_providers.clouds.kubernetes.nodes import Kind, configured_price
from shunter_providers.clouds.kubernetes.provider import KubernetesProvider
from shunter_providers.clouds.kubernetes.settings import (
    Country,
    KubernetesOptions,
    KubernetesSettings,
    LabelKey,
    LabelValue,
    Usd,
)
from shunter_providers.contract import Capabilities, Instance, Price, SelfStop
from shunter_providers.gpu_names import gpu_model
from shunter_providers.plugin_settings import read_settings

# fmt: off
_REGIONS: Final[Mapping[str, str]] = {
    "US-*": "US", "ATL*": "US", "AUS*": "US", "DFW*": "US", "LAS*": "US", "LGA*": "US", "ORD*": "US", "RDU*": "US",
    "RNO*": "US", "SBN*": "US",
    "CA-EAST-*":     "CA",
    "EU-NORTH-01*":  "SE",
    "EU-NORTH-02*":  "NO",
    "EU-NORTH-04*":  "SE",
    "EU-NORTH-05*":  "DK",
    "EU-SOUTH-01*":  "ES",
    "EU-SOUTH-03*":  "ES",
    "EU-SOUTH-04*":  "ES",
    "EU-WEST-01*":   "GB",
    "EU-WEST-02*":   "GB",
}
"""Regions and their availability zones."""
# fmt: on
_NCCL: Final[Mapping[str, str]] = {
    "NCCL_SOCKET_IFNAME": "eth0",
    "NCCL_IB_HCA": "ibp",
    "UCX_TLS": "tcp",
    "UCX_NET_DEVICES": "eth0",
}


class CoreweaveSettings(KubernetesSettings):
    """Settings of the `coreweave` plugin: those of `kubernetes`, as CoreWeave's clusters need them."""

    environment: Mapping[str, str] = Field(default_factory=lambda: dict(_NCCL))
    """Variables of every container; by default what CoreWeave says NCCL needs on InfiniBand."""
    rdma_resource: str = "rdma/ib"
    """What pods of whole nodes ask for, on InfiniBand and on RoCE."""
    region: str = Field(default="CoreWeave", min_length=1)
    jurisdictions: Mapping[str, Country] = Field(default_factory=lambda: dict(_REGIONS))
    spot_labels: Mapping[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels that your spot node pools give their nodes."""
    gang_topology: str = "backend.coreweave.cloud/fabric"
    """`backend.coreweave.cloud/leafgroup` keeps a gang below one group of switches, `ds.coreweave.com/nvlink.domain` in
    one NVLink domain. Empty: anywhere."""
    prices: Mapping[str, Usd] = Field(default_factory=dict)
    """USD an hour of a whole node by its instance id, where you pay another price than the published one."""


class CoreweaveOptions(KubernetesOptions):
    """What a job may say in `placement.options`."""


class CoreweaveProvider(KubernetesProvider):
    """Pods of one namespace of a CKS cluster."""

    capabilities: ClassVar[Capabilities] = replace(
        KubernetesProvider.capabilities,
        price_source="catalogue",
        fabric="rdma",
        self_stop=SelfStop.STOPS_COMPUTE,
        bills=True,
    )

    def __init__(self, instance: Instance) -> None:
        self._open(instance, read_settings(instance, CoreweaveSettings))

    def _price_of(self, kind: Kind, jurisdiction: str) -> Price | None:
        usd = configured_price(kind, self._settings)
        return Price(gpu_usd_per_hour=usd) if usd is not None else published(kind, jurisdiction)


def published(kind: Kind, jurisdiction: str) -> Price | None:
    """The catalogue's price of an instance id in that country, or of the only one with as many of the same GPUs."""
    capacity = "spot" if kind.spot else "on_demand"
    row = catalogue.find("coreweave", kind.name, jurisdiction)
    if row is not None:
        return row.price(capacity)
    model = gpu_model(kind.product)
    alike = [
        one
        for one in catalogue.listed("coreweave")
        if (one.gpu_model, one.gpus) == (model, kind.whole.gpus) and one.region in (jurisdiction, catalogue.ANYWHERE)
    ]
    price = alike[0].price(capacity) if len(alike) == 1 else None
    return None if price is None else replace(price, confidence="derived")
