"""The first schema."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
COUNTED = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.Double


def must(name: str, type_: Any, **kwargs: Any) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=False, **kwargs)


def may(name: str, type_: Any) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=True)


TABLES: dict[str, list[sa.schema.SchemaItem]] = {
    "api_keys": [
        must("secret_hash", sa.String(64)),
        must("project", sa.String(64)),
        must("name", sa.String(200)),
        must("scopes", JSON),
        must("created_at", TIME),
        sa.PrimaryKeyConstraint("secret_hash", name="pk_api_keys"),
    ],
    "bundles": [
        must("digest", sa.String(80)),
        must("size", sa.BigInteger),
        must("entries", sa.Integer),
        must("created_at", TIME),
        sa.PrimaryKeyConstraint("digest", name="pk_bundles"),
    ],
    "deployment": [
        must("id", sa.String(6)),
        must("install_nonce", sa.String(64)),
        must("single", sa.Boolean),
        must("created_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_deployment"),
        sa.UniqueConstraint("single", name="uq_deployment_single"),
    ],
    "idempotency": [
        must("project", sa.String(64)),
        must("path", sa.Text),
        must("key", sa.String(255)),
        must("body_hash", sa.String(64)),
        must("status", sa.Integer),
        must("headers", JSON),
        must("body", sa.Text),
        must("created_at", TIME),
        sa.PrimaryKeyConstraint("project", "path", "key", name="pk_idempotency"),
    ],
    "jobs": [
        must("id", sa.String(40)),
        must("project", sa.String(64)),
        must("created_by", sa.Text),
        must("name", sa.Text),
        must("labels", JSON),
        must("priority", sa.Integer),
        must("spec", JSON),
        must("state", sa.String),
        may("reason", sa.String),
        may("message", sa.Text),
        must("health", sa.String),
        may("outcome", sa.String),
        may("cancel_requested_at", TIME),
        must("generation", sa.Integer),
        must("revision", sa.Integer),
        must("event_seq", sa.BigInteger),
        must("log_lines", sa.BigInteger),
        may("provider", sa.String(64)),
        may("plan", JSON),
        may("waiting", JSON),
        must("facts", JSON),
        must("user_restarts", sa.Integer),
        must("node_recoveries", sa.Integer),
        must("created_at", TIME),
        must("updated_at", TIME),
        may("started_at", TIME),
        may("finished_at", TIME),
        may("released_at", TIME),
        must("spec_text", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    ],
    "leases": [
        must("name", sa.String(200)),
        may("owner", sa.String(200)),
        must("fence", sa.BigInteger),
        may("until", TIME),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    ],
    "nodes": [
        must("id", sa.String(40)),
        must("token", sa.String(40)),
        must("job_id", sa.String(40)),
        must("generation", sa.Integer),
        must("rank", sa.Integer),
        must("instance", sa.String(64)),
        must("account", sa.Text),
        must("offer", JSON),
        may("slot_kind", sa.String(64)),
        must("slot_indices", JSON),
        must("state", sa.String),
        may("handle", sa.Text),
        must("billed_usd_per_hour", sa.Double),
        must("accrued_usd", sa.Double),
        may("accrued_at", TIME),
        must("intended_at", TIME),
        may("created_at", TIME),
        may("ready_at", TIME),
        may("releasing_at", TIME),
        may("gone_at", TIME),
        may("reason", sa.Text),
        may("condition", sa.String(16)),
        may("condition_reason", sa.Text),
        may("scanned_at", TIME),
        must("absent_scans", sa.Integer),
        may("create_deadline_at", TIME),
        may("lease_s", sa.Double),
        may("lease_granted_until", TIME),
        may("stop_at", TIME),
        must("desired_phase", sa.String(16)),
        must("desired_generation", sa.Integer),
        may("desired_reason", sa.Text),
        must("desired_at", TIME),
        must("run_generation", sa.Integer),
        may("assignment", JSON),
        must("sync_token_hash", sa.String(64)),
        may("journal_id", sa.String(100)),
        must("acknowledged", sa.BigInteger),
        must("past_journals", JSON),
        may("gap_at", sa.BigInteger),
        may("last_sync_at", TIME),
        must("status", JSON),
        may("boot", JSON),
        must("addresses", JSON),
        sa.PrimaryKeyConstraint("id", name="pk_nodes"),
        sa.UniqueConstraint("sync_token_hash", name="uq_nodes_sync_token_hash"),
        sa.UniqueConstraint("token", name="uq_nodes_token"),
    ],
    "outbox": [
        must("id", COUNTED, autoincrement=True),
        must("topic", sa.String(64)),
        must("created_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
    ],
    "providers": [
        must("instance", sa.String(64)),
        must("plugin", sa.String(64)),
        must("ok", sa.Boolean),
        must("detail", sa.Text),
        may("account", sa.Text),
        must("capabilities", JSON),
        must("offers", JSON),
        must("updated_at", TIME),
        sa.PrimaryKeyConstraint("instance", name="pk_providers"),
    ],
    "artifacts": [
        must("job_id", sa.String(40)),
        must("path", sa.Text),
        must("generation", sa.BigInteger),
        must("size", sa.BigInteger),
        must("sha256", sa.String(64)),
        must("object", sa.Text),
        must("created_at", TIME),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_artifacts_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "path", name="pk_artifacts"),
    ],
    "checkpoint_parts": [
        must("job_id", sa.String(40)),
        must("generation", sa.BigInteger),
        must("step", sa.BigInteger),
        must("node_rank", sa.BigInteger),
        must("files", JSON),
        must("values", JSON),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_checkpoint_parts_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "generation", "step", "node_rank", name="pk_checkpoint_parts"),
    ],
    "checkpoints": [
        must("job_id", sa.String(40)),
        must("generation", sa.BigInteger),
        must("step", sa.BigInteger),
        must("files", JSON),
        must("values", JSON),
        must("size", sa.BigInteger),
        must("committed_at", TIME),
        may("pruned_at", TIME),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_checkpoints_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "generation", "step", name="pk_checkpoints"),
    ],
    "events": [
        must("job_id", sa.String(40)),
        must("seq", sa.BigInteger),
        must("at", TIME),
        must("type", sa.String(64)),
        must("data", JSON),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_events_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "seq", name="pk_events"),
    ],
    "gang_nodes": [
        must("job_id", sa.String(40)),
        must("generation", sa.BigInteger),
        must("node_id", sa.String(40)),
        may("ended", sa.String(16)),
        may("ended_at", TIME),
        may("rank", sa.BigInteger),
        may("failure_class", sa.String),
        may("reason", sa.Text),
        may("message", sa.Text),
        may("exit_code", sa.BigInteger),
        may("drained_at", TIME),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_gang_nodes_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "generation", "node_id", name="pk_gang_nodes"),
    ],
    "gang_ranks": [
        must("job_id", sa.String(40)),
        must("generation", sa.BigInteger),
        must("rank", sa.BigInteger),
        must("node_id", sa.String(40)),
        must("up_at", TIME),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_gang_ranks_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "generation", "rank", name="pk_gang_ranks"),
    ],
    "job_due": [
        must("job_id", sa.String(40)),
        must("urgency", sa.Integer),
        may("next_at", TIME),
        must("wake", sa.BigInteger),
        must("seen_wake", sa.BigInteger),
        must("fence", sa.BigInteger),
        may("lease_owner", sa.String(200)),
        may("lease_until", TIME),
        sa.CheckConstraint("urgency BETWEEN 0 AND 3", name=sa.schema.conv("ck_job_due_urgency")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_due_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name="pk_job_due"),
    ],
    "log_chunks": [
        must("job_id", sa.String(40)),
        must("generation", sa.BigInteger),
        must("rank", sa.BigInteger),
        must("stream", sa.String(16)),
        must("job_line", sa.BigInteger),
        must("first_line", sa.BigInteger),
        must("lines", sa.BigInteger),
        must("journal_id", sa.String(100)),
        must("offset", sa.BigInteger),
        must("length", sa.BigInteger),
        must("object", sa.Text),
        must("first_at", TIME),
        must("last_at", TIME),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_log_chunks_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "generation", "rank", "stream", "journal_id", "offset", name="pk_log_chunks"),
    ],
    "log_streams": [
        must("job_id", sa.String(40)),
        must("generation", sa.BigInteger),
        must("rank", sa.BigInteger),
        must("stream", sa.String(16)),
        must("lines", sa.BigInteger),
        must("bytes", sa.BigInteger),
        must("last_at", TIME),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_log_streams_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "generation", "rank", "stream", name="pk_log_streams"),
    ],
    "metric_chunks": [
        must("job_id", sa.String(40)),
        must("chunk", sa.BigInteger),
        must("generation", sa.BigInteger),
        must("points", JSON),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_metric_chunks_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "chunk", "generation", name="pk_metric_chunks"),
    ],
    "progress": [
        must("job_id", sa.String(40)),
        must("generation", sa.BigInteger),
        must("at", TIME),
        must("step", sa.BigInteger),
        may("total_steps", sa.BigInteger),
        must("values", JSON),
        may("eta_s", sa.Double),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_progress_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name="pk_progress"),
    ],
    "slots": [
        must("instance", sa.String(64)),
        must("kind", sa.String(64)),
        must("index", sa.Integer),
        must("node_id", sa.String(40)),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name="fk_slots_node_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("instance", "kind", "index", name="pk_slots"),
    ],
    "transitions": [
        must("job_id", sa.String(40)),
        must("seq", sa.BigInteger),
        must("at", TIME),
        must("trigger", sa.String),
        must("from_state", sa.String),
        must("to_state", sa.String),
        may("reason", sa.String),
        must("generation", sa.Integer),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_transitions_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "seq", name="pk_transitions"),
    ],
    "watches": [
        must("job_id", sa.String(40)),
        must("until", TIME),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_watches_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name="pk_watches"),
    ],
}

OPTIONS: dict[str, dict[str, Any]] = {
    "outbox": {"sqlite_autoincrement": True},
    "events": {"sqlite_with_rowid": False},
    "job_due": {"postgresql_with": {"fillfactor": "70"}},
    "transitions": {"sqlite_with_rowid": False},
}

INDEXES: list[tuple[str, str, list[str], str | None]] = [
    # name, table, columns, only where
    ("ix_idempotency_created_at", "idempotency", ["created_at"], None),
    ("ix_jobs_newest", "jobs", ["project", "created_at", "id"], None),
    ("ix_jobs_newest_by_state", "jobs", ["project", "state", "created_at", "id"], None),
    ("ix_nodes_handle", "nodes", ["instance", "handle"], None),
    ("ix_nodes_job_id", "nodes", ["job_id"], None),
    ("ix_nodes_live", "nodes", ["instance"], "state != 'gone'"),
    ("ix_job_due_next", "job_due", ["urgency", "next_at"], "next_at IS NOT NULL"),
    ("ix_log_chunks_line", "log_chunks", ["job_id", "generation", "rank", "stream", "first_line"], None),
    ("ix_slots_node_id", "slots", ["node_id"], None),
]


def upgrade() -> None:
    for name, items in TABLES.items():
        op.create_table(name, *items, **OPTIONS.get(name, {}))
    for name, table, columns, where in INDEXES:
        only = None if where is None else sa.text(where)
        op.create_index(name, table, columns, sqlite_where=only, postgresql_where=only)


def downgrade() -> None:
    for name, table, _, _ in INDEXES:
        op.drop_index(name, table)
    for name in reversed(TABLES):
        op.drop_table(name)
