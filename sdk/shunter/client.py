"""The client: every verb of the API that a user of trainings needs, typed, with retries that are safe.

Methods block; threads may share a client. Answers are the frozen models of `shunter_schemas.api`; a newer service may
send more than they show. Every method may raise `shunter.errors.ApiError` and `Unreachable`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError
from shunter_schemas.api import (
    Artifact,
    ArtifactPage,
    Bundle,
    Event,
    EventPage,
    Job,
    JobPage,
    JobSummary,
    LogLine,
    LogPage,
    MetricsAnswer,
    ProviderInfo,
    ProviderPage,
    Readiness,
)
from shunter_schemas.states import TERMINAL_STATES

from shunter import bundle as packing
from shunter import downloads
from shunter.connection import Connection, find_connection
from shunter.document import encode, folders, prepare, with_bundle
from shunter.errors import ShunterError, WaitTimeout
from shunter.following import Feed, Page, Patience, follow
from shunter.transport import Retries, Transport

PageT = TypeVar("PageT", JobPage, ArtifactPage)
AnswerT = TypeVar("AnswerT", bound=BaseModel)

_LONG_POLL_S = 25.0

Uploading = Callable[[packing.Bundle, bool], None]
"""Called for each folder before it is sent: the archive, and whether the service has it already."""


class Client:
    """A connection to one service. Use it as a context manager, or call `close`.

    Without arguments it finds the service as the CLI does: `SHUNTER_URL` and `SHUNTER_API_KEY`, else the files that
    `shunter up` left in `$SHUNTER_DATA_DIR`, `./.shunter` or `~/.shunter`. `data_dir` names one such folder.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        data_dir: str | Path | None = None,
        timeout_s: float = 30.0,
        retries: Retries | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        connection = find_connection(url, api_key, data_dir)
        self._transport = Transport(connection, timeout_s=timeout_s, retries=retries, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; streams that are being followed end with an error."""
        self._transport.close()

    @property
    def connection(self) -> Connection:
        """Where this client goes."""
        return self._transport.connection

    def submit(
        self,
        document: str | Path | Mapping[str, Any],
        *,
        source: str | Path | None = None,
        settings: Iterable[str] = (),
        idempotency_key: str | None = None,
        uploading: Uploading | None = None,
    ) -> Job:
        """Submit a job document (a file, or the document itself); durable when this returns.

        Folders that it names are uploaded first, unless the service has them. Relative ones lie beside the file, or
        in the working directory when the document was not read from a file.

        Args:
            source: a folder that becomes the document's source.
            settings: changes as `path=value`, e.g. `"workload.batch.global_size=64"`.
            idempotency_key: makes a repetition by another process harmless too; each call has its own otherwise.
        """
        prepared, base = prepare(document, source=source, settings=settings)
        for folder in folders(prepared, base):
            sent = self.upload_bundle(folder.path, uploading=uploading)
            prepared = with_bundle(prepared, folder, sent.id)
        answer = self._transport.post("/v1/jobs", content=encode(prepared), idempotency_key=idempotency_key)
        return _read(Job, answer)

    def get(self, job_id: str) -> Job:
        """The job as it is now."""
        return _read(Job, self._transport.get(_job(job_id)))

    def list(
        self,
        *,
        states: Sequence[str] = (),
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        page_size: int = 50,
    ) -> Iterator[JobSummary]:
        """Jobs, newest first; pages are fetched as they are needed."""
        params = {
            "state": list(states) or None,
            "name": name,
            "label": [f"{key}={value}" for key, value in (labels or {}).items()] or None,
            "limit": page_size,
        }
        for page in self._pages("/v1/jobs", params, JobPage):
            yield from page.items

    def wait(
        self,
        job_id: str,
        *,
        until: Literal["released", "outcome"] = "released",
        timeout_s: float | None = None,
        progress: Callable[[Job], None] | None = None,
        poll_s: float = 1.0,
        patience_s: float = 300.0,
    ) -> Job:
        """Block until the job has ended; the job as it then is, however it ended.

        Args:
            until: `released`: its nodes are gone and everything it left is stored. `outcome`: how it ends is fixed.
            progress: called with the job at every look, every `poll_s`. Without it the service is asked to answer
                when the job changes.
            patience_s: how long the service may be away in one piece.

        Raises:
            WaitTimeout: `timeout_s` passed first; the job goes on.
        """
        deadline = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
        patience = Patience(self._transport, patience_s)
        job: Job | None = None
        while True:
            seen, begun = job, time.monotonic()
            left_s = deadline - begun
            hold_s = 0.0 if progress or seen is None else min(_LONG_POLL_S, max(0.0, left_s))
            try:
                job = self._newer(job_id, seen, hold_s)
                patience.reset()
            except ShunterError as error:
                if left_s > 0:
                    patience.bear(error)
                    continue
                raise
            if progress:
                progress(job)
            if job.state in TERMINAL_STATES or (until == "outcome" and job.outcome is not None):
                return job
            if left_s <= 0:
                raise WaitTimeout(f"{job_id} is still {job.state} after {timeout_s:g} s", hint="it goes on")
            changed = seen is not None and job.revision > seen.revision
            if progress or not (changed or time.monotonic() - begun >= poll_s):  # a service may not hold answers back
                self._transport.retries.sleep(min(poll_s, left_s))

    def cancel(self, job_id: str) -> Job:
        """Ask the job to stop: it gets its grace for a last checkpoint. Safe to repeat."""
        return _read(Job, self._transport.post(f"{_job(job_id)}/cancel"))

    def events(self, job_id: str, *, after: int = 0) -> Iterator[Event]:
        """What has happened so far, after the event with this `seq`."""
        while (page := self._event_page(job_id, after)).items:
            yield from page.items
            after = page.items[-1].seq

    def follow_events(self, job_id: str, *, after: int = 0) -> Iterator[Event]:
        """What has happened and what happens, until the job has ended."""
        feed = Feed(
            path=f"{_job(job_id)}/events",
            params={},
            parse=Event.model_validate_json,
            place=lambda event: event.seq,
            poll=lambda place: _page(self._event_page(job_id, place)),
        )
        return follow(self._transport, feed, after=after)

    def logs(
        self,
        job_id: str,
        *,
        rank: int | None = None,
        stream: str | None = None,
        tail: int | None = None,
        after: int = 0,
    ) -> Iterator[LogLine]:
        """Lines of output so far: those after line `after`, or the last `tail` ones."""
        chosen = {"rank": rank, "stream": stream}
        page = self._log_page(job_id, {**chosen, "tail": tail} if tail is not None else {**chosen, "line": after + 1})
        while page.items:
            yield from page.items
            page = self._log_page(job_id, {**chosen, "line": page.items[-1].line + 1})

    def follow_logs(
        self, job_id: str, *, rank: int | None = None, stream: str | None = None, after: int = 0
    ) -> Iterator[LogLine]:
        """Lines of output after line `after` as they come, until no more will."""
        chosen = {"rank": rank, "stream": stream}
        feed = Feed(
            path=f"{_job(job_id)}/logs",
            params=chosen,
            parse=LogLine.model_validate_json,
            place=lambda line: line.line,
            poll=lambda place: _page(self._log_page(job_id, {**chosen, "line": place + 1})),
        )
        return follow(self._transport, feed, after=after)

    def metrics(
        self,
        job_id: str,
        *,
        names: Sequence[str] = (),
        from_step: int | None = None,
        to_step: int | None = None,
        max_points: int | None = None,
    ) -> MetricsAnswer:
        """Series of metrics by step; `max_points` puts them into bins of min, mean and max."""
        params = {"name": list(names) or None, "from_step": from_step, "to_step": to_step, "max_points": max_points}
        answer = self._transport.get(f"{_job(job_id)}/metrics", params=params)
        return _read(MetricsAnswer, answer)

    def artifacts(self, job_id: str) -> Iterator[Artifact]:
        """The files that the job left, by path."""
        for page in self._pages(f"{_job(job_id)}/artifacts", {}, ArtifactPage):
            yield from page.items

    def download_artifacts(
        self, job_id: str, folder: str | Path, *, progress: downloads.Progress | None = None
    ) -> Sequence[Path]:
        """Every file that the job left, under `folder`; what is there already is left alone."""
        return downloads.fetch_all(self._transport, job_id, self.artifacts(job_id), Path(folder), progress)

    def download_artifact(
        self, job_id: str, artifact: Artifact, target: str | Path, *, progress: downloads.Progress | None = None
    ) -> Path:
        """One file that the job left, as `target`: whole and checked, or not at all."""
        return downloads.fetch(self._transport, job_id, artifact, Path(target), progress)

    def upload_bundle(self, folder: str | Path, *, uploading: Uploading | None = None) -> Bundle:
        """Send a folder, unless the service has exactly it; see `shunter.bundle` for what is left out."""
        with packing.pack(folder) as archive:
            bundle_id = f"bun_{archive.digest}"
            known = self._transport.exists(f"/v1/bundles/{bundle_id}")
            if uploading:
                uploading(archive, known)
            if known:
                return Bundle(id=bundle_id, size_bytes=archive.size_bytes)
            answer = self._transport.post(
                "/v1/bundles",
                content=archive.chunks,
                content_type="application/gzip",
                headers={"Content-Length": str(archive.size_bytes)},
            )
            return _read(Bundle, answer)

    def providers(self) -> Sequence[ProviderInfo]:
        """The configured provider instances and how they are."""
        return _read(ProviderPage, self._transport.get("/v1/providers")).items

    def readiness(self) -> Readiness:
        """Whether the service can serve; raises `ServerError` where it cannot."""
        return _read(Readiness, self._transport.get("/readyz"))

    def _newer(self, job_id: str, seen: Job | None, hold_s: float) -> Job:
        """The job; with `hold_s` the service answers when it has changed since it was seen, or after that time."""
        params = {"wait_s": hold_s, "after_revision": seen.revision} if seen and hold_s else {}
        return _read(Job, self._transport.get(_job(job_id), params=params, wait_s=hold_s))

    def _event_page(self, job_id: str, after: int) -> EventPage:
        answer = self._transport.get(f"{_job(job_id)}/events", params={"after": after})
        return _read(EventPage, answer)

    def _log_page(self, job_id: str, params: Mapping[str, Any]) -> LogPage:
        return _read(LogPage, self._transport.get(f"{_job(job_id)}/logs", params=params))

    def _pages(self, path: str, params: Mapping[str, Any], kind: type[PageT]) -> Iterator[PageT]:
        cursor = None
        while True:
            page = _read(kind, self._transport.get(path, params={**params, "cursor": cursor}))
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return


def _job(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def _read(kind: type[AnswerT], response: httpx.Response) -> AnswerT:
    try:
        return kind.model_validate_json(response.content)
    except ValidationError as error:
        raise ShunterError(
            f"{response.url.copy_with(query=None)} did not answer a {kind.__name__}",
            hint="is it a Shunter service, and of this version?",
        ) from error


def _page(page: EventPage | LogPage) -> Page[Any]:
    return Page(page.items, page.ended)
