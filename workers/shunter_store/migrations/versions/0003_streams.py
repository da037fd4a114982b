"""Reading on where a reader stopped: metric points numbered by arrival, lines by their number, jobs by their change."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

COUNTERS: list[tuple[str, str]] = [
    ("jobs", "metric_seq"),
    ("metric_chunks", "first_arrival"),
    ("metric_chunks", "last_arrival"),
]
INDEXES: list[tuple[str, str, list[Any]]] = [
    ("ix_jobs_changed", "jobs", ["project", "updated_at", "id"]),
    ("ix_log_chunks_arrival", "log_chunks", ["job_id", "job_line"]),
    ("ix_log_chunks_stream_arrival", "log_chunks", ["job_id", "generation", "rank", "stream", "job_line"]),
    ("ix_metric_chunks_arrival", "metric_chunks", ["job_id", "last_arrival"]),
]


def upgrade() -> None:
    for table, name in COUNTERS:
        op.add_column(table, sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    for name, table, columns in INDEXES:
        op.create_index(name, table, columns)


def downgrade() -> None:
    for name, table, _ in INDEXES:
        op.drop_index(name, table)
    for table, name in COUNTERS:
        op.drop_column(table, name)
