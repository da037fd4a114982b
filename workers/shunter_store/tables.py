"""Every table of the store. The migrations are proven equal to this file by a test."""

from __future__ import annotations

from typing import Any, Final

from shunter_schemas.states import FailureClass, Health, NodeState, Reason, State
from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.types import TypeEngine

from shunter_store.lifecycle import Trigger
from shunter_store.sqltypes import BigId, Json, UtcTime, Word

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _must(name: str, type_: TypeEngine[Any] | type[TypeEngine[Any]], *args: Any, **kwargs: Any) -> Column[Any]:
    return Column(name, type_, *args, nullable=False, **kwargs)


def _may(name: str, type_: TypeEngine[Any] | type[TypeEngine[Any]]) -> Column[Any]:
    return Column(name, type_, nullable=True)


def _job() -> Column[str]:
    return _must("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"))


# --- who and what we are -----------------------------------------------------------------------------------------

deployment = Table(
    "deployment",
    metadata,
    _must("id", String(6), primary_key=True),
    _must("install_nonce", String(64)),
    _must("created_at", UtcTime),
)

api_keys = Table(
    "api_keys",
    metadata,
    _must("secret_hash", String(64), primary_key=True),
    _must("project", String(64)),
    _must("name", String(200)),
    _must("scopes", Json),
    _must("created_at", UtcTime),
)

idempotency = Table(
    "idempotency",
    metadata,
    _must("project", String(64)),
    _must("path", String(500)),
    _must("key", String(255)),
    _must("body_hash", String(64)),
    _must("status", Integer),
    _must("headers", Json),
    _must("body", Text),
    _must("created_at", UtcTime),
    PrimaryKeyConstraint("project", "path", "key"),
    Index("ix_idempotency_created_at", "created_at"),
)

# --- jobs --------------------------------------------------------------------------------------------------------

jobs = Table(
    "jobs",
    metadata,
    _must("id", String(40), primary_key=True),
    _must("project", String(64)),
    _must("created_by", String(200)),
    _must("name", String(200)),
    _must("labels", Json),
    _must("priority", Integer),
    _must("spec", Json),
    _must("state", Word(State)),
    _may("reason", Word(Reason)),
    _may("message", Text),
    _must("health", Word(Health)),
    _may("outcome", Word(State)),
    _may("cancel_requested_at", UtcTime),
    _must("generation", Integer),
    _must("revision", Integer),
    _must("event_seq", BigId),
    _may("provider", String(64)),
    _may("plan", Json),
    _may("waiting", Json),
    _must("facts", Json),
    _must("user_restarts", Integer),
    _must("node_recoveries", Integer),
    _must("created_at", UtcTime),
    _must("updated_at", UtcTime),
    _may("started_at", UtcTime),
    _may("finished_at", UtcTime),
    _may("released_at", UtcTime),
    _must("spec_text", Text),
    Index("ix_jobs_newest", "project", "created_at", "id"),
    Index("ix_jobs_newest_by_state", "project", "state", "created_at", "id"),
)

job_due = Table(
    "job_due",
    metadata,
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    _must("urgency", Integer),
    _may("next_at", UtcTime),
    _must("wake", BigId),
    _must("seen_wake", BigId),
    _must("fence", BigId),
    _may("lease_owner", String(200)),
    _may("lease_until", UtcTime),
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
    _job(),
    _must("seq", BigId),
    _must("at", UtcTime),
    _must("type", String(64)),
    _must("data", Json),
    PrimaryKeyConstraint("job_id", "seq"),
    sqlite_with_rowid=False,
)

transitions = Table(
    "transitions",
    metadata,
    _job(),
    _must("seq", BigId),
    _must("at", UtcTime),
    _must("trigger", Word(Trigger)),
    _must("from_state", Word(State)),
    _must("to_state", Word(State)),
    _may("reason", Word(Reason)),
    _must("generation", Integer),
    PrimaryKeyConstraint("job_id", "seq"),
    sqlite_with_rowid=False,
)
"""`seq` is that of the event `job.state` that tells the same."""

outbox = Table(
    "outbox",
    metadata,
    _must("id", BigId, primary_key=True, autoincrement=True),
    _must("topic", String(64)),
    _must("created_at", UtcTime),
    sqlite_autoincrement=True,
)

leases = Table(
    "leases",
    metadata,
    _must("name", String(200), primary_key=True),
    _may("owner", String(200)),
    _must("fence", BigId),
    _may("until", UtcTime),
)

watches = Table(
    "watches",
    metadata,
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    _must("until", UtcTime),
)

# --- the node ledger ---------------------------------------------------------------------------------------------

