"""Nodes that are reached by SSH: how they were brought up, the keys of jobs, shells."""

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
    "shells": [
        must("id", sa.String(40)),
        must("node_id", sa.String(40)),
        must("public_key", sa.Text),
        must("requested_by", sa.Text),
        must("requested_at", sa.Double),
        must("expires_at", sa.Double),
        may("answered_at", sa.Double),
        may("endpoint", JSON),
        may("error", sa.Text),
        of_node("shells"),
        sa.PrimaryKeyConstraint("id", name="pk_shells"),
    ],
}


def upgrade() -> None:
    for name, items in TABLES.items():
        op.create_table(name, *items)
    op.create_index("ix_shells_node_id", "shells", ["node_id"])


def downgrade() -> None:
    op.drop_index("ix_shells_node_id", "shells")
    for name in TABLES:
        op.drop_table(name)
