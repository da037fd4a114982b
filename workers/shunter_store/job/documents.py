"""Documents that a move replaced: what ran before stays to be seen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select

from shunter_store.job.jobs import JobRow
from shunter_store.sql.rows import all_of, columns_of
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import job_documents


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document that was the job's until it was replaced."""

    version: int
    """From 1 on."""
    last_generation: int
    """The last generation that could run it; 0: none did."""
    replaced_at: datetime
    spec: dict[str, Any]


_OF_JOB = job_documents.c.job_id == bindparam("job")
_ALL = select(*columns_of(DocumentRow, job_documents)).where(_OF_JOB).order_by(job_documents.c.version)
_KEEP = insert(job_documents).values(replaced_at=db_now())


def keep(conn: Connection, job: JobRow, last_generation: int) -> None:
    """Keep the job's document as it is now, about to be replaced. The job's row has to be locked."""
    row = {"job_id": job.id, "version": job.document_version, "last_generation": last_generation, "spec": job.spec}
    conn.execute(_KEEP, row)


def replaced(conn: Connection, job_id: str) -> list[DocumentRow]:
    """Every document of the job but the present one, oldest first."""
    return all_of(DocumentRow, conn.execute(_ALL, {"job": job_id}))
