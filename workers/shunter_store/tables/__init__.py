"""Every table of the store. The migrations are proven equal to this file by a test."""

from __future__ import annotations

from typing import Any

from shunter_schemas.states import Health, NodeState, Reason, State
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    text,
)

from shunter_store.job.lifecycle import Trigger
from shunter_store.sql.sqltypes import BigId, Json, UtcTime, Word
from shunter_store.tables.columns import may, metadata, must, of_job
from shunter_store.tables.money import charges, notices, payers, readings
from shunter_store.tables.paces import paces
from shunter_store.tables.reaching import bootstraps, job_keys, node_calls
from shunter_store.tables.reports import (
    artifacts,
    checkpoint_parts,
    checkpoints,
    deleted_jobs,
    gang_nodes,
    gang_ranks,
    log_chunks,
    log_streams,
    metric_chunks,
    progress,
)

__all__ = [
    "api_keys",
    "artifacts",
    "bootstraps",
    "bundles",
    "charges",
    "checkpoint_parts",
    "checkpoints",
    "deleted_jobs",
    "deployment",
    "events",
    "gang_nodes",
    "gang_ranks",
    "garbage",
    "idempotency",
    "job_documents",
    "job_due",
    "job_keys",
    "job_labels",
    "jobs",
    "leases",
    "log_chunks",
    "log_streams",
    "metric_chunks",
    "node_calls",
    "nodes",
    "notices",
    "outbox",
    "paces",
    "payers",
    "progress",
    "providers",
    "readings",
    "slots",
    "transitions",
    "watches",
]

# --- who and what we are -----------------------------------------------------------------------------------------

deployment = Table(
    "deployment",
    metadata,
    must("id", String(6), primary_key=True),
    must("install_nonce", String(64)),
    # At most one row: two that start at once agree.
    must("single", Boolean, unique=True),
    must("created_at", UtcTime),
    may("confirmed_nonce", String(64)),
    must("epoch", BigInteger, server_default="0"),
    may("held_at", UtcTime),
    may("held_reason", Text),
    may("confirmed_at", UtcTime),
    may("confirmed_by", Text),
)
"""Nodes that the ledger does not know are ended only while `confirmed_nonce` is `install_nonce`. `epoch` grows while
workers live: a database whose epoch is lower than what somebody saw was restored."""

api_keys = Table(
    "api_keys",
    metadata,
    must("secret_hash", String(64), primary_key=True),
    must("project", String(64)),
    must("name", String(200)),
    must("scopes", Json),
    must("created_at", UtcTime),
)

idempotency = Table(
    "idempotency",
    metadata,
    must("project", String(64)),
    must("path", Text),
    must("key", String(255)),
    must("body_hash", String(64)),
    must("status", Integer),
    must("headers", Json),
    must("body", Text),
    must("created_at", UtcTime),
    PrimaryKeyConstraint("project", "path", "key"),
    Index("ix_idempotency_created_at", "created_at"),
)

# --- jobs --------------------------------------------------------------------------------------------------------


def _newest_where_known(column: str, **options: Any) -> Index:
    known = text(f"{column} IS NOT NULL")
    columns = ("project", column, "created_at", "id")
    return Index(f"ix_jobs_newest_by_{column}", *columns, sqlite_where=known, postgresql_where=known, **options)


