"""The nodes of which something was decided lately, found without reading the others."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_nodes_desired_at", "nodes", ["desired_at"])


def downgrade() -> None:
    op.drop_index("ix_nodes_desired_at", "nodes")
