"""Every kind of problem that the API answers with: its slug, HTTP status and title.

The slug is stable: it is the end of the problem's `type`, what clients tell cases apart by, and a page of the manual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from shunter_schemas.faults import Fault

TYPE_PREFIX: Final = "/v1/problems/"


class Kind(NamedTuple):
    """What is the same in every problem of one kind."""

    status: int
    title: str


# fmt: off
PROBLEMS: Final[Mapping[str, Kind]] = {
    "not_parseable":             Kind(400, "The body is not JSON that can be read"),
    "bad_request":               Kind(400, "The request is malformed"),
    "bad_cursor":                Kind(400, "The cursor was not given out by this service"),
    "unauthorized":              Kind(401, "No valid API key was sent"),
    "forbidden":                 Kind(403, "The key does not allow this"),
    "signature_invalid":         Kind(403, "The signed URL is not valid, or not any more"),
    "not_found":                 Kind(404, "There is no such thing"),
    "method_not_allowed":        Kind(405, "The method is not allowed here"),
    "not_acceptable":            Kind(406, "The answer cannot be given in that form"),
    "job_ended":                 Kind(409, "The job has ended already"),
    "job_stopping":              Kind(409, "The job is about to end"),
    "job_not_ended":             Kind(409, "The job has not ended yet"),
    "not_paused":                Kind(409, "The job is not paused"),
    "not_running":               Kind(409, "The job does not run"),
    "not_resumable":             Kind(409, "The job could not go on where it stopped"),
    "checkpoint_not_supported":  Kind(409, "The job cannot be asked for a checkpoint"),
    "no_checkpoint":             Kind(409, "The job has no checkpoint"),
    "object_exists":             Kind(409, "The object exists and holds other bytes"),
    "conflict":                  Kind(409, "The present state does not allow this"),
    "node_gone":                 Kind(410, "The node was released"),
    "revision_changed":          Kind(412, "The job has changed meanwhile"),
    "too_large":                 Kind(413, "The body is too large"),
    "unsupported_media_type":    Kind(415, "The body has a content type that is not understood here"),
    "range_not_satisfiable":     Kind(416, "The range lies outside of the file"),
    "invalid_document":          Kind(422, "The job document is not valid"),
    "invalid_message":           Kind(422, "The message is not valid"),
    "invalid_request":           Kind(422, "The body of the request is not valid"),
    "invalid_parameters":        Kind(422, "A parameter of the request is not valid"),
    "invalid_bundle":            Kind(422, "The source archive cannot be accepted"),
    "digest_mismatch":           Kind(422, "The bytes that arrived are not those that were announced"),
    "idempotency_key_reused":    Kind(422, "The Idempotency-Key was used with another body"),
    "head_too_large":            Kind(431, "The head of the request is too large"),
    "if_match_required":         Kind(428, "The request has to say which state it changes"),
    "internal_error":            Kind(500, "The service failed"),
    "unavailable":               Kind(503, "The service cannot serve at the moment"),
}
# fmt: on


class ProblemError(Exception):
    """Raised anywhere below a handler to answer with a problem document."""

    def __init__(
        self,
        slug: str,
        detail: str,
        *,
        faults: Iterable[Fault] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{slug}: {detail}")
        self.slug = slug
        self.kind = PROBLEMS[slug]
        self.detail = detail
        self.faults = tuple(faults)
        self.headers = dict(headers or {})


def not_found(kind: str, key: str) -> ProblemError:
    """404. The same answer whether it does not exist or belongs to somebody else."""
    return ProblemError("not_found", f"there is no {kind} {key}")


def bad_parameter(name: str, detail: str) -> ProblemError:
    """422 for one query parameter; the pointer reads the parameters as an object."""
    return ProblemError("invalid_parameters", f"query parameter `{name}`: {detail}", faults=[Fault(f"/{name}", detail)])
