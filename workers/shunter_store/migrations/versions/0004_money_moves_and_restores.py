"""Moves and the documents before them; intervals of cost and who pays; readings of providers; restored databases."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
COUNTED = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def must(name: str, type_: Any, **kwargs: Any) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=False, **kwargs)


def may(name: str, type_: Any) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=True)


COLUMNS: list[tuple[str, sa.Column[Any]]] = [
    ("jobs", may("move_wish", JSON)),
    ("jobs", may("move_requested_at", sa.Double)),
    ("jobs", must("document_version", sa.Integer, server_default="1")),
    ("deployment", may("confirmed_nonce", sa.String(64))),
    ("deployment", must("epoch", sa.BigInteger, server_default="0")),
    ("deployment", may("held_at", sa.Double)),
    ("deployment", may("held_reason", sa.Text)),
    ("deployment", may("confirmed_at", sa.Double)),
    ("deployment", may("confirmed_by", sa.Text)),
]
TABLES: dict[str, list[sa.schema.SchemaItem]] = {
    "job_documents": [
        must("job_id", sa.String(40)),
        must("version", sa.Integer),
        must("last_generation", sa.BigInteger),
        must("replaced_at", sa.Double),
        must("spec", JSON),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_documents_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "version", name="pk_job_documents"),
    ],
    "payers": [
        must("job_id", sa.String(40)),
        must("project", sa.String(64)),
        must("created_by", sa.Text),
        must("name", sa.Text),
        must("labels", JSON),
        sa.PrimaryKeyConstraint("job_id", name="pk_payers"),
    ],
    "charges": [
        must("node_id", sa.String(40)),
        must("since", sa.Double),
        must("until", sa.Double),
        must("usd_per_hour", sa.Double),
        sa.PrimaryKeyConstraint("node_id", "since", name="pk_charges"),
    ],
    "readings": [
        must("instance", sa.String(64)),
        may("account", sa.Text),
        must("bills", sa.Boolean),
        must("stale_after_s", sa.Double),
        may("read_at", sa.Double),
        may("failing_since", sa.Double),
        may("error", sa.Text),
        must("strangers", JSON),
        sa.PrimaryKeyConstraint("instance", name="pk_readings"),
    ],
    "notices": [
        must("id", COUNTED, autoincrement=True),
        must("at", sa.Double),
        must("type", sa.String(64)),
        must("data", JSON),
        sa.PrimaryKeyConstraint("id", name="pk_notices"),
    ],
}
INDEXES: list[tuple[str, str, list[str]]] = [
    ("ix_nodes_newest", "nodes", ["intended_at", "id"]),
    ("ix_nodes_gone_at", "nodes", ["gone_at"]),
]


def upgrade() -> None:
    for table, column in COLUMNS:
        op.add_column(table, column)
    for name, items in TABLES.items():
        op.create_table(name, *items, sqlite_autoincrement=name == "notices")
    for name, table, columns in INDEXES:
        op.create_index(name, table, columns)
    op.execute("UPDATE deployment SET confirmed_nonce = install_nonce")


def downgrade() -> None:
    for name, table, _ in INDEXES:
        op.drop_index(name, table)
    for name in TABLES:
        op.drop_table(name)
    for table, column in reversed(COLUMNS):
        op.drop_column(table, column.name)
