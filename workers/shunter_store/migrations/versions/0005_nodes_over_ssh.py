"""Nodes that are reached by SSH: how they were brought up, the keys of jobs, calls."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def must(name: str, type_: Any) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=False)


def may(name: str, type_: Any) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=True)


def of_node(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=f"fk_{table}_node_id", ondelete="CASCADE")


TABLES: dict[str, list[sa.schema.SchemaItem]] = {
    "bootstraps": [
        must("node_id", sa.String(40)),
        must("phase", sa.String(32)),
        must("detail", sa.Text),
        may("refused", sa.Text),
        must("facts", JSON),
        must("changed_at", sa.Double),
        of_node("bootstraps"),
        sa.PrimaryKeyConstraint("node_id", name="pk_bootstraps"),
    ],
    "job_keys": [
        must("job_id", sa.String(40)),
        must("sealed", sa.Text),
        must("created_at", sa.Double),
        sa.PrimaryKeyConstraint("job_id", name="pk_job_keys"),
    ],
    "node_calls": [
        must("id", sa.String(40)),
        must("node_id", sa.String(40)),
        must("kind", sa.String(16)),
        must("argument", JSON),
        must("asked_by", sa.Text),
        must("asked_at", sa.Double),
        may("answered_at", sa.Double),
        may("answer", JSON),
        may("error", sa.Text),
        of_node("node_calls"),
        sa.PrimaryKeyConstraint("id", name="pk_node_calls"),
    ],
}
INDEXES = [("ix_node_calls_node_id", "node_id"), ("ix_node_calls_asked_at", "asked_at")]


def upgrade() -> None:
    for name, items in TABLES.items():
        op.create_table(name, *items)
    for index, column in INDEXES:
        op.create_index(index, "node_calls", [column])


def downgrade() -> None:
    for index, _ in INDEXES:
        op.drop_index(index, "node_calls")
    for name in TABLES:
        op.drop_table(name)
