"""The door for job documents from outside: bytes in, a checked `JobSpec` or all faults out."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

from pydantic import ValidationError

from shunter_schemas.availability import availability_faults
from shunter_schemas.checks import cross_field_faults
from shunter_schemas.faults import MAX_FAULTS, DocumentError, Fault, nearest_existing
from shunter_schemas.job import JobSpec
from shunter_schemas.posted import posted_faults
from shunter_schemas.reading import MAX_DOCUMENT_BYTES, read_json
from shunter_schemas.wording import faults_of

__all__ = ["MAX_DOCUMENT_BYTES", "DocumentError", "Fault", "parse_job", "parse_posted_job"]


def parse_job(body: bytes) -> JobSpec:
    """A job document as its author wrote it; folders on the author's machine are still allowed in it.

    Raises:
        DocumentError: with every fault that was found, and pointers into this very document.
    """
    return _parsed(body)[0]


def parse_posted_job(body: bytes) -> JobSpec:
    """A job document as the API takes it: nothing in it is left on the author's machine.

    Raises:
        DocumentError: as `parse_job`.
    """
    job, document = _parsed(body)
    _refuse(posted_faults(job), document)
    return job


def _parsed(body: bytes) -> tuple[JobSpec, Any]:
    document = read_json(body)
    try:
        job = JobSpec.model_validate_json(body)
    except ValidationError as error:
        _refuse(faults_of(error, JobSpec, document), document)
        raise  # not reached: every validation error has a fault
    _refuse(chain(cross_field_faults(job), availability_faults(job)), document)
    return job, document


def _refuse(faults: Iterable[Fault], document: Any) -> None:
    placed = [Fault(nearest_existing(fault.pointer, document), fault.detail) for fault in islice(faults, MAX_FAULTS)]
    if placed:
        raise DocumentError(dict.fromkeys(placed))
