"""Every problem that the API answers with, from the service's own table, and the way out of each."""

from __future__ import annotations

from collections.abc import Iterator

from shunter_service.problems import PROBLEMS

_HEAD = """# Problems

Every error of the API is an `application/problem+json` document (RFC 9457):

```json
{
  "type": "/v1/problems/invalid_document",
  "title": "The job document is not valid",
  "status": 422,
  "detail": "…",
  "errors": [{"pointer": "/workload/batch/global_size", "detail": "15 samples do not divide over 2 ranks …"}],
  "request_id": "req_01kb9m4t8zq3v5x7y9a1c3e5g7"
}
```

`type` and `title` are the same for every problem of one kind; `detail` tells this case. `errors` points into the
document that was sent (RFC 6901), or to a query parameter. Quote `request_id` to the operator: it
stands in the service's log.
"""

_WAY_OUT: dict[str, str] = {
    "not_parseable": "Send one JSON document in UTF-8. `detail` names line and column.",
    "bad_request": "The request itself is broken, for example cut off in the middle. Send it again.",
    "unauthorized": "Send `Authorization: Bearer KEY`. `shunter up` keeps its key in `DATA/api-key`.",
    "forbidden": "Use a key whose scopes allow it.",
    "signature_invalid": "Signed URLs hold for a while and for one object. Ask for a new one.",
    "not_found": "It does not exist, or belongs to another project. `shunter jobs` lists yours.",
    "method_not_allowed": "The `Allow` header names the methods of this path.",
    "not_acceptable": "Accept `application/json`, or `text/event-stream` where there is a stream.",
    "job_ended": "It has succeeded or failed already. Labels may still change; `retry` takes it up again as a new job.",
    "job_stopping": "Its end was asked for before. Wait for it; then `retry` takes it up again.",
    "job_not_ended": "Cancel it, or wait until its nodes are gone.",
    "not_paused": "There is nothing to resume; `state` and `waiting` say where it is.",
    "not_running": "Ask again once it is `running`. A pause and a cancel of a training write a checkpoint anyway.",
    "not_resumable": "Declare `workload.checkpoint` in the document, or cancel the job and retry it from the start.",
    "checkpoint_not_supported": "Only trainings can be asked. A script writes checkpoints when it wants to.",
    "no_checkpoint": "Retry it with `from: start`.",
    "object_exists": "Objects are written once. The same bytes again are fine; other bytes need another key.",
    "conflict": "Read the thing again and decide anew.",
    "node_gone": "The node was released; its agent ends by itself.",
    "revision_changed": "Read the job again, and change what you see then.",
    "too_large": "`detail` names the limit. Keep data out of the source: make it an input.",
    "unsupported_media_type": "Job documents are `application/json`, bundles `application/gzip`.",
    "range_not_satisfiable": "Ask for a range inside the file; `Content-Range` names its size.",
    "invalid_document": "`errors` names every fault, with the way out. `shunter validate FILE` says the same offline.",
    "invalid_message": "`errors` names every fault in the body.",
    "invalid_request": "`errors` names every fault in the body.",
    "invalid_parameters": "`errors` names the query parameter; unknown ones are refused, with the nearest known name.",
    "invalid_bundle": "A bundle is a gzip'd tar of plain files and folders. `shunter submit` makes one that is fine.",
    "digest_mismatch": "Something changed the bytes on the way. Send them again.",
    "idempotency_key_reused": "An `Idempotency-Key` belongs to one body. Use a new one for a new request.",
    "if_match_required": "Send `If-Match` with the job's `ETag`, so that no change is overwritten unseen; or `*`.",
    "internal_error": "A fault of the service. Quote the `request_id`.",
    "unavailable": "Come again after `Retry-After` seconds. `/readyz` names the part that is missing.",
}


def text() -> str:
    """The page; fails when a slug has no way out here, or a way out has no slug."""
    if _WAY_OUT.keys() != PROBLEMS.keys():
        raise SystemExit(f"docs/generate/errors_page.py differs in: {sorted(_WAY_OUT.keys() ^ PROBLEMS.keys())}")
    return "\n".join([_HEAD, *_sections()])


def _sections() -> Iterator[str]:
    for slug, kind in PROBLEMS.items():
        yield f"## {slug}\n\n{kind.status}: {kind.title}. {_WAY_OUT[slug]}\n"
