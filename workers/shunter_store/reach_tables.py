"""The tables of nodes that are reached by SSH: how they were brought up, keys, shells. Read them from `tables`."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, String, Table, Text

from shunter_store.columns import may, metadata, must
from shunter_store.sqltypes import Json, UtcTime

bootstraps = Table(
    "bootstraps",
    metadata,
    must("node_id", String(40), ForeignKey("nodes.id", ondelete="CASCADE"), primary_key=True),
    must("phase", String(32)),
    must("detail", Text),
    may("refused", Text),
    must("facts", Json),
    must("changed_at", UtcTime),
)
"""How far the core came with a node that it starts itself, why it did not accept it, and what the probe found."""

job_keys = Table(
    "job_keys",
    metadata,
    must("job_id", String(40), primary_key=True),
    must("sealed", Text),
    must("created_at", UtcTime),
)
"""A job's own SSH keys, sealed with the installation's secret; they go when its last node does. No foreign key: nodes
outlive the record of their job."""

shells = Table(
    "shells",
    metadata,
    must("id", String(40), primary_key=True),
    must("node_id", String(40), ForeignKey("nodes.id", ondelete="CASCADE")),
    must("public_key", Text),
    must("requested_by", Text),
    must("requested_at", UtcTime),
    must("expires_at", UtcTime),
    may("answered_at", UtcTime),
    may("endpoint", Json),
    may("error", Text),
    Index("ix_shells_node_id", "node_id"),
)
"""Wishes to open a shell on a node, and what came of them."""
