"""The client for an event loop: `Client`, with `await` before a method and `async for` over an iterator.

Both carry out the same flows and so cannot differ in what they do; the docstrings of `Client` hold here too.
What is called back (`progress`, `away`, `uploading`) is called on the event loop: it must not block for long.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import httpx
from shunter_schemas.api import (
    Artifact,
    Bundle,
    Checkpoint,
    Event,
    Job,
    JobCounts,
    JobDocument,
    JobSummary,
    LogLine,
    Me,
    MetricsUpdate,
    PlanAnswer,
    ProviderInfo,
    Readiness,
)

from shunter.async_fleet_client import AsyncFleetClient
from shunter.async_transport import AsyncTransport
from shunter.client import FOLLOW_PATIENCE_S
from shunter.connection import Connection, find_connection
from shunter.display import shown
from shunter.flows import files, following, jobs, reports, service, streaming, waiting
from shunter.flows.files import Progress, Uploading
from shunter.flows.jobs import Filters, Labels
from shunter.flows.streaming import TopicMessage
from shunter.metrics import Metrics
from shunter.reaching_client import AsyncReachingClient
from shunter.retries import Away, Patience, Retries


class AsyncClient(AsyncFleetClient, AsyncReachingClient):
    """A connection to one service. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        data_dir: str | Path | None = None,
        timeout_s: float = 30.0,
        retries: Retries | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        connection = find_connection(url, api_key, data_dir)
        self._transport = AsyncTransport(connection, timeout_s=timeout_s, retries=retries, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; streams that are being followed end with an error."""
        await self._transport.close()

    @property
    def connection(self) -> Connection:
        """Where this client goes."""
        return self._transport.connection

    async def submit(
        self,
        document: str | Path | Mapping[str, Any],
        *,
        source: str | Path | None = None,
        settings: Iterable[str] = (),
        idempotency_key: str | None = None,
        uploading: Uploading | None = None,
    ) -> Job:
        """Submit a job document (a file, or the document itself); durable when this returns."""
        return await self._transport.run(
            jobs.submit(
                document,
                source=source,
                settings=settings,
                idempotency_key=idempotency_key,
                uploading=uploading,
            )
        )

    async def plan(
        self,
        document: str | Path | Mapping[str, Any],
        *,
        source: str | Path | None = None,
        settings: Iterable[str] = (),
    ) -> PlanAnswer:
        """What would become of a document if it were submitted now; spends nothing and uploads nothing."""
        return await self._transport.run(jobs.plan(document, source=source, settings=settings))

    async def get(self, job_id: str) -> Job:
        """The job as it is now."""
        return await self._transport.run(jobs.look(job_id))

    def list(
        self,
        *,
        states: Sequence[str] = (),
        labels: Labels = (),
        name: str | None = None,
        name_prefix: str | None = None,
        created_by: str | None = None,
        provider: str | None = None,
        commit: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        page_size: int = 50,
    ) -> AsyncIterator[JobSummary]:
        """Jobs that fit every filter, newest first; pages are fetched as they are needed."""
        filters = Filters(
            states, labels, name, name_prefix, created_by, provider, commit, created_after, created_before
        )
        return self._transport.iterate(jobs.listed(filters, page_size))

    async def counts(self) -> JobCounts:
        """How many jobs there are in each state."""
        return await self._transport.run(jobs.counts())

    async def wait(
        self,
        job_id: str,
        *,
        until: Literal["released", "outcome"] = "released",
        timeout_s: float | None = None,
        progress: Callable[[Job], None] | bool | None = None,
        away: Away | None = None,
        poll_s: float = 1.0,
        patience_s: float = 300.0,
    ) -> Job:
        """Block until the job has ended; the job as it then is, however it ended."""
        how = waiting.Wait(until, timeout_s, poll_s, patience_s)
        with shown(progress, away) as (show, tell):
            return await self._transport.run(waiting.wait(job_id, how, self._transport.retries, show, tell))

    async def cancel(self, job_id: str) -> Job:
        """Ask the job to stop: it gets its grace for a last checkpoint. Safe to repeat."""
        return await self._transport.run(jobs.cancel(job_id))

    async def cancel_all(
        self,
        *,
        states: Sequence[str] = (),
        labels: Labels = (),
        name: str | None = None,
        name_prefix: str | None = None,
        created_by: str | None = None,
        provider: str | None = None,
        commit: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> Sequence[str]:
        """Ask every job that fits all filters (at least one) to stop; the ids of those that were asked."""
        filters = Filters(
            states, labels, name, name_prefix, created_by, provider, commit, created_after, created_before
        )
        return await self._transport.run(jobs.cancel_all(filters))

    async def retry(
        self,
        job_id: str,
        *,
        start_from: Literal["checkpoint", "start"] | None = None,
        labels: Mapping[str, str | None] | None = None,
        priority: str | None = None,
        limits: Mapping[str, Any] | None = None,
        strategy: Mapping[str, Any] | None = None,
        resources: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """A new job from the document of one that has ended, with changes; the new job."""
        changes = jobs.changes_of(labels, priority, limits, strategy=strategy, resources=resources)
        flow = jobs.retry(job_id, start_from=start_from, changes=changes, idempotency_key=idempotency_key)
        return await self._transport.run(flow)

    async def pause(self, job_id: str) -> Job:
        """Ask the job to save a checkpoint and give its nodes back, until it is resumed."""
        return await self._transport.run(jobs.act(job_id, "pause"))

    async def resume(self, job_id: str) -> Job:
        """Let a paused job go on from its last checkpoint, as soon as there are nodes."""
        return await self._transport.run(jobs.act(job_id, "resume"))

    async def move(
        self,
        job_id: str,
        *,
        strategy: Mapping[str, Any] | None = None,
        resources: Mapping[str, Any] | None = None,
        placement: Mapping[str, Any] | None = None,
        revision: int | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Ask the job to save a checkpoint and go on from it under a changed document; it stays the same job."""
        changes = jobs.changes_of(None, None, None, strategy=strategy, resources=resources, placement=placement)
        return await self._transport.run(jobs.move(job_id, changes, revision, idempotency_key))

    async def documents(self, job_id: str) -> Sequence[JobDocument]:
        """Every version of the job's document, oldest first; each move made one more."""
        return await self._transport.run(jobs.documents(job_id))

    async def checkpoint(self, job_id: str) -> Job:
        """Ask a running job to save a checkpoint now."""
        return await self._transport.run(jobs.act(job_id, "checkpoint"))

    async def update(
        self,
        job_id: str,
        *,
        labels: Mapping[str, str | None] | None = None,
        priority: str | None = None,
        limits: Mapping[str, Any] | None = None,
        revision: int | None = None,
    ) -> Job:
        """Change labels, priority and limits, also of a job that runs; None takes a label or a limit away."""
        return await self._transport.run(jobs.update(job_id, jobs.changes_of(labels, priority, limits), revision))

    async def delete(self, job_id: str) -> None:
        """Delete the record of a job that has ended, with what it left."""
        await self._transport.run(jobs.delete(job_id))

    def events(self, job_id: str, *, after: int = 0) -> AsyncIterator[Event]:
        """What has happened so far, after the event with this `seq`."""
        return self._transport.iterate(reports.events(job_id, after))

    def follow_events(self, job_id: str, *, after: int = 0, away: Away | None = None) -> AsyncIterator[Event]:
        """What has happened and what happens, until the job has ended."""
        return self._transport.iterate(following.follow(reports.event_feed(job_id), self._patience(away), after))

    def logs(
        self,
        job_id: str,
        *,
        rank: int | None = None,
        stream: str | None = None,
        generation: int | None = None,
        search: str | None = None,
        case_counts: bool = False,
        tail: int | None = None,
        after: int = 0,
    ) -> AsyncIterator[LogLine]:
        """Lines of output so far: those after line `after`, or the last `tail` ones; of all ranks or of one."""
        which = reports.Lines(rank, stream, generation, search, case_counts)
        return self._transport.iterate(reports.logs(job_id, which, tail=tail, after=after))

    def follow_logs(
        self,
        job_id: str,
        *,
        rank: int | None = None,
        stream: str | None = None,
        generation: int | None = None,
        search: str | None = None,
        case_counts: bool = False,
        after: int = 0,
        away: Away | None = None,
    ) -> AsyncIterator[LogLine]:
        """Lines of output after line `after` as they come, until no more will; `search` as in `logs`."""
        feed = reports.log_feed(job_id, reports.Lines(rank, stream, generation, search, case_counts))
        return self._transport.iterate(following.follow(feed, self._patience(away), after))

    async def metrics(
        self,
        job_id: str,
        *,
        names: Sequence[str] = (),
        from_step: int | None = None,
        to_step: int | None = None,
        max_points: int | None = None,
    ) -> Metrics:
        """Series of metrics by step; `.to_pandas()` makes a frame of them."""
        return await self._transport.run(reports.metrics(job_id, names, from_step, to_step, max_points))

    def follow_metrics(self, job_id: str, *, after: int = 0, away: Away | None = None) -> AsyncIterator[MetricsUpdate]:
        """Points of metrics as they arrive, behind the one with this number, until no more will."""
        return self._transport.iterate(following.follow(reports.point_feed(job_id), self._patience(away), after))

    def stream(
        self, topics: Sequence[str], *, cursor: str | None = None, away: Away | None = None
    ) -> AsyncIterator[TopicMessage]:
        """Messages of many topics over one connection, as they come, until every topic has ended."""
        return self._transport.iterate(streaming.stream(topics, self._patience(away), cursor))

    def checkpoints(self, job_id: str) -> AsyncIterator[Checkpoint]:
        """The checkpoints that are good to resume from, newest first."""
        return self._transport.iterate(files.checkpoints(job_id))

    def artifacts(self, job_id: str) -> AsyncIterator[Artifact]:
        """The files that the job left, by path."""
        return self._transport.iterate(files.artifacts(job_id))

    async def download_artifacts(
        self, job_id: str, folder: str | Path, *, progress: Progress | None = None
    ) -> Sequence[Path]:
        """Every file that the job left, under `folder`; what is there already is left alone."""
        found = [artifact async for artifact in self.artifacts(job_id)]
        return await self._transport.run(
            files.download_all(job_id, found, Path(folder), self._transport.retries, progress)
        )

    async def download_artifact(
        self, job_id: str, artifact: Artifact, target: str | Path, *, progress: Progress | None = None
    ) -> Path:
        """One file that the job left, as `target`: whole and checked, or not at all."""
        flow = files.download(job_id, artifact, Path(target), self._transport.retries, progress)
        return await self._transport.run(flow)

    async def upload_bundle(self, folder: str | Path, *, uploading: Uploading | None = None) -> Bundle:
        """Send a folder, unless the service has exactly it; see `shunter.bundle` for what is left out."""
        return await self._transport.run(files.upload(folder, uploading))

    async def providers(self) -> Sequence[ProviderInfo]:
        """The configured provider instances and how they are."""
        return await self._transport.run(service.providers())

    async def me(self) -> Me:
        """The key that is sent, and what it allows."""
        return await self._transport.run(service.me())

    async def readiness(self) -> Readiness:
        """Whether the service can serve; raises `ServerError` where it cannot."""
        return await self._transport.run(service.readiness())

    def _patience(self, away: Away | None) -> Patience:
        return Patience(self._transport.retries, FOLLOW_PATIENCE_S, away)
