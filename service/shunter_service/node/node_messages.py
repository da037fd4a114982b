"""What agents send, read with the protocol's own models; faults as problems."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from shunter_schemas.faults import Fault, pointer
from shunter_schemas.node_sync import SyncRequest
from shunter_store.node.sync_reading import read_request

from shunter_service.web.problems import ProblemError

M = TypeVar("M", bound=BaseModel)

_SHOWN = 20


def read_sync(body: bytes) -> SyncRequest:
    """A sync message; single records that cannot be used do not spoil it.

    Raises:
        ProblemError: 400 or 422.
    """
    try:
        return read_request(body)
    except ValidationError as error:
        raise _problem(error) from None


def read_message(model: type[M], body: bytes) -> M:
    """Any other message.

    Raises:
        ProblemError: 400 or 422.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _problem(error) from None


def _problem(error: ValidationError) -> ProblemError:
    entries = error.errors(include_input=False, include_url=False, include_context=False)
    if entries[0]["type"] == "json_invalid":
        return ProblemError("not_parseable", "not JSON")
    faults = [Fault(pointer(entry["loc"]), entry["msg"]) for entry in entries[:_SHOWN]]
    return ProblemError("invalid_message", f"{len(entries)} faults were found", faults=faults)
