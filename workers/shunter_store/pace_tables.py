"""The table of accounts' paces. Read it from `tables`."""

from __future__ import annotations

from sqlalchemy import String, Table

from shunter_store.columns import metadata, must
from shunter_store.sqltypes import UtcTime

paces = Table(
    "paces",
    metadata,
    must("bucket", String(120), primary_key=True),
    must("next_at", UtcTime),
)
"""When the next call of an account would come if all came evenly: what every process that calls the provider shares."""
