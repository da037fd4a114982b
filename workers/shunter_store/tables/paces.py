"""The table of accounts' paces. Read it from `tables`."""

from __future__ import annotations

from sqlalchemy import String, Table

from shunter_store.sql.sqltypes import UtcTime
from shunter_store.tables.columns import metadata, must

paces = Table(
    "paces",
    metadata,
    must("bucket", String(120), primary_key=True),
    must("next_at", UtcTime),
)
"""When the next call of an account would come if all came evenly: what every process that calls the provider shares."""
