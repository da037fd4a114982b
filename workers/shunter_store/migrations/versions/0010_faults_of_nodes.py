"""Why a provider says that a node failed, and until when the node stood in the provider's queue."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("condition_fault", sa.String(16), nullable=True))
    op.add_column("nodes", sa.Column("condition_scope", sa.String(16), nullable=True))
    op.add_column("nodes", sa.Column("queued_until", sa.Double, nullable=True))


def downgrade() -> None:
    for column in ("queued_until", "condition_scope", "condition_fault"):
        op.drop_column("nodes", column)
