"""Money and nodes of the whole installation: what bills now, what things cost, and what may be ended."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from shunter_schemas.api.base import Answer, Timestamp
from shunter_schemas.base import Part
from shunter_schemas.states import NodeState

_AT = "2026-11-30T04:53:15.123Z"
_JOB = "job_01kb9m4t8zq3v5x7y9a1c3e5g7"
_NODE = "shn-k3v9qa-7c2mq4x5w6z2a3bd"


class FleetNode(Answer):
    """One node of the ledger, whosever it is."""

    token: str = Field(description="Its name at the provider.", examples=[_NODE])
    handle: str | None = Field(
        default=None, description="The provider's own id. Null: not known, it may not exist.", examples=["i-0abc"]
    )
    provider: str = Field(description="The provider instance.", examples=["lambda"])
    instance_type: str = Field(description="The kind of node.", examples=["gpu_8x_h100"])
    region: str = Field(default="", description="Where.", examples=["us-west-1"])
    state: NodeState = Field(description="Where its row of the ledger is.", examples=["ready"])
    condition: str | None = Field(
        default=None, description="What the provider says of it by its last listing.", examples=["running"]
    )
    job: str = Field(description="The job that it is for.", examples=[_JOB])
    job_name: str | None = Field(default=None, description="That job's name.", examples=["sft-8b"])
    project: str | None = Field(default=None, description="That job's project.", examples=["default"])
    rank: int = Field(description="Its place in the gang.", examples=[0])
    created_at: Timestamp = Field(description="When it was intended.", examples=[_AT])
    released_at: Timestamp | None = Field(default=None, description="When it was proven gone.", examples=[_AT])
    age_s: float = Field(description="How old it is, or was.", examples=[812.4])
    usd_per_hour: float = Field(description="The rate that it bills, or billed last.", examples=[23.92])
    cost_usd: float = Field(description="What it has cost so far, by the ledger.", examples=[5.398311])
    read_at: Timestamp | None = Field(
        default=None, description="When its provider was last read. Null: never.", examples=[_AT]
    )


class Stranger(Answer):
    """A node that carries this installation's mark and that its ledger does not know."""

    provider: str = Field(description="The provider instance.", examples=["lambda"])
    handle: str = Field(description="The provider's own id.", examples=["i-0def"])
    token: str | None = Field(default=None, description="The name that it carries.", examples=[_NODE])
    condition: str = Field(default="", description="What the provider says of it.", examples=["running"])
    usd_per_hour: float | None = Field(default=None, description="What it bills, where known.", examples=[23.92])


class ProviderReading(Answer):
    """Whether what is known of one provider instance can be relied on."""

    provider: str = Field(description="The provider instance.", examples=["lambda"])
    bills: bool = Field(description="Whether its nodes cost money.", examples=[True])
    status: Literal["good", "stale", "failing", "never_read", "not_configured"] = Field(
        description="`good`: read of late, so that all that it has of ours is known. `stale`: nobody has read it for "
        "too long. `failing`: it cannot be read. `not_configured`: its settings are gone, and rows of it are open.",
        examples=["good"],
    )
    read_at: Timestamp | None = Field(
        default=None, description="When its last complete listing began. Null: there was none.", examples=[_AT]
    )
    age_s: float | None = Field(default=None, description="How long ago that was.", examples=[14.2])
    failing_since: Timestamp | None = Field(
        default=None, description="Since when every attempt has failed.", examples=[_AT]
    )
    error: str | None = Field(default=None, description="Why it cannot be read.", examples=["auth: token refused"])
    billing_nodes: int = Field(default=0, description="Rows of the ledger that may bill now.", examples=[2])
    usd_per_hour: float = Field(default=0.0, description="What they bill.", examples=[47.84])
    strangers: tuple[Stranger, ...] = Field(
        default=(), description="Nodes that it has and the ledger does not know.", examples=[[]]
    )


