"""The door for requests that are no job documents, and what a change makes of a stored document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from shunter_schemas.api.requests import JobPatch, MoveRequest, RetryRequest
from shunter_schemas.availability import availability_faults
from shunter_schemas.checks import cross_field_faults
from shunter_schemas.faults import MAX_FAULTS, DocumentError, Fault, nearest_existing
from shunter_schemas.job import JobSpec
from shunter_schemas.reading import read_json
from shunter_schemas.wording import faults_of

M = TypeVar("M", bound=BaseModel)

MOVABLE: Final = ("strategy", "resources", "placement")
"""Parts of a document that a move may change."""
_CHANGEABLE: Final = ("/labels", "/priority", "/limits")


def parse_request(body: bytes, model: type[M]) -> M:
    """A request's body as its model.

    Raises:
        DocumentError: with every fault that was found, and pointers into this very body.
    """
    document = read_json(body)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        faults = islice(faults_of(error, model, document), MAX_FAULTS)
        raise DocumentError(Fault(nearest_existing(at, document), detail) for at, detail in faults) from None


def with_changes(stored: Mapping[str, Any], patch: JobPatch) -> JobSpec:
    """A stored document with the changes merged in.

    Raises:
        DocumentError: the document would not be valid with them; pointers into the changed document.
    """
    limits = {name: getattr(patch.limits, name) for name in patch.limits.model_fields_set}
    changed = {
        **stored,
        "labels": _merged(stored.get("labels") or {}, patch.labels),
        "limits": _merged(stored.get("limits") or {}, limits),
        "priority": patch.priority or stored.get("priority") or "normal",
        **_replaced(patch),
    }
    try:
        job = JobSpec.model_validate_json(json.dumps(changed))
    except ValidationError as error:
        raise DocumentError(faults_of(error, JobSpec, changed)) from None
    faults = chain(cross_field_faults(job), availability_faults(job))
    # A replaced part may clash with any other; else only what the change could have brought in counts: the rest was
    # accepted when the job was.
    _refuse(faults if _replaced(patch) else (fault for fault in faults if fault.pointer.startswith(_CHANGEABLE)))
    return job


def with_move(stored: Mapping[str, Any], request: MoveRequest) -> JobSpec:
    """A stored document as a move makes it: another strategy, members of `resources` and `placement` merged in.

    Raises:
        DocumentError: the document would not be valid so; pointers into the changed document.
    """
    parts = {name: getattr(request, name) for name in MOVABLE}
    given = {n: part.model_dump(mode="json", exclude_unset=True) for n, part in parts.items() if part is not None}
    merged = {n: part if n == "strategy" else {**(stored.get(n) or {}), **part} for n, part in given.items()}
    changed = {**stored, **merged}
    try:
        job = JobSpec.model_validate_json(json.dumps(changed))
    except ValidationError as error:
        raise DocumentError(faults_of(error, JobSpec, changed)) from None
    _refuse(chain(cross_field_faults(job), availability_faults(job)))
    return job


def _replaced(patch: JobPatch) -> dict[str, Any]:
    """The parts that a retry gives in place of the job's, as the document has them."""
    if not isinstance(patch, RetryRequest):
        return {}
    parts = {"strategy": patch.strategy, "resources": patch.resources}
    return {name: part.model_dump(mode="json", exclude_unset=True) for name, part in parts.items() if part is not None}


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**old, **new}.items() if value is not None}


def _refuse(faults: Iterable[Fault]) -> None:
    found = list(faults)
    if found:
        raise DocumentError(found)
