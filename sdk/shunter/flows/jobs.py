"""Jobs: submit, look, list, change, end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from shunter_schemas.api import (
    CancelledJobs,
    Job,
    JobCounts,
    JobDocument,
    JobDocuments,
    JobPage,
    JobSummary,
    PlanAnswer,
    Receipt,
    rfc3339,
)

from shunter.document import Folder, encode, folders, prepare, with_bundle
from shunter.errors import DocumentRefused
from shunter.flows.answers import get, job_path, pages, post, read_as
from shunter.flows.files import Uploading, upload
from shunter.model_config import with_model_config
from shunter.steps import Call, Flow, ItemFlow, Request, ask, work

Labels = Mapping[str, str] | Sequence[str]
"""Labels to filter by: a mapping, or `name=value` and names alone for any value."""

_NOBODYS_BUNDLE: Final = f"bun_{'0' * 64}"
"""An id of the right form; there are no bytes with this digest."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which jobs of a list."""

    states: Sequence[str] = ()
    labels: Labels = ()
    name: str | None = None
    name_prefix: str | None = None
    created_by: str | None = None
    provider: str | None = None
    commit: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def as_given(self) -> dict[str, Any]:
        """By the API's names; what is not filtered by is left out."""
        found = {
            "state": list(self.states),
            "label": _labels(self.labels),
            "name": self.name,
            "name_prefix": self.name_prefix,
            "created_by": self.created_by,
            "provider": self.provider,
            "commit": self.commit,
            "created_after": rfc3339(self.created_after) if self.created_after else None,
            "created_before": rfc3339(self.created_before) if self.created_before else None,
        }
        return {name: value for name, value in found.items() if value not in (None, [])}


def submit(
    document: str | Path | Mapping[str, Any],
    *,
    source: str | Path | None = None,
    settings: Iterable[str] = (),
    idempotency_key: str | None = None,
    uploading: Uploading | None = None,
) -> Flow[Job]:
    """Folders first, then the document that names them as bundles; a wrong document costs no packing and no upload."""
    prepared, base = yield from work(lambda: prepare(document, source=source, settings=settings))
    found = folders(prepared, base)
    if found:
        yield from _ask_whether_good(prepared, found)
    for folder in found:
        sent = yield from upload(folder.path, uploading)
        prepared = with_bundle(prepared, folder, sent.id)
    return (yield from ask(post(Job, "/v1/jobs", encode(prepared), idempotency_key=idempotency_key)))


def _ask_whether_good(document: Mapping[str, Any], found: Sequence[Folder]) -> Flow[None]:
    """Post the document with bundles that nobody can have, which nothing but their absence may speak against.

    The service judges, not the rules of this installation: it may be of another release, and it knows its providers.

    Raises:
        DocumentRefused: with what else is wrong.
    """
    asked = dict(document)
    for folder in found:
        asked = with_bundle(asked, folder, _NOBODYS_BUNDLE)
    places = {folder.place + ("/id" if folder.place == "/source" else "/from") for folder in found}
    try:
        yield from ask(post(Job, "/v1/jobs", encode(asked)))
    except DocumentRefused as refused:
        if others := [fault for fault in refused.faults if fault.pointer not in places]:
            raise refused.with_only(others) from None


def plan(
    document: str | Path | Mapping[str, Any], *, source: str | Path | None = None, settings: Iterable[str] = ()
) -> Flow[PlanAnswer]:
    """Nothing is uploaded: of folders, only the configuration of a model goes along."""
    prepared = yield from work(lambda: with_model_config(*prepare(document, source=source, settings=settings)))
    return (yield from ask(post(PlanAnswer, "/v1/plans", encode(prepared))))


def look(job_id: str) -> Flow[Job]:
    """The job as it is now."""
    return ask(get(Job, job_path(job_id)))


def listed(filters: Filters, page_size: int) -> ItemFlow[JobSummary]:
    """Jobs, newest first."""
    return pages(JobPage, "/v1/jobs", {**filters.as_given(), "limit": page_size})


def counts() -> Flow[JobCounts]:
    """How many jobs there are in each state."""
    return ask(get(JobCounts, "/v1/jobs/counts"))


def cancel(job_id: str) -> Flow[Job]:
    """End one."""
    return ask(post(Job, job_path(job_id, "cancel")))


def cancel_all(filters: Filters) -> Flow[tuple[str, ...]]:
    """End all that fit; the service takes them in several requests where there are many."""
    ids: list[str] = []
    while True:
        answer = yield from ask(post(CancelledJobs, "/v1/jobs/cancel", _json(filters.as_given())))
        ids += answer.ids
        if not answer.more or not answer.ids:
            return tuple(ids)


def act(job_id: str, verb: Literal["pause", "resume", "checkpoint"]) -> Flow[Job]:
    """One of the verbs that take nothing and answer the job."""
    return ask(post(Job, job_path(job_id, verb)))


def retry(
    job_id: str,
    *,
    start_from: Literal["checkpoint", "start"] | None,
    changes: Mapping[str, Any],
    idempotency_key: str | None,
) -> Flow[Job]:
    """A new job from the same document."""
    body = {**({"from": start_from} if start_from else {}), **changes}
    return ask(post(Job, job_path(job_id, "retry"), _json(body), idempotency_key=idempotency_key))


def move(job_id: str, changes: Mapping[str, Any], revision: int | None, idempotency_key: str | None) -> Flow[Job]:
    """The same job under a changed document."""
    headers = {} if revision is None else {"If-Match": f'"{revision}"'}
    path = job_path(job_id, "move")
    return ask(post(Job, path, _json(changes), idempotency_key=idempotency_key, headers=headers))


def documents(job_id: str) -> Flow[Sequence[JobDocument]]:
    """Every version of a job's document."""
    return (yield from ask(get(JobDocuments, job_path(job_id, "documents")))).items


def receipt(job_id: str) -> Flow[Receipt]:
    """What a job cost, by cause and by node."""
    return ask(get(Receipt, job_path(job_id, "receipt")))


def update(job_id: str, changes: Mapping[str, Any], revision: int | None) -> Flow[Job]:
    """A merge patch, only if the job is still at `revision`; by default at the one that it has now.

    It is sent once: a repetition after a lost answer would be refused for the revision that the first one made.
    """
    if revision is None:
        revision = (yield from look(job_id)).revision
    headers = {"Content-Type": "application/merge-patch+json", "If-Match": f'"{revision}"'}
    request = Request("PATCH", job_path(job_id), headers=headers, body=_json(changes), tries=1)
    return (yield from ask(Call(request, read_as(Job))))


def delete(job_id: str) -> Flow[None]:
    """The record of an ended job."""
    return ask(Call(Request("DELETE", job_path(job_id)), lambda _: None))


def changes_of(
    labels: Mapping[str, str | None] | None,
    priority: str | None,
    limits: Mapping[str, Any] | None,
    **replaced: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """A merge patch of what may change in a job; a retry also replaces its `strategy` and `resources`."""
    found = {"labels": dict(labels or {}), "priority": priority, "limits": dict(limits or {}), **replaced}
    return {name: value for name, value in found.items() if value}


def _labels(labels: Labels) -> list[str]:
    if isinstance(labels, Mapping):
        return [f"{name}={value}" for name, value in labels.items()]
    return list(labels)


def _json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data).encode()