jobs = Table(
    "jobs",
    metadata,
    must("id", String(40), primary_key=True),
    must("project", String(64)),
    must("created_by", Text),
    must("name", Text),
    must("labels", Json),
    must("priority", Integer),
    must("spec", Json),
    must("state", Word(State)),
    may("reason", Word(Reason)),
    may("message", Text),
    must("health", Word(Health)),
    may("outcome", Word(State)),
    may("cancel_requested_at", UtcTime),
    must("generation", Integer),
    must("revision", Integer),
    must("event_seq", BigInteger),
    must("log_lines", BigInteger),
    may("provider", String(64)),
    may("plan", Json),
    may("waiting", Json),
    must("facts", Json),
    must("user_restarts", Integer),
    must("node_recoveries", Integer),
    must("created_at", UtcTime),
    must("updated_at", UtcTime),
    may("started_at", UtcTime),
    may("finished_at", UtcTime),
    may("released_at", UtcTime),
    must("spec_text", Text),
    may("pause_requested_at", UtcTime),
    must("checkpoint_wish", Integer, server_default="0"),
    may("retry_of", String(40)),
    may("resumes_from_step", BigInteger),
    may("source_commit", String(64)),
    must("metric_seq", BigInteger, server_default="0"),
    may("move_wish", Json),
    may("move_requested_at", UtcTime),
    must("document_version", Integer, server_default="1"),
    Index("ix_jobs_newest", "project", "created_at", "id"),
    Index("ix_jobs_changed", "project", "updated_at", "id"),
    Index("ix_jobs_newest_by_state", "project", "state", "created_at", "id"),
    # LIKE finds its way by it under any collation.
    Index("ix_jobs_newest_by_name", "project", "name", "created_at", "id", postgresql_ops={"name": "text_pattern_ops"}),
    Index("ix_jobs_newest_by_creator", "project", "created_by", "created_at", "id"),
    _newest_where_known("provider"),
    _newest_where_known("source_commit", postgresql_ops={"source_commit": "text_pattern_ops"}),
)
"""`checkpoint_wish` counts the times that somebody asked for a checkpoint at once; `move_wish` holds the parts of the
document that take the place of the job's once its ranks have stopped."""

job_documents = Table(
    "job_documents",
    metadata,
    of_job(),
    must("version", Integer),
    must("last_generation", BigInteger),
    must("replaced_at", UtcTime),
    must("spec", Json),
    PrimaryKeyConstraint("job_id", "version"),
)
"""Documents that a move replaced, numbered from 1; `last_generation`: the last that ran under it, or under one before
it. The job's own `spec` is the newest one and has no row here."""

job_labels = Table(
    "job_labels",
    metadata,
    of_job(),
    must("project", String(64)),
    must("key", Text),
    must("value", Text),
    must("created_at", UtcTime),
    PrimaryKeyConstraint("job_id", "key"),
    Index("ix_job_labels_newest", "project", "key", "created_at", "job_id"),
    Index("ix_job_labels_newest_by_value", "project", "key", "value", "created_at", "job_id"),
)
"""`jobs.labels` once more, so that lists by label need not look at every job; `created_at` is the job's."""

job_due = Table(
    "job_due",
    metadata,
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    must("urgency", Integer),
    may("next_at", UtcTime),
    must("wake", BigInteger),
    must("seen_wake", BigInteger),
    must("fence", BigInteger),
    may("lease_owner", String(200)),
    may("lease_until", UtcTime),
    CheckConstraint("urgency BETWEEN 0 AND 3", name="urgency"),
    Index(
        "ix_job_due_next",
        "urgency",
        "next_at",
        sqlite_where=text("next_at IS NOT NULL"),
        postgresql_where=text("next_at IS NOT NULL"),
    ),
    postgresql_with={"fillfactor": "70"},
)
"""Hot columns of the jobs that live; a job that ended has no row here."""

events = Table(
    "events",
    metadata,
    of_job(),
    must("seq", BigInteger),
    must("at", UtcTime),
    must("type", String(64)),
    must("data", Json),
    PrimaryKeyConstraint("job_id", "seq"),
    sqlite_with_rowid=False,
)

transitions = Table(
    "transitions",
    metadata,
    of_job(),
    must("seq", BigInteger),
    must("at", UtcTime),
    must("trigger", Word(Trigger)),
    must("from_state", Word(State)),
    must("to_state", Word(State)),
    may("reason", Word(Reason)),
    must("generation", Integer),
    PrimaryKeyConstraint("job_id", "seq"),
    sqlite_with_rowid=False,
)
"""`seq` is that of the event `job.state` that tells the same."""

outbox = Table(
    "outbox",
    metadata,
    must("id", BigId, primary_key=True, autoincrement=True),
    must("topic", String(64)),
    must("created_at", UtcTime),
    sqlite_autoincrement=True,
)

