"""Filters over jobs: the same in the query of a list and in the body of a bulk request."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError
from shunter_schemas.api import CancelRequest
from shunter_schemas.faults import Fault
from shunter_schemas.wording import faults_of
from shunter_store.job.job_lists import JobFilter

from shunter_service.web.problems import ProblemError, bad_parameter


def from_query(**given: Any) -> JobFilter:
    """The query's parameters, by their names outside; None and empty ones are not given.

    Raises:
        ProblemError: 422, with every parameter that is wrong.
    """
    values = {name: value for name, value in given.items() if value}
    try:
        request = CancelRequest.model_validate_json(json.dumps(values))
    except (ValidationError, ValueError) as error:
        raise _refused(error, values) from None
    where = from_request(request)
    wanted: dict[str, str] = {}
    for key, value in where.labels:
        if value is not None and wanted.setdefault(key, value) != value:
            raise bad_parameter("label", f"`{key}` is asked for with two values; no job has both")
    return where


def from_request(request: CancelRequest) -> JobFilter:
    """The same as a filter of the store."""
    return JobFilter(
        states=request.state,
        labels=tuple(_label(text) for text in request.label),
        name=request.name,
        name_prefix=request.name_prefix,
        created_by=request.created_by,
        provider=request.provider,
        commit=request.commit,
        created_after=request.created_after,
        created_before=request.created_before,
    )


def _label(text: str) -> tuple[str, str | None]:
    key, separator, value = text.partition("=")
    return key, value if separator else None


def _refused(error: Exception, values: dict[str, Any]) -> ProblemError:
    if not isinstance(error, ValidationError):
        return ProblemError("invalid_parameters", "a parameter is no text that JSON can hold")
    named = [(at.split("/")[1] if at else "", detail) for at, detail in faults_of(error, CancelRequest, values)]
    faults = [Fault(f"/{name}", wrong) for name, wrong in dict.fromkeys(named)]
    detail = "; ".join(f"query parameter `{name}`: {wrong}" for name, wrong in named)
    return ProblemError("invalid_parameters", detail, faults=faults)
