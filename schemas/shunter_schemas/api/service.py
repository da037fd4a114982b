"""The service about itself: providers, readiness, and what went wrong."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from shunter_schemas.api.base import Answer, Timestamp

_AT = "2026-11-30T04:53:15.123Z"


class ProviderRefusal(Answer):
    """Why a provider made no node when it was last asked for one."""

    at: Timestamp = Field(description="When.", examples=[_AT])
    fault: Literal["auth", "payment", "quota"] = Field(
        description="`auth`: the credentials; `payment`: the account's money; `quota`: what it may have.",
        examples=["payment"],
    )
    scope: Literal["offer", "zone", "region", "account", "provider"] = Field(
        description="How far it reaches.", examples=["account"]
    )
    detail: str = Field(
        description="What the provider said, and the way out.",
        examples=["402 Payment Required: insufficient balance - the account needs money, or a billing address"],
    )
    until: Timestamp | None = Field(
        default=None,
        description="Until then no job asks for nodes within its scope, unless an operator lifts it "
        "(`POST /v1/providers/NAME/retry`), a node is made, or the credentials change. Null: each job may ask.",
        examples=[_AT],
    )


class ProviderInfo(Answer):
    """A configured provider instance."""

    name: str = Field(description="The instance.", examples=["local"])
    plugin: str = Field(description="The plugin that serves it.", examples=["local"])
    status: Literal["ok", "unknown", "error", "not_loaded"] = Field(
        description="`unknown`: no worker has read it yet.", examples=["ok"]
    )
    detail: str = Field(
        default="", description="Why it is not `ok`, in words, and the way out.", examples=["the token was refused"]
    )
    held: str | None = Field(
        default=None,
        description="Why it makes no nodes although it is `ok`: an operator has paused it, or frozen its spending.",
        examples=["the operator has paused it"],
    )
    account: str | None = Field(default=None, description="The account that its credentials name.", examples=["root"])
    limits: dict[str, Any] = Field(
        default_factory=dict,
        description="What the account may have, as far as the provider tells, in its own words.",
        examples=[{"GPUS_ALL_REGIONS": 16.0}],
    )
    refusal: ProviderRefusal | None = Field(
        default=None,
        description="Why the last create call was refused, where credentials, money or quota were the reason. It goes "
        "with the next node that is made.",
        examples=[{"at": _AT, "fault": "quota", "scope": "region", "detail": "GPUS_ALL_REGIONS is 0: ask for more"}],
    )
    bills: bool = Field(default=False, description="Whether its nodes cost money.", examples=[False])
    read_at: Timestamp | None = Field(default=None, description="When it was last read.", examples=[_AT])
    capabilities: dict[str, Any] = Field(
        default_factory=dict, description="What the plugin declares.", examples=[{"shared_hosts": True}]
    )


class PluginInfo(Answer):
    """A plugin that is installed where the API runs."""

    name: str = Field(description="The plugin.", examples=["runpod"])
    instances: tuple[str, ...] = Field(
        default=(),
        description="The configured instances that it serves; none: it waits to be configured.",
        examples=[["runpod"]],
    )


class ProviderPage(Answer):
    """All configured provider instances."""

    items: tuple[ProviderInfo, ...] = Field(
        description="The instances by name.", examples=[[{"name": "local", "plugin": "local", "status": "ok"}]]
    )
    plugins: tuple[PluginInfo, ...] = Field(
        default=(),
        description="The installed plugins by name, used or not.",
        examples=[[{"name": "local", "instances": ["local"]}, {"name": "runpod", "instances": []}]],
    )


class Check(Answer):
    """One part of the readiness."""

    ok: bool = Field(description="Whether it works.", examples=[True])
    required: bool = Field(description="Whether the API is unready without it.", examples=[True])
    detail: str = Field(default="", description="More, in words.", examples=["last seen 2 s ago"])


class Readiness(Answer):
    """Whether the API can serve, and how the parts around it are."""

    status: Literal["ready", "unready"] = Field(description="`ready`: every required part works.", examples=["ready"])
    checks: dict[str, Check] = Field(
        description="By part: `database`, `migrations`, `redis`, `workers`.",
        examples=[{"database": {"ok": True, "required": True}, "redis": {"ok": False, "required": False}}],
    )


class ProblemError(Answer):
    """One thing that is wrong, and where."""

    pointer: str = Field(
        description="RFC 6901 pointer into the document that was sent; empty: the whole of it.",
        examples=["/workload/batch/global_size"],
    )
    detail: str = Field(
        description="What is wrong there, and the way out.", examples=["15 does not divide by 2 ranks; use 14 or 16"]
    )


class Problem(Answer):
    """An error as RFC 9457 has it (`application/problem+json`)."""

    type: str = Field(
        description="A page of the service about this kind of problem; stable.",
        examples=["/v1/problems/invalid_document"],
    )
    title: str = Field(description="The kind of problem; stable.", examples=["The job document is not valid"])
    status: int = Field(description="The HTTP status.", examples=[422])
    detail: str | None = Field(default=None, description="This case, in words.", examples=["1 fault was found"])
    errors: tuple[ProblemError, ...] = Field(
        default=(),
        description="What is wrong in the document.",
        examples=[[{"pointer": "/name", "detail": "too long"}]],
    )
    request_id: str | None = Field(
        default=None,
        description="Names this request in the service's logs.",
        examples=["req_01kb9m4t8zq3v5x7y9a1c3e5g7"],
    )
