"""The pace of calls to providers, which all processes of a deployment share, and the age of their offers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "paces",
        sa.Column("bucket", sa.String(120), nullable=False),
        sa.Column("next_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("bucket", name="pk_paces"),
    )
    op.add_column("providers", sa.Column("offers_at", sa.Double, nullable=True))


def downgrade() -> None:
    op.drop_column("providers", "offers_at")
    op.drop_table("paces")
