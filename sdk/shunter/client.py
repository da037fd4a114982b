"""The client: every verb of the API that a user of trainings needs, typed, with retries that are safe.

Methods block; threads may share a client. `AsyncClient` has the same methods for an event loop. Answers are the frozen
models of `shunter_schemas.api`; a newer service may send more than they show. Every method may raise
`shunter.errors.ApiError` and `Unreachable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

from shunter.connection import Connection, find_connection
from shunter.display import shown
from shunter.fleet_client import FleetClient
from shunter.flows import files, following, jobs, reports, service, streaming, waiting
from shunter.flows.files import Progress, Uploading
from shunter.flows.jobs import Filters, Labels
from shunter.flows.streaming import TopicMessage
from shunter.metrics import Metrics
from shunter.reaching_client import ReachingClient
from shunter.retries import Away, Patience, Retries
from shunter.transport import Transport

FOLLOW_PATIENCE_S = 120.0


class Client(FleetClient, ReachingClient):
    """A connection to one service. Use it as a context manager, or call `close`.

    Without arguments it finds the service as the CLI does: `SHUNTER_URL` and `SHUNTER_API_KEY`, else the files that
    `shunter up` left in `$SHUNTER_DATA_DIR`, `.shunter` here or above, or `~/.shunter`. `data_dir` names such a folder.
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
        return self._transport.run(
            jobs.submit(
                document,
                source=source,
                settings=settings,
                idempotency_key=idempotency_key,
                uploading=uploading,
            )
        )

    def plan(
        self,
        document: str | Path | Mapping[str, Any],
        *,
        source: str | Path | None = None,
        settings: Iterable[str] = (),
    ) -> PlanAnswer:
        """What would become of a document if it were submitted now; spends nothing and uploads nothing."""
        return self._transport.run(jobs.plan(document, source=source, settings=settings))

    def get(self, job_id: str) -> Job:
        """The job as it is now."""
        return self._transport.run(jobs.look(job_id))

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
    ) -> Iterator[JobSummary]:
        """Jobs that fit every filter, newest first; pages are fetched as they are needed."""
        filters = Filters(
            states, labels, name, name_prefix, created_by, provider, commit, created_after, created_before
        )
        return self._transport.iterate(jobs.listed(filters, page_size))

    def counts(self) -> JobCounts:
        """How many jobs there are in each state."""
        return self._transport.run(jobs.counts())

    def wait(
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
        """Block until the job has ended; the job as it then is, however it ended.

        Args:
            until: `released`: its nodes are gone and everything it left is stored. `outcome`: how it ends is fixed.
            progress: called with the job at every look, every `poll_s`. True shows it: in a notebook's cell, live on a
                terminal, as lines elsewhere. Without it the service is asked to answer when the job changes.
            away: called when the service has not answered for 2 s and at each failed try from then on, and with None
                when it is back.
            patience_s: how long the service may be away in one piece.

        Raises:
            WaitTimeout: `timeout_s` passed first; the job goes on.
        """
        how = waiting.Wait(until, timeout_s, poll_s, patience_s)
        with shown(progress, away) as (show, tell):
            return self._transport.run(waiting.wait(job_id, how, self._transport.retries, show, tell))

    def cancel(self, job_id: str) -> Job:
        """Ask the job to stop: it gets its grace for a last checkpoint. Safe to repeat."""
        return self._transport.run(jobs.cancel(job_id))

    def cancel_all(
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
        return self._transport.run(jobs.cancel_all(filters))

    def retry(
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
        """A new job from the document of one that has ended, with changes; the new job.

        Args:
            start_from: `checkpoint`: from the last committed one, and the same source. `start`: from the beginning.
                None: from a checkpoint where there is one.
            labels: labels to set; None takes one away. `limits` likewise.
            strategy: instead of the job's, as a whole, such as `{"kind": "fsdp"}`; `resources` likewise. A checkpoint
                of a `training` goes on under every strategy, on any number of ranks.
        """
        changes = jobs.changes_of(labels, priority, limits, strategy=strategy, resources=resources)
        flow = jobs.retry(job_id, start_from=start_from, changes=changes, idempotency_key=idempotency_key)
        return self._transport.run(flow)

    def pause(self, job_id: str) -> Job:
        """Ask the job to save a checkpoint and give its nodes back, until it is resumed."""
        return self._transport.run(jobs.act(job_id, "pause"))

    def resume(self, job_id: str) -> Job:
        """Let a paused job go on from its last checkpoint, as soon as there are nodes."""
        return self._transport.run(jobs.act(job_id, "resume"))

    def move(
        self,
        job_id: str,
        *,
        strategy: Mapping[str, Any] | None = None,
        resources: Mapping[str, Any] | None = None,
        placement: Mapping[str, Any] | None = None,
        revision: int | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Ask the job to save a checkpoint and go on from it under a changed document; it stays the same job.

        Args:
            strategy: instead of the job's, as a whole, such as `{"kind": "fsdp"}`; alone it keeps the nodes.
            resources: members to change; None takes one away. `placement` likewise.
            revision: refuse (`RevisionMismatch`) unless the job is still at this revision. Default: whatever it is.
        """
        changes = jobs.changes_of(None, None, None, strategy=strategy, resources=resources, placement=placement)
        return self._transport.run(jobs.move(job_id, changes, revision, idempotency_key))

    def documents(self, job_id: str) -> Sequence[JobDocument]:
        """Every version of the job's document, oldest first; each move made one more."""
        return self._transport.run(jobs.documents(job_id))

    def checkpoint(self, job_id: str) -> Job:
        """Ask a running job to save a checkpoint now."""
        return self._transport.run(jobs.act(job_id, "checkpoint"))

    def update(
        self,
        job_id: str,
        *,
        labels: Mapping[str, str | None] | None = None,
        priority: str | None = None,
        limits: Mapping[str, Any] | None = None,
        revision: int | None = None,
    ) -> Job:
        """Change labels, priority and limits, also of a job that runs; None takes a label or a limit away.

        Args:
            revision: refuse (`RevisionMismatch`) unless the job is still at this revision. Default: as it is now.
        """
        return self._transport.run(jobs.update(job_id, jobs.changes_of(labels, priority, limits), revision))

    def delete(self, job_id: str) -> None:
        """Delete the record of a job that has ended, with what it left."""
        self._transport.run(jobs.delete(job_id))

    def events(self, job_id: str, *, after: int = 0) -> Iterator[Event]:
        """What has happened so far, after the event with this `seq`."""
        return self._transport.iterate(reports.events(job_id, after))

    def follow_events(self, job_id: str, *, after: int = 0, away: Away | None = None) -> Iterator[Event]:
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
    ) -> Iterator[LogLine]:
        """Lines of output so far: those after line `after`, or the last `tail` ones; of all ranks or of one.

        Args:
            search: only lines that hold this text, in capital letters or not unless `case_counts`.
        """
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
    ) -> Iterator[LogLine]:
        """Lines of output after line `after` as they come, until no more will; `search` as in `logs`."""
        feed = reports.log_feed(job_id, reports.Lines(rank, stream, generation, search, case_counts))
        return self._transport.iterate(following.follow(feed, self._patience(away), after))

    def metrics(
        self,
        job_id: str,
        *,
        names: Sequence[str] = (),
        from_step: int | None = None,
        to_step: int | None = None,
        max_points: int | None = None,
    ) -> Metrics:
        """Series of metrics by step; `.to_pandas()` makes a frame of them.

        Args:
            max_points: put the points of each series into at most so many bins of mean, min and max.
        """
        return self._transport.run(reports.metrics(job_id, names, from_step, to_step, max_points))

    def follow_metrics(self, job_id: str, *, after: int = 0, away: Away | None = None) -> Iterator[MetricsUpdate]:
        """Points of metrics as they arrive, behind the one with this number, until no more will."""
        return self._transport.iterate(following.follow(reports.point_feed(job_id), self._patience(away), after))

    def stream(
        self, topics: Sequence[str], *, cursor: str | None = None, away: Away | None = None
    ) -> Iterator[TopicMessage]:
        """Messages of many topics over one connection, as they come, until every topic has ended.

        Args:
            topics: `jobs` (new and changed jobs, with their progress; never ends), `job:ID:events`, `job:ID:logs`,
                `job:ID:metrics`; `job:ID:logs@812` begins behind line 812.
            cursor: go on behind this place: that of a message (`message.cursor`).
        """
        return self._transport.iterate(streaming.stream(topics, self._patience(away), cursor))

    def checkpoints(self, job_id: str) -> Iterator[Checkpoint]:
        """The checkpoints that are good to resume from, newest first."""
        return self._transport.iterate(files.checkpoints(job_id))

    def artifacts(self, job_id: str) -> Iterator[Artifact]:
        """The files that the job left, by path."""
        return self._transport.iterate(files.artifacts(job_id))

    def download_artifacts(
        self, job_id: str, folder: str | Path, *, progress: Progress | None = None
    ) -> Sequence[Path]:
        """Every file that the job left, under `folder`; what is there already is left alone."""
        found = [*self.artifacts(job_id)]
        return self._transport.run(files.download_all(job_id, found, Path(folder), self._transport.retries, progress))

    def download_artifact(
        self, job_id: str, artifact: Artifact, target: str | Path, *, progress: Progress | None = None
    ) -> Path:
        """One file that the job left, as `target`: whole and checked, or not at all."""
        flow = files.download(job_id, artifact, Path(target), self._transport.retries, progress)
        return self._transport.run(flow)

    def upload_bundle(self, folder: str | Path, *, uploading: Uploading | None = None) -> Bundle:
        """Send a folder, unless the service has exactly it; see `shunter.bundle` for what is left out."""
        return self._transport.run(files.upload(folder, uploading))

    def providers(self) -> Sequence[ProviderInfo]:
        """The configured provider instances and how they are."""
        return self._transport.run(service.providers())

    def me(self) -> Me:
        """The key that is sent, and what it allows."""
        return self._transport.run(service.me())

    def readiness(self) -> Readiness:
        """Whether the service can serve; raises `ServerError` where it cannot."""
        return self._transport.run(service.readiness())

    def _patience(self, away: Away | None) -> Patience:
        return Patience(self._transport.retries, FOLLOW_PATIENCE_S, away)
