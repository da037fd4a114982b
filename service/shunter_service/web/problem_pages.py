"""What each kind of problem means, an example, and the way out: served where `type` leads, and in the manual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from shunter_schemas.faults import Fault

from shunter_service.web.problems import PROBLEMS, TYPE_PREFIX

_EXAMPLE_ID: Final = "req_01kb9m4t8zq3v5x7y9a1c3e5g7"
_JOB: Final = "job_01kb9m4t8zq3v5x7y9a1c3e5g7"


class Page(NamedTuple):
    """`meaning` and `way_out` are sentences with code in backticks; `detail` and `errors` are those of an example."""

    meaning: str
    way_out: str
    detail: str
    errors: tuple[Fault, ...] = ()


# fmt: off
PAGES: Final[Mapping[str, Page]] = {
    "not_parseable": Page(
        "The bytes that arrived are no JSON document: cut off, another format, not UTF-8, `NaN` or `Infinity`, or "
        "nested deeper than 64 levels. YAML and comments are read by the command line only, which sends JSON.",
        "Send one JSON document in UTF-8; `detail` names line and column. `shunter submit` takes YAML and comments.",
        "not JSON: Expecting ',' delimiter at line 4, column 3",
        (Fault("", "not JSON: Expecting ',' delimiter at line 4, column 3"),)),
    "bad_request": Page(
        "The request itself is broken, not its content: for example the connection was closed in the middle of the "
        "body, or a header is no number where one is needed.",
        "Send it again. If it happens again, look at the proxy between you and the service.",
        "the connection was closed before the body had arrived"),
    "bad_cursor": Page(
        "The place to go on from (`cursor`, or `Last-Event-ID` of a stream) is not one that this service gave out: cut "
        "off, changed, or of another stream.",
        "Open the stream without `Last-Event-ID` and `cursor`, and read the pages of what it is to follow.",
        "the cursor was not given out by this service"),
    "unauthorized": Page(
        "There is no `Authorization` header, or its key is not one that this service knows: mistyped, revoked, or of "
        "another installation.",
        "Send `Authorization: Bearer KEY`. `shunter up` keeps its key in the file `api-key` of its data directory; an "
        "operator makes others with `shunter keys create NAME`.",
        "send `Authorization: Bearer shk_…`; `shunter up` leaves a key in the file `api-key` of its data directory"),
    "forbidden": Page(
        "The key is good and lacks the scope that this needs: `jobs:read` to look, `jobs:write` to submit and change.",
        "Use a key with that scope. `GET /v1/me` says what the key may do; an operator makes one with "
        "`shunter keys create NAME --scope jobs:read --scope jobs:write`.",
        "this needs a key with the scope `jobs:write`"),
    "signature_invalid": Page(
        "A signed URL was changed, is for another object, or has run out. Signed URLs are made for nodes and for "
        "downloads, and hold for an hour.",
        "Ask for a new one: repeat the request that gave it to you.",
        "ask for a new URL with POST /v1/node/grants"),
    "not_found": Page(
        "It does not exist, was deleted, or belongs to another project: which of these is not told.",
        "`shunter jobs` lists the jobs of your project. Look whether the id is whole, and whether the key is of the "
        "right project (`GET /v1/me`).",
        f"there is no job {_JOB}"),
    "method_not_allowed": Page(
        "The path is right and does not take this method.",
        "The `Allow` header names the methods of this path; `/docs` of the service shows each with an example.",
        "PUT is not allowed here"),
    "not_acceptable": Page(
        "The `Accept` header asks for a form that this answer does not come in.",
        "Accept `application/json`; `text/event-stream` where there is a stream; `text/plain` for logs.",
        "this comes as application/json or text/event-stream"),
    "job_ended": Page(
        "The job has succeeded or failed; what was asked for only makes sense before that.",
        "Labels may still change. To train on, take it up again as a new job: `shunter retry ID`.",
        "the job has succeeded"),
    "job_stopping": Page(
        "How the job ends is fixed already; its nodes are being given back.",
        "Wait until it has ended: `shunter watch ID`. Then `shunter retry ID` takes it up again.",
        "the job was asked to end"),
    "job_not_ended": Page(
        "Only the record of a job that has ended can be deleted or taken up again.",
        "Cancel it (`shunter cancel ID --wait`), or wait until it has ended.",
        "the job is running: only the record of one that ended can be deleted"),
    "not_paused": Page(
        "There is nothing to resume: the job was not paused, or goes on already.",
        "`state` and `waiting` of the job say where it is; `shunter why ID` says it in words.",
        "the job is not paused"),
    "not_running": Page(
        "Only ranks that run can be asked for a checkpoint.",
        "Ask again once the job is `running`. A pause and a cancel of a training write a checkpoint anyway.",
        "the job is queued: only ranks that run can write a checkpoint"),
    "not_resumable": Page(
        "The job writes no checkpoint that it could go on from, so a pause would throw away what it has done.",
        "Declare `workload.checkpoint` and `workload.resume_arguments` in the document of a script, or cancel the job "
        "and retry it from the start.",
        "this script declares no checkpoint, so it could not go on where it stopped"),
    "checkpoint_not_supported": Page(
        "Only trainings can be asked for a checkpoint. A script writes checkpoints when it wants to.",
        "Let the script write them at intervals of its own; every whole one is kept.",
        "only trainings can be asked for a checkpoint"),
    "no_checkpoint": Page(
        "A retry from a checkpoint was asked for, and the job has left none that is whole.",
        "Start it from the beginning: `shunter retry ID --from start`.",
        "the job has no committed checkpoint; retry it from the start"),
    "object_exists": Page(
        "Objects are written once. Under this key lies another content.",
        "The same bytes again are fine; other bytes need another key. Nodes see this after a fault of their disk only.",
        "the object exists with other bytes"),
    "conflict": Page(
        "Something changed between your look and your request.",
        "Read the thing again and decide anew.",
        "the present state does not allow this"),
    "node_gone": Page(
        "The node was released, so nothing is wanted of it any more.",
        "Nothing: its agent ends by itself when it reads this.",
        "this node was released; nothing more is wanted of it"),
    "revision_changed": Page(
        "The job is not any more what the `If-Match` header says, so your change could undo somebody else's.",
        "Read the job again, look whether your change still makes sense, and send it with the new `ETag`.",
        "the job is at revision 12, not 11"),
    "too_large": Page(
        "The body is longer than this resource takes: 1 MiB for a document, 1 GiB for a bundle, unless the operator "
        "set other limits. It is refused by its announced length, or while it arrives.",
        "Keep data out of the source: name it as an input, or leave it out with `.shunterignore`. The operator's "
        "settings are `max_document_bytes` and `max_bundle_bytes`.",
        "the body is longer than 1048576 bytes"),
    "unsupported_media_type": Page(
        "The `Content-Type` header does not name what this resource takes, or the body is compressed "
        "(`Content-Encoding`), which is not understood.",
        "Job documents are `application/json`, bundles `application/gzip`, changes `application/merge-patch+json`. "
        "With curl: `-H 'Content-Type: application/json'`.",
        "send `Content-Type: application/json`, not `text/plain`"),
    "range_not_satisfiable": Page(
        "The `Range` header begins behind the end of the file.",
        "Ask for a range inside the file; `Content-Range` names its size.",
        "the file has 493 bytes"),
    "invalid_document": Page(
        "The document is JSON and not a job document that this service can carry out: an unknown field, a value of a "
        "wrong type or out of range, parts that contradict each other, something that this release does not do yet, or "
        "a provider or bundle that is not there.",
        "`errors` names every fault with a pointer into your document, the nearest known name, and what to write "
        "instead. `shunter validate FILE` says the same without a service; the reference lists every field.",
        "2 faults were found",
        (Fault("/workload/batch/global_size", "15 samples do not divide over 2 ranks "
               "(/resources/cpu_processes); use 14 or 16"),
         Fault("/workload/modle", "unknown field; did you mean `model`?"))),
    "invalid_message": Page(
        "A node's message does not have the form of the protocol: its agent and this service are of releases that do "
        "not fit together.",
        "Upgrade the service first; nodes that it makes from then on bring the agent of its release.",
        "/records/0/kind: unknown kind",
        (Fault("/records/0/kind", "unknown kind"),)),
    "invalid_request": Page(
        "The body of a request about a job (a change, a retry, a cancel by filter) is JSON and not what this takes.",
        "`errors` names every fault in the body, with the nearest known name. `/docs` shows an example.",
        "/limits/max_duration: unknown field; did you mean `max_duration_s`?",
        (Fault("/limits/max_duration", "unknown field; did you mean `max_duration_s`?"),)),
    "invalid_parameters": Page(
        "A query parameter, header or part of the path has a value that it cannot have, or nobody knows a parameter of "
        "that name. Unknown ones are refused, since a filter that is passed over answers the wrong thing.",
        "`errors` names the parameter and what it takes, or the nearest known name.",
        "`limt`: unknown query parameter; did you mean `limit`?",
        (Fault("/limt", "unknown query parameter; did you mean `limit`?"),)),
    "invalid_bundle": Page(
        "The archive is no whole gzip'd tar, or holds what could do harm where it is unpacked: a path that leaves the "
        "folder, a link, a device, two names that differ in case only, or a bomb.",
        "Let the client make it: `shunter submit` and `client.upload_bundle(FOLDER)` pack only what is fine. By hand: "
        "`tar -czhf - -C FOLDER .` (the `h` follows links).",
        "'../evil': a path that leaves the bundle",
        (Fault("", "'../evil': a path that leaves the bundle"),)),
    "digest_mismatch": Page(
        "The bytes that arrived do not have the SHA-256 that was announced: something changed them on the way.",
        "Send them again. If it happens again, look at the memory and disk of the machine that sends.",
        "announced sha256 9f86…, received 60303…"),
    "idempotency_key_reused": Page(
        "This `Idempotency-Key` came with another body within the last day. A key stands for one request, so that its "
        "repetition is harmless; it cannot stand for two.",
        "Use a new key for a new request; the client makes one for each call. To repeat a request, send the same "
        "bytes.",
        "the key was used with another body"),
    "head_too_large": Page(
        "Address and headers of the request are longer than 64 KiB together.",
        "Look for a cookie or a header that grew on the way; a filter that is longer than this has to be several.",
        "address and headers are longer than 65536 bytes"),
    "if_match_required": Page(
        "A change must say which state of the job it changes, so that nobody overwrites what another has just done.",
        "Send `If-Match` with the `ETag` of the job as you read it; `If-Match: *` changes it whatever it is now.",
        "send `If-Match` with the `ETag` of the job as you saw it, or `*`"),
    "internal_error": Page(
        "A fault of the service. Nothing of your request was done by halves: what a request writes is one transaction.",
        "Quote `request_id` to the operator: it stands in the service's log beside the cause.",
        "an unexpected error was logged under this request id"),
    "unavailable": Page(
        "The service lives and a part that it needs does not answer, usually the database. What was accepted before is "
        "kept, and trainings go on meanwhile.",
        "Come again after `Retry-After` seconds; the clients do. `/readyz` names the part that is missing.",
        "the database does not answer; nothing is lost, try again"),
}
# fmt: on


def example(slug: str) -> dict[str, Any]:
    """A problem document of this kind."""
    kind, page = PROBLEMS[slug], PAGES[slug]
    body: dict[str, Any] = {
        "type": TYPE_PREFIX + slug,
        "title": kind.title,
        "status": kind.status,
        "detail": page.detail,
    }
    if page.errors:
        body["errors"] = [{"pointer": fault.pointer, "detail": fault.detail} for fault in page.errors]
    return body | {"request_id": _EXAMPLE_ID}