nodes = Table(
    "nodes",
    metadata,
    _must("id", String(40), primary_key=True),
    _must("token", String(40), unique=True),
    # No foreign key: deleting the record of a job never touches the ledger.
    _must("job_id", String(40)),
    _must("generation", Integer),
    _must("rank", Integer),
    _must("instance", String(64)),
    _must("account", String(200)),
    _must("offer", Json),
    _may("slot_kind", String(64)),
    _must("slot_indices", Json),
    _must("state", Word(NodeState)),
    _may("handle", String(300)),
    _must("billed_usd_per_hour", Double),
    _must("accrued_usd", Double),
    _may("accrued_at", UtcTime),
    _must("intended_at", UtcTime),
    _may("created_at", UtcTime),
    _may("ready_at", UtcTime),
    _may("releasing_at", UtcTime),
    _may("gone_at", UtcTime),
    _may("reason", Text),
    _may("condition", String(16)),
    _may("condition_reason", Text),
    _may("scanned_at", UtcTime),
    _must("absent_scans", Integer),
    _may("create_deadline_at", UtcTime),
    _may("lease_s", Double),
    _may("lease_granted_until", UtcTime),
    _may("stop_at", UtcTime),
    _must("desired_phase", String(16)),
    _must("desired_generation", Integer),
    _may("desired_reason", String(200)),
    _must("desired_at", UtcTime),
    _must("run_generation", Integer),
    _may("assignment", Json),
    _must("sync_token_hash", String(64), unique=True),
    _may("journal_id", String(100)),
    _must("acknowledged", BigId),
    _must("past_journals", Json),
    _may("gap_at", BigId),
    _may("last_sync_at", UtcTime),
    _must("status", Json),
    _may("boot", Json),
    _must("addresses", Json),
    Index("ix_nodes_job_id", "job_id"),
    Index("ix_nodes_live", "instance", sqlite_where=text("state != 'gone'"), postgresql_where=text("state != 'gone'")),
    Index("ix_nodes_handle", "instance", "handle"),
)

slots = Table(
    "slots",
    metadata,
    _must("instance", String(64)),
    _must("kind", String(64)),
    _must("index", Integer),
    _must("node_id", String(40), ForeignKey("nodes.id", ondelete="CASCADE")),
    PrimaryKeyConstraint("instance", "kind", "index"),
    Index("ix_slots_node_id", "node_id"),
)

providers = Table(
    "providers",
    metadata,
    _must("instance", String(64), primary_key=True),
    _must("plugin", String(64)),
    _must("ok", Boolean),
    _must("detail", Text),
    _may("account", String(200)),
    _must("capabilities", Json),
    _must("offers", Json),
    _must("updated_at", UtcTime),
)

# --- what nodes tell ---------------------------------------------------------------------------------------------

gang_nodes = Table(
    "gang_nodes",
    metadata,
    _job(),
    _must("generation", Integer),
    _must("node_id", String(40)),
    _may("ended", String(16)),
    _may("ended_at", UtcTime),
    _may("rank", Integer),
    _may("failure_class", Word(FailureClass)),
    _may("reason", String(64)),
    _may("message", Text),
    _may("exit_code", Integer),
    _may("drained_at", UtcTime),
    PrimaryKeyConstraint("job_id", "generation", "node_id"),
)

gang_ranks = Table(
    "gang_ranks",
    metadata,
    _job(),
    _must("generation", Integer),
    _must("rank", Integer),
    _must("node_id", String(40)),
    _must("up_at", UtcTime),
    PrimaryKeyConstraint("job_id", "generation", "rank"),
)

progress = Table(
    "progress",
    metadata,
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    _must("generation", Integer),
    _must("at", UtcTime),
    _must("step", BigId),
    _may("total_steps", BigId),
    _must("values", Json),
    _may("eta_s", Double),
)

metric_chunks = Table(
    "metric_chunks",
    metadata,
    _job(),
    _must("chunk", BigId),
    _must("generation", Integer),
    _must("points", Json),
    PrimaryKeyConstraint("job_id", "chunk", "generation"),
)

log_streams = Table(
    "log_streams",
    metadata,
    _job(),
    _must("generation", Integer),
    _must("rank", Integer),
    _must("stream", String(16)),
    _must("lines", BigId),
    _must("bytes", BigId),
    _must("last_at", UtcTime),
    PrimaryKeyConstraint("job_id", "generation", "rank", "stream"),
)

log_chunks = Table(
    "log_chunks",
    metadata,
    _job(),
    _must("generation", Integer),
    _must("rank", Integer),
    _must("stream", String(16)),
    _must("first_line", BigId),
    _must("lines", BigId),
    _must("journal_id", String(100)),
    _must("offset", BigId),
    _must("length", BigId),
    _must("object", String(1000)),
    _must("first_at", UtcTime),
    _must("last_at", UtcTime),
    PrimaryKeyConstraint("job_id", "generation", "rank", "stream", "journal_id", "offset"),
    Index("ix_log_chunks_line", "job_id", "generation", "rank", "stream", "first_line"),
)

artifacts = Table(
    "artifacts",
    metadata,
    _job(),
    _must("path", String(1000)),
    _must("generation", Integer),
    _must("size", BigId),
    _must("sha256", String(64)),
    _must("object", String(1000)),
    _must("created_at", UtcTime),
    PrimaryKeyConstraint("job_id", "path"),
)

checkpoint_parts = Table(
    "checkpoint_parts",
    metadata,
    _job(),
    _must("generation", Integer),
    _must("step", BigId),
    _must("node_rank", Integer),
    _must("files", Json),
    _must("values", Json),
    PrimaryKeyConstraint("job_id", "generation", "step", "node_rank"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    _job(),
    _must("generation", Integer),
    _must("step", BigId),
    _must("files", Json),
    _must("values", Json),
    _must("size", BigId),
    _must("committed_at", UtcTime),
    _may("pruned_at", UtcTime),
    PrimaryKeyConstraint("job_id", "generation", "step"),
)
"""A checkpoint exists only once it has a row here."""

bundles = Table(
    "bundles",
    metadata,
    _must("digest", String(80), primary_key=True),
    _must("size", BigId),
    _must("entries", Integer),
    _must("created_at", UtcTime),
)
