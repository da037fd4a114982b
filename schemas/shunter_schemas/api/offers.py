"""What the configured providers offer, as it was last read."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shunter_schemas.api.base import Answer, Timestamp

_AT = "2026-11-30T04:53:15.123Z"


class OfferPrice(Answer):
    """What a node costs, by part, in USD."""

    usd_per_hour: float = Field(description="All that accrues by time.", examples=[31.92])
    gpu_usd_per_hour: float = Field(default=0.0, description="The machine with its GPUs.", examples=[31.92])
    disk_usd_per_hour: float = Field(default=0.0, description="Its disk, where that is billed apart.", examples=[0.0])
    setup_usd: float = Field(default=0.0, description="Once for each node.", examples=[0.0])
    billed: bool = Field(default=True, description="False: one's own hardware.", examples=[True])
    live: bool = Field(default=True, description="False: from the bundled catalogue, as of a day.", examples=[True])
    as_of: str | None = Field(default=None, description="The day of a catalogue price.", examples=["2026-09-20"])
    confidence: str | None = Field(
        default=None,
        description="Of a catalogue price: `high`, `medium`, `low`, `derived`, `average`, `stale`.",
        examples=["high"],
    )
    currency: str = Field(default="USD", description="What the provider bills in.", examples=["EUR"])
    usd_per_unit: float = Field(default=1.0, description="The rate that made it USD.", examples=[1.0])


class OfferInfo(Answer):
    """One kind of node in one place."""

    provider: str = Field(description="The instance that offers it.", examples=["lambda"])
    instance_type: str = Field(description="By the provider's name.", examples=["gpu_8x_h100_sxm5"])
    region: str = Field(description="By the provider's name.", examples=["europe-central-1"])
    jurisdiction: str = Field(
        default="", description="ISO 3166 country of the region, or `EU`; empty: unknown.", examples=["DE"]
    )
    gpu_model: str | None = Field(default=None, description="None: no GPU.", examples=["H100"])
    gpus: int = Field(default=0, description="GPUs of a node.", examples=[8])
    gpu_memory_gib: float = Field(default=0.0, description="Of one GPU.", examples=[80.0])
    cpus: int = Field(default=0, description="Virtual CPUs of a node; 0: unknown.", examples=[208])
    memory_gib: float = Field(default=0.0, description="Of a node; 0: unknown.", examples=[1800.0])
    disk_gib: float = Field(default=0.0, description="Of a node; 0: made to order.", examples=[22_000.0])
    capacity: str = Field(default="on_demand", description="`on_demand`, `spot`, `reserved`.", examples=["on_demand"])
    kind: str = Field(default="vm", description="`vm`, `container`, `metal`, `batch`.", examples=["vm"])
    availability: Literal["available", "unknown", "no_quota", "none"] = Field(
        default="unknown", description="What the provider says of it.", examples=["available"]
    )
    count: int | None = Field(default=None, description="Nodes to be had at once; None: unknown.", examples=[4])
    interconnect: str = Field(default="any", description="What joins nodes of it.", examples=["rdma"])
    fabric: str | None = Field(
        default=None, description="Nodes of the same group are joined. Null: no group is known.", examples=["vpc-fra1"]
    )
    network_gbps: float | None = Field(
        default=None, description="Between two nodes, in Gbit/s. Null: the provider does not tell.", examples=[25.0]
    )
    price: OfferPrice = Field(description="What a node costs.", examples=[{"usd_per_hour": 31.92}])
    read_at: Timestamp = Field(description="When it was read.", examples=[_AT])


class OfferSource(Answer):
    """How a provider instance's offers came about."""

    name: str = Field(description="The instance.", examples=["lambda"])
    status: Literal["ok", "error", "unknown", "paused", "spend_frozen"] = Field(
        description="`error`: its offers could not be read, those shown are older. `unknown`: never read yet.",
        examples=["ok"],
    )
    detail: str = Field(default="", description="Why it is not `ok`, in words.", examples=["the token was refused"])
    offers: int = Field(description="How many offers it has, before any filter.", examples=[118])
    read_at: Timestamp | None = Field(default=None, description="When its offers were last read.", examples=[_AT])
    age_s: float | None = Field(default=None, description="How long ago that is.", examples=[12.5])


class OfferPage(Answer):
    """Offers of all providers, the cheapest for a GPU first."""

    items: tuple[OfferInfo, ...] = Field(
        description="The offers that were asked for.",
        examples=[
            [
                {
                    "provider": "lambda",
                    "instance_type": "gpu_8x_h100_sxm5",
                    "region": "europe-central-1",
                    "price": {"usd_per_hour": 31.92},
                    "read_at": _AT,
                }
            ]
        ],
    )
    total: int = Field(description="How many there are in all, also beyond the limit.", examples=[1])
    sources: tuple[OfferSource, ...] = Field(
        description="The instances by name, also those that could not be read.",
        examples=[[{"name": "lambda", "status": "ok", "offers": 118}]],
    )
