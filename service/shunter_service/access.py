"""Whose things they are: what belongs to another project does not exist."""

from __future__ import annotations

from typing import Any

from litestar import Request
from shunter_schemas.ids import is_id
from shunter_store.installation.api_keys import ApiKey
from shunter_store.job import jobs
from sqlalchemy import Connection

from shunter_service.web.problems import not_found

AnyRequest = Request[ApiKey, Any, Any]
"""A request that passed `auth.require_key`: its user is the key."""


def own_job(conn: Connection, key: ApiKey, job_id: str) -> jobs.JobRow:
    """The job, if it is in the key's project.

    Raises:
        ProblemError: 404.
    """
    row = jobs.get(conn, job_id) if is_id("job", job_id) else None
    if row is None or row.project != key.project:
        raise not_found("job", job_id[:60])
    return row
