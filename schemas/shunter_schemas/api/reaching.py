"""Answers about a job's nodes themselves: shells on them, and what is collected when something is wrong."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from shunter_schemas.api.base import Answer, Timestamp
from shunter_schemas.base import Part, text_like

PublicKey = Annotated[
    str,
    text_like(
        r"^(ssh-ed25519|ecdsa-sha2-nistp(256|384|521)|ssh-rsa) [A-Za-z0-9+/=]{40,4000}$",
        "must be a public key such as `ssh-ed25519 AAAA…`, without options and comment",
    ),
]


class ShellRequest(Part):
    """A wish to log in on a node with a key that only the asker has."""

    public_key: PublicKey = Field(
        description="The public half of a key that was made for this shell.",
        examples=["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIH6b3r9hD0n3m0m8o7sYl0u4bq3mI3u7y3o2N1q9xYzA"],
    )
    rank: int = Field(default=0, ge=0, description="The node of this rank of the job.", examples=[0])
    duration_s: float = Field(
        default=3600,
        ge=60,
        le=86_400,
        description="How long the key lets one in; a shell that is open stays open.",
        examples=[600],
    )


class NodeCall(Answer):
    """Something that was asked of a node through the connection that a worker holds to it."""

    id: str = Field(description="The call's id.", examples=["ncl_01kb9m4t8zq3v5x7y9a1c3e5g7"])
    kind: Literal["shell", "peek"] = Field(
        description="`shell`: let a key log in; `peek`: show the agent's own files.", examples=["shell"]
    )
    state: Literal["waiting", "answered", "refused"] = Field(
        description="`waiting`: ask again in a moment.", examples=["answered"]
    )
    node: str = Field(description="The node's id.", examples=["nod_01kb9m4t8zq3v5x7y9a1c3e5g7"])
    node_rank: int = Field(description="The node's place in the gang.", examples=[0])
    asked_at: Timestamp = Field(description="When it was asked.", examples=["2026-11-30T04:53:15.000Z"])
    answer: dict[str, Any] | None = Field(
        default=None,
        description="Of a shell: `host`, `port`, `user`, `host_keys`, `folder`, `via` (a jump host, or null).",
        examples=[{"host": "10.0.0.7", "port": 22, "user": "root", "host_keys": ["ssh-ed25519 AAAA…"]}],
    )
    error: str | None = Field(default=None, description="Why it was refused.", examples=["this host gives no shells"])


class NodeCalls(Answer):
    """Calls of several nodes."""

    items: tuple[NodeCall, ...] = Field(description="One for each node, by rank.", examples=[[]])


class DebugReport(Answer):
    """Everything that the service knows of a job, for whoever looks for a fault. Secrets are taken out."""

    job_id: str = Field(description="The job's id.", examples=["job_01kb9m4t8zq3v5x7y9a1c3e5g7"])
    collected_at: Timestamp = Field(description="When this was read.", examples=["2026-11-30T04:53:15.000Z"])
    versions: dict[str, str] = Field(
        description="Of the service and of what it is made of.", examples=[{"shunter": "0.1.0"}]
    )
    parts: dict[str, Any] = Field(
        description="`job`, `ledger`, `bootstraps`, `events`, `transitions`, `ends`, `checkpoints`, `providers`, "
        "`node_files`: what nodes that share the service's machine hold.",
        examples=[{"events": []}],
    )