class FleetPage(Answer):
    """Nodes of the ledger, newest first, and how far each provider's part can be relied on."""

    items: tuple[FleetNode, ...] = Field(
        description="The nodes of this page.",
        examples=[
            [
                {
                    "token": _NODE,
                    "provider": "lambda",
                    "instance_type": "gpu_8x_h100",
                    "state": "ready",
                    "job": _JOB,
                    "rank": 0,
                    "created_at": _AT,
                    "age_s": 812.4,
                    "usd_per_hour": 23.92,
                    "cost_usd": 5.398311,
                }
            ]
        ],
    )
    next_cursor: str | None = Field(
        default=None, description="Pass it as `cursor` for the next page. Null: this is the last.", examples=["MDFrYg"]
    )
    as_of: Timestamp = Field(description="When the ledger was read.", examples=[_AT])
    usd_per_hour: float = Field(default=0.0, description="What all nodes bill at this moment.", examples=[47.84])
    confirmed: bool = Field(
        description="Whether every provider that bills was read of late and shows no stranger: only then an empty list "
        "means that nothing bills.",
        examples=[True],
    )
    providers: tuple[ProviderReading, ...] = Field(
        description="By name: every provider that is configured, or that open rows name.",
        examples=[[{"provider": "lambda", "bills": True, "status": "good", "read_at": _AT, "age_s": 14.2}]],
    )
    reaping: Literal["ends", "reports"] = Field(
        default="ends",
        description="What becomes of strangers: they are ended, or reported until an operator confirms.",
        examples=["ends"],
    )


class CostGroup(Answer):
    """What a group of nodes cost."""

    by: dict[str, str | None] = Field(
        description="What it was grouped by. Null: nodes that have no such value, or whose job's record is not known.",
        examples=[{"provider": "lambda", "day": "2026-11-30"}],
    )
    usd: float = Field(description="What they cost, to the micro-dollar.", examples=[5.398311])
    unconfirmed_usd: float = Field(
        default=0.0, description="The part of it that no reading of the provider has confirmed yet.", examples=[0.0]
    )
    node_hours: float = Field(default=0.0, description="Hours of nodes that cost something.", examples=[0.2256])


class Costs(Answer):
    """What things cost, from the ledger alone. The groups and `others` add up to the total, to the micro-dollar."""

    from_: Timestamp | None = Field(
        default=None,
        validation_alias="from",
        serialization_alias="from",
        description="From when on. Null: from the beginning.",
        examples=[_AT],
    )
    to: Timestamp = Field(description="Until when: now, unless an earlier moment was asked for.", examples=[_AT])
    group_by: tuple[str, ...] = Field(default=(), description="What was grouped by.", examples=[["provider", "day"]])
    total_usd: float = Field(description="All of it.", examples=[5.398311])
    unconfirmed_usd: float = Field(
        default=0.0,
        description="The part of it that no reading of a provider has confirmed yet: since it was last read, and of "
        "nodes that may not exist.",
        examples=[0.0],
    )
    node_hours: float = Field(default=0.0, description="Hours of nodes that cost something.", examples=[0.2256])
    groups: tuple[CostGroup, ...] = Field(
        default=(),
        description="By day if that was asked for, else the dearest first.",
        examples=[[{"by": {"provider": "lambda"}, "usd": 5.398311}]],
    )
    others: CostGroup | None = Field(
        default=None, description="The groups beyond `limit`, together. Null: there are none.", examples=[None]
    )


class Notice(Answer):
    """One event of the installation."""

    at: Timestamp = Field(description="When.", examples=[_AT])
    type: str = Field(
        description="`reaping.held`, `reaping.confirmed`, `reaping.reported` (a stranger would be ended), "
        "`reaping.ended` (one was); an open list.",
        examples=["reaping.reported"],
    )
    data: dict[str, Any] = Field(
        default_factory=dict, description="More about it.", examples=[{"provider": "lambda", "handle": "i-0def"}]
    )


class Reaping(Answer):
    """What becomes of nodes with this installation's mark that its ledger does not know."""

    mode: Literal["ends", "reports"] = Field(
        description="`ends`: they are ended. `reports`: they are only told of.", examples=["reports"]
    )
    reason: str | None = Field(
        default=None,
        description="Why they are only told of.",
        examples=["the database was restored from a backup of 2026-11-30T04:53:15Z"],
    )
    since: Timestamp | None = Field(default=None, description="Since when.", examples=[_AT])
    confirmed_at: Timestamp | None = Field(
        default=None, description="When an operator last confirmed that the ledger is complete.", examples=[_AT]
    )
    confirmed_by: str | None = Field(default=None, description="With which key.", examples=["local"])
    strangers: tuple[Stranger, ...] = Field(
        default=(),
        description="Such nodes by the last listings.",
        examples=[[{"provider": "lambda", "handle": "i-0def", "condition": "running"}]],
    )
    notices: tuple[Notice, ...] = Field(
        default=(),
        description="What happened, newest first; at most 100.",
        examples=[[{"at": _AT, "type": "reaping.held"}]],
    )


class HoldRequest(Part):
    """Why nodes that the ledger does not know shall only be reported."""

    reason: str = Field(
        default="an operator asked for it",
        min_length=1,
        max_length=500,
        description="For whoever confirms later.",
        examples=["restored from last night's dump"],
    )