leases = Table(
    "leases",
    metadata,
    must("name", String(200), primary_key=True),
    may("owner", String(200)),
    must("fence", BigInteger),
    may("until", UtcTime),
)

watches = Table(
    "watches",
    metadata,
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    must("until", UtcTime),
)

# --- the node ledger ---------------------------------------------------------------------------------------------

nodes = Table(
    "nodes",
    metadata,
    must("id", String(40), primary_key=True),
    must("token", String(40), unique=True),
    # No foreign key: deleting the record of a job never touches the ledger.
    must("job_id", String(40)),
    must("generation", Integer),
    must("rank", Integer),
    must("instance", String(64)),
    must("account", Text),
    must("offer", Json),
    may("slot_kind", String(64)),
    must("slot_indices", Json),
    must("state", Word(NodeState)),
    may("handle", Text),
    must("billed_usd_per_hour", Double),
    must("accrued_usd", Double),
    may("accrued_at", UtcTime),
    must("intended_at", UtcTime),
    may("created_at", UtcTime),
    may("ready_at", UtcTime),
    may("releasing_at", UtcTime),
    may("gone_at", UtcTime),
    may("reason", Text),
    may("condition", String(16)),
    may("condition_reason", Text),
    may("condition_fault", String(16)),
    may("condition_scope", String(16)),
    may("queued_until", UtcTime),
    may("scanned_at", UtcTime),
    must("absent_scans", Integer),
    may("create_deadline_at", UtcTime),
    may("lease_s", Double),
    may("lease_granted_until", UtcTime),
    may("stop_at", UtcTime),
    must("desired_phase", String(16)),
    must("desired_generation", Integer),
    may("desired_reason", Text),
    must("desired_at", UtcTime),
    must("run_generation", Integer),
    may("assignment", Json),
    must("sync_token_hash", String(64), unique=True),
    may("journal_id", String(100)),
    must("acknowledged", BigInteger),
    must("past_journals", Json),
    may("gap_at", BigInteger),
    may("last_sync_at", UtcTime),
    must("status", Json),
    may("boot", Json),
    must("addresses", Json),
    Index("ix_nodes_job_id", "job_id"),
    Index("ix_nodes_live", "instance", sqlite_where=text("state != 'gone'"), postgresql_where=text("state != 'gone'")),
    Index("ix_nodes_handle", "instance", "handle"),
    Index("ix_nodes_newest", "intended_at", "id"),
    Index("ix_nodes_gone_at", "gone_at"),
    Index("ix_nodes_desired_at", "desired_at"),
)

slots = Table(
    "slots",
    metadata,
    must("instance", String(64)),
    must("kind", String(64)),
    must("index", Integer),
    must("node_id", String(40), ForeignKey("nodes.id", ondelete="CASCADE")),
    PrimaryKeyConstraint("instance", "kind", "index"),
    Index("ix_slots_node_id", "node_id"),
)

providers = Table(
    "providers",
    metadata,
    must("instance", String(64), primary_key=True),
    must("plugin", String(64)),
    must("ok", Boolean),
    must("detail", Text),
    may("account", Text),
    must("capabilities", Json),
    must("offers", Json),
    must("updated_at", UtcTime),
    may("offers_at", UtcTime),
    may("limits", Json),
    may("refusal", Json),
)

# --- what lies in the object store -------------------------------------------------------------------------------

bundles = Table(
    "bundles",
    metadata,
    must("digest", String(80), primary_key=True),
    must("size", BigInteger),
    must("entries", Integer),
    must("created_at", UtcTime),
)

garbage = Table(
    "garbage",
    metadata,
    must("id", BigId, primary_key=True, autoincrement=True),
    must("keys", Json),
    may("below", Text),
    must("kept", Json),
    must("created_at", UtcTime),
    sqlite_autoincrement=True,
)
"""Objects that nobody needs any more: `keys`, and everything below the folder `below` except `kept`."""
