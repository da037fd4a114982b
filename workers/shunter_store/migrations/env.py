"""Alembic's entry: runs in the connection and the transaction that it is given."""

from __future__ import annotations

from alembic import context
from shunter_store import tables  # noqa: F401 - fills the metadata
from shunter_store.tables.columns import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    compare_type=True,
)
context.run_migrations()
