"""The tables of nodes that are reached by SSH: how they were brought up, keys, calls. Read them from `tables`."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, String, Table, Text

from shunter_store.sql.sqltypes import Json, UtcTime
from shunter_store.tables.columns import may, metadata, must

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

node_calls = Table(
    "node_calls",
    metadata,
    must("id", String(40), primary_key=True),
    must("node_id", String(40), ForeignKey("nodes.id", ondelete="CASCADE")),
    must("kind", String(16)),
    must("argument", Json),
    must("asked_by", Text),
    must("asked_at", UtcTime),
    may("answered_at", UtcTime),
    may("answer", Json),
    may("error", Text),
    Index("ix_node_calls_node_id", "node_id"),
    Index("ix_node_calls_asked_at", "asked_at"),
)
"""What the service asked of nodes through the connections that workers hold, and what they answered."""
