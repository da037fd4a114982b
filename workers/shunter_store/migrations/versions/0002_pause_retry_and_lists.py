"""Pause, retry, checkpoints on request; lists by label, name, creator, provider and commit; deletion of records."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
COUNTED = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BATCH = 1000


def must(name: str, type_: Any, **kwargs: Any) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=False, **kwargs)


def may(name: str, type_: Any) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=True)


COLUMNS: list[tuple[str, sa.Column[Any]]] = [
    ("jobs", may("pause_requested_at", sa.Double)),
    ("jobs", must("checkpoint_wish", sa.Integer, server_default="0")),
    ("jobs", may("retry_of", sa.String(40))),
    ("jobs", may("resumes_from_step", sa.BigInteger)),
    ("jobs", may("source_commit", sa.String(64))),
    ("checkpoints", may("origin_job", sa.String(40))),
    ("checkpoints", may("origin_generation", sa.BigInteger)),
]
LABELS: list[sa.schema.SchemaItem] = [
    must("job_id", sa.String(40)),
    must("project", sa.String(64)),
    must("key", sa.Text),
    must("value", sa.Text),
    must("created_at", sa.Double),
    sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_labels_job_id", ondelete="CASCADE"),
    sa.PrimaryKeyConstraint("job_id", "key", name="pk_job_labels"),
]
GARBAGE: list[sa.schema.SchemaItem] = [
    must("id", COUNTED, autoincrement=True),
    must("keys", JSON),
    may("below", sa.Text),
    must("kept", JSON),
    must("created_at", sa.Double),
    sa.PrimaryKeyConstraint("id", name="pk_garbage"),
]
PROGRESS: list[sa.schema.SchemaItem] = [
    must("job_id", sa.String(40)),
    must("generation", sa.BigInteger),
    must("at", sa.Double),
    must("step", sa.BigInteger),
    may("total_steps", sa.BigInteger),
    must("values", JSON),
    may("eta_s", sa.Double),
    sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_progress_job_id", ondelete="CASCADE"),
    sa.PrimaryKeyConstraint("job_id", "generation", name="pk_progress"),
]
INDEXES: list[tuple[str, str, list[str], str | None, str | None]] = [
    # name, table, columns, only where, column that LIKE searches
    ("ix_checkpoints_origin", "checkpoints", ["origin_job"], "origin_job IS NOT NULL", None),
    ("ix_jobs_newest_by_name", "jobs", ["project", "name", "created_at", "id"], None, "name"),
    ("ix_jobs_newest_by_creator", "jobs", ["project", "created_by", "created_at", "id"], None, None),
    ("ix_jobs_newest_by_provider", "jobs", ["project", "provider", "created_at", "id"], "provider IS NOT NULL", None),
    (
        "ix_jobs_newest_by_source_commit",
        "jobs",
        ["project", "source_commit", "created_at", "id"],
        "source_commit IS NOT NULL",
        "source_commit",
    ),
    ("ix_job_labels_newest", "job_labels", ["project", "key", "created_at", "job_id"], None, None),
    (
        "ix_job_labels_newest_by_value",
        "job_labels",
        ["project", "key", "value", "created_at", "job_id"],
        None,
        None,
    ),
]


def upgrade() -> None:
    for table, column in COLUMNS:
        op.add_column(table, column)
    op.create_table("job_labels", *LABELS)
    op.create_table("garbage", *GARBAGE, sqlite_autoincrement=True)
    _progress_by_generation()
    _fill()
    for name, table, columns, where, searched in INDEXES:
        only = None if where is None else sa.text(where)
        words = {searched: "text_pattern_ops"} if searched else {}
        op.create_index(name, table, columns, sqlite_where=only, postgresql_where=only, postgresql_ops=words)


def downgrade() -> None:
    """What the first schema has no place for goes: wishes to pause, garbage, progress of all but the newest start."""
    for name, table, *_ in INDEXES:
        op.drop_index(name, table)
    _progress_by_job()
    for name in ("garbage", "job_labels"):
        op.drop_table(name)
    for table, column in reversed(COLUMNS):
        op.drop_column(table, column.name)


def _progress_by_generation() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint("pk_progress", "progress")
        op.create_primary_key("pk_progress", "progress", ["job_id", "generation"])
        return
    op.rename_table("progress", "progress_before")
    op.create_table("progress", *PROGRESS)
    op.execute("INSERT INTO progress SELECT * FROM progress_before")
    op.drop_table("progress_before")


def _progress_by_job() -> None:
    op.execute(
        "DELETE FROM progress WHERE generation < "
        "(SELECT max(generation) FROM progress AS newest WHERE newest.job_id = progress.job_id)"
    )
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint("pk_progress", "progress")
        op.create_primary_key("pk_progress", "progress", ["job_id"])
        return
    op.rename_table("progress", "progress_before")
    by_job = [item for item in PROGRESS if not isinstance(item, sa.PrimaryKeyConstraint)]
    op.create_table("progress", *by_job, sa.PrimaryKeyConstraint("job_id", name="pk_progress"))
    op.execute("INSERT INTO progress SELECT * FROM progress_before")
    op.drop_table("progress_before")


def _fill() -> None:
    """Labels and commits of the jobs that are there, from their JSON."""
    conn = op.get_bind()
    jobs = sa.table("jobs", *(sa.column(name) for name in ("id", "project", "created_at", "source_commit")))
    texts: list[sa.ColumnElement[str]] = [sa.literal_column(f"CAST({name} AS TEXT)") for name in ("labels", "facts")]
    labels = sa.table("job_labels", *(sa.column(name) for name in ("job_id", "project", "key", "value", "created_at")))
    after = ""
    while True:
        page = sa.select(jobs.c.id, jobs.c.project, jobs.c.created_at, *texts).where(jobs.c.id > after)
        rows: list[Any] = list(conn.execute(page.order_by(jobs.c.id).limit(BATCH)))
        if not rows:
            return
        after = rows[-1][0]
        found = [
            {"job_id": id_, "project": project, "created_at": at, "key": key, "value": value}
            for id_, project, at, written, _ in rows
            for key, value in json.loads(written).items()
        ]
        if found:
            conn.execute(labels.insert(), found)
        for id_, _, _, _, facts in rows:
            if commit := json.loads(facts).get("source_commit"):
                conn.execute(jobs.update().where(jobs.c.id == id_).values(source_commit=commit))
