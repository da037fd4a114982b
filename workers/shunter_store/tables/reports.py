"""The tables of what nodes report: how gangs did, metrics, logs, artifacts, checkpoints. Read them from `tables`."""

from __future__ import annotations

from shunter_schemas.states import FailureClass
from sqlalchemy import BigInteger, Double, Index, PrimaryKeyConstraint, String, Table, Text, text

from shunter_store.sql.sqltypes import Json, UtcTime, Word
from shunter_store.tables.columns import may, metadata, must, of_job

gang_nodes = Table(
    "gang_nodes",
    metadata,
    of_job(),
    must("generation", BigInteger),
    must("node_id", String(40)),
    may("ended", String(16)),
    may("ended_at", UtcTime),
    may("rank", BigInteger),
    may("failure_class", Word(FailureClass)),
    may("reason", Text),
    may("message", Text),
    may("exit_code", BigInteger),
    may("drained_at", UtcTime),
    PrimaryKeyConstraint("job_id", "generation", "node_id"),
)

gang_ranks = Table(
    "gang_ranks",
    metadata,
    of_job(),
    must("generation", BigInteger),
    must("rank", BigInteger),
    must("node_id", String(40)),
    must("up_at", UtcTime),
    PrimaryKeyConstraint("job_id", "generation", "rank"),
)

progress = Table(
    "progress",
    metadata,
    of_job(),
    must("generation", BigInteger),
    must("at", UtcTime),
    must("step", BigInteger),
    may("total_steps", BigInteger),
    must("values", Json),
    may("eta_s", Double),
    PrimaryKeyConstraint("job_id", "generation"),
)
"""The newest report of each generation."""

metric_chunks = Table(
    "metric_chunks",
    metadata,
    of_job(),
    must("chunk", BigInteger),
    must("generation", BigInteger),
    must("points", Json),
    must("first_arrival", BigInteger, server_default="0"),
    must("last_arrival", BigInteger, server_default="0"),
    PrimaryKeyConstraint("job_id", "chunk", "generation"),
    Index("ix_metric_chunks_arrival", "job_id", "last_arrival"),
)
"""Each point has a number, its place in the order in which the job's points arrived: those of a chunk lie within
`first_arrival … last_arrival`. Points that are older than this numbering have 0."""

log_streams = Table(
    "log_streams",
    metadata,
    of_job(),
    must("generation", BigInteger),
    must("rank", BigInteger),
    must("stream", String(16)),
    must("lines", BigInteger),
    must("bytes", BigInteger),
    must("last_at", UtcTime),
    PrimaryKeyConstraint("job_id", "generation", "rank", "stream"),
)

log_chunks = Table(
    "log_chunks",
    metadata,
    of_job(),
    must("generation", BigInteger),
    must("rank", BigInteger),
    must("stream", String(16)),
    must("job_line", BigInteger),
    must("first_line", BigInteger),
    must("lines", BigInteger),
    must("journal_id", String(100)),
    must("offset", BigInteger),
    must("length", BigInteger),
    must("object", Text),
    must("first_at", UtcTime),
    must("last_at", UtcTime),
    PrimaryKeyConstraint("job_id", "generation", "rank", "stream", "journal_id", "offset"),
    Index("ix_log_chunks_line", "job_id", "generation", "rank", "stream", "first_line"),
    Index("ix_log_chunks_arrival", "job_id", "job_line"),
    Index("ix_log_chunks_stream_arrival", "job_id", "generation", "rank", "stream", "job_line"),
)
"""`job_line`: lines of the whole job that had arrived before. It orders the lines of all streams for good."""

artifacts = Table(
    "artifacts",
    metadata,
    of_job(),
    must("path", Text),
    must("generation", BigInteger),
    must("size", BigInteger),
    must("sha256", String(64)),
    must("object", Text),
    must("created_at", UtcTime),
    PrimaryKeyConstraint("job_id", "path"),
)

checkpoint_parts = Table(
    "checkpoint_parts",
    metadata,
    of_job(),
    must("generation", BigInteger),
    must("step", BigInteger),
    must("node_rank", BigInteger),
    must("files", Json),
    must("values", Json),
    PrimaryKeyConstraint("job_id", "generation", "step", "node_rank"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    of_job(),
    must("generation", BigInteger),
    must("step", BigInteger),
    must("files", Json),
    must("values", Json),
    must("size", BigInteger),
    must("committed_at", UtcTime),
    may("pruned_at", UtcTime),
    may("origin_job", String(40)),
    may("origin_generation", BigInteger),
    PrimaryKeyConstraint("job_id", "generation", "step"),
    Index(
        "ix_checkpoints_origin",
        "origin_job",
        sqlite_where=text("origin_job IS NOT NULL"),
        postgresql_where=text("origin_job IS NOT NULL"),
    ),
)
"""A checkpoint exists only once it has a row here. `origin_…`: another job wrote it, and its objects are shared."""

deleted_jobs = Table(
    "deleted_jobs",
    metadata,
    must("id", String(40), primary_key=True),
    must("project", String(64)),
    must("deleted_at", UtcTime, index=True),
    Index("ix_deleted_jobs_changed", "project", "deleted_at", "id"),
)
"""Jobs whose records were deleted not long ago, for those who follow all jobs of a project."""
