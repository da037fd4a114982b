"""What an account may have at its provider, and why it made no node when it was last asked for one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("providers", sa.Column("limits", JSON, nullable=True))
    op.add_column("providers", sa.Column("refusal", JSON, nullable=True))


def downgrade() -> None:
    op.drop_column("providers", "refusal")
    op.drop_column("providers", "limits")
