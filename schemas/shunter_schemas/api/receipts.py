"""What a job cost, by what it was spent on."""

from __future__ import annotations

from pydantic import Field

from shunter_schemas.api.base import Answer, Timestamp

_AT = "2026-11-30T04:53:15.123Z"
_JOB = "job_01kb9m4t8zq3v5x7y9a1c3e5g7"


class ReceiptCause(Answer):
    """What one cause of cost took."""

    cause: str = Field(
        description="`start_up` (from a node's order until every rank ran), `training`, `repeated` (steps that an "
        "earlier start had done before), `saving` (training stood still for a checkpoint), `idle` (nodes that were "
        "there and did not train: replacing lost ones, pausing, letting go); an open list.",
        examples=["training"],
    )
    usd: float = Field(description="What it cost, to the micro-dollar.", examples=[4.812044])
    node_hours: float = Field(default=0.0, description="Hours of nodes.", examples=[0.2005])
    predicted_usd: float | None = Field(
        default=None,
        description="What the newest plan expected of a whole run, its share of disks included. Null: it says nothing "
        "of it.",
        examples=[4.75],
    )


class ReceiptNode(Answer):
    """What one node cost."""

    token: str = Field(description="Its name at the provider.", examples=["shn-k3v9qa-7c2mq4x5w6z2a3bd"])
    provider: str = Field(description="The provider instance.", examples=["lambda"])
    instance_type: str = Field(default="", description="The kind of node.", examples=["gpu_8x_h100"])
    generation: int = Field(default=0, description="The last start that it took part in; 0: none.", examples=[1])
    usd: float = Field(description="What it cost, to the micro-dollar.", examples=[5.398311])
    node_hours: float = Field(default=0.0, description="Hours for which it was there.", examples=[0.2256])
    planned_usd_per_hour: float | None = Field(
        default=None, description="The price of its offer when it was planned.", examples=[23.92]
    )
    billed_usd_per_hour: float = Field(
        default=0.0, description="What the provider billed for it last.", examples=[23.92]
    )


class ReceiptPrediction(Answer):
    """What was predicted, beside what the ledger says."""

    usd: float | None = Field(default=None, description="Of a whole run, by the newest plan.", examples=[5.21])
    low_usd: float | None = Field(default=None, description="The low end of that.", examples=[4.3])
    high_usd: float | None = Field(default=None, description="The high end of that.", examples=[6.4])
    usd_per_million_tokens: float | None = Field(default=None, description="Likewise.", examples=[0.112])
    usd_per_hour: float | None = Field(
        default=None, description="The planned price of all nodes together.", examples=[23.92]
    )


class Receipt(Answer):
    """What a job cost, from the ledger. Causes add up to `usd`, and so do nodes, to the micro-dollar."""

    job: str = Field(description="The job's id.", examples=[_JOB])
    as_of: Timestamp = Field(description="The moment up to which it counts.", examples=[_AT])
    final: bool = Field(description="Whether the job is over and all of its nodes are proven gone.", examples=[True])
    usd: float = Field(description="What it cost.", examples=[5.398311])
    node_hours: float = Field(default=0.0, description="Hours of nodes.", examples=[0.2256])
    causes: tuple[ReceiptCause, ...] = Field(
        default=(),
        description="By what it was spent on, every cause that is known.",
        examples=[[{"cause": "training", "usd": 5.398311, "node_hours": 0.2256}]],
    )
    nodes: tuple[ReceiptNode, ...] = Field(
        default=(),
        description="By node, in the order in which they were ordered.",
        examples=[[{"token": "shn-k3v9qa-7c2mq4x5w6z2a3bd", "provider": "lambda", "usd": 5.398311}]],
    )
    steps: int | None = Field(
        default=None, description="Steps that were done, none counted twice. Null: it reported none.", examples=[300]
    )
    tokens: int | None = Field(
        default=None,
        description="Tokens of these steps. Null: it does not report tokens a second.",
        examples=[48_000_000],
    )
    usd_per_million_tokens: float | None = Field(
        default=None, description="All money over these tokens.", examples=[0.1125]
    )
    usd_per_hour: float | None = Field(
        default=None,
        description="What an hour of the last gang was billed at. Compare it with `predicted.usd_per_hour`.",
        examples=[23.92],
    )
    predicted: ReceiptPrediction | None = Field(
        default=None, description="Null: there never was a plan.", examples=[{"usd": 5.21, "usd_per_hour": 23.92}]
    )
