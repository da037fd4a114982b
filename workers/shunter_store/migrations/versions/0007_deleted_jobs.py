"""Which records of jobs were deleted, for those who follow all jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "deleted_jobs",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("deleted_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_deleted_jobs"),
    )
    op.create_index("ix_deleted_jobs_deleted_at", "deleted_jobs", ["deleted_at"])
    op.create_index("ix_deleted_jobs_changed", "deleted_jobs", ["project", "deleted_at", "id"])


def downgrade() -> None:
    op.drop_table("deleted_jobs")
