"""The tables of money beside the ledger itself: intervals, payers, readings of providers. Read them from `tables`."""

from __future__ import annotations

from sqlalchemy import Boolean, Double, PrimaryKeyConstraint, String, Table, Text

from shunter_store.sql.sqltypes import BigId, Json, UtcTime
from shunter_store.tables.columns import may, metadata, must

charges = Table(
    "charges",
    metadata,
    must("node_id", String(40)),
    must("since", UtcTime),
    must("until", UtcTime),
    must("usd_per_hour", Double),
    PrimaryKeyConstraint("node_id", "since"),
)
"""Intervals of a node's cost that are over. The one that runs is in the node's own row."""

payers = Table(
    "payers",
    metadata,
    must("job_id", String(40), primary_key=True),
    must("project", String(64)),
    must("created_by", Text),
    must("name", Text),
    must("labels", Json),
)
"""For whom jobs were that have no record any more: what they cost is told for ever."""

readings = Table(
    "readings",
    metadata,
    must("instance", String(64), primary_key=True),
    may("account", Text),
    must("bills", Boolean),
    must("stale_after_s", Double),
    may("read_at", UtcTime),
    may("failing_since", UtcTime),
    may("error", Text),
    must("strangers", Json),
)
"""What the scanner of each provider instance last saw: when its complete listing began, and why it cannot be read."""

notices = Table(
    "notices",
    metadata,
    must("id", BigId, primary_key=True, autoincrement=True),
    must("at", UtcTime),
    must("type", String(64)),
    must("data", Json),
    sqlite_autoincrement=True,
)
"""What an operator has to know of the whole installation, oldest first."""
