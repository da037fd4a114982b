"""What a worker and a node do to a job's rows, for tests that run without them."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from shunter_schemas.node_sync import LogChunk, MetricPoint, Progress
from shunter_schemas.states import Reason
from shunter_store.job import steps
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change
from shunter_store.report import artifacts, logs, metrics
from shunter_store.sql.database import Database
from shunter_store.storage.objects import ObjectStore
from sqlalchemy import Connection
from support.store_rows import take_job

RUNNING = (Trigger.PLANNED, Trigger.NODES_READY, Trigger.TRAINER_UP)


class WorkerPart:
    """Moves one job through its life by hand."""

    def __init__(self, database: Database, objects: ObjectStore, job_id: str) -> None:
        self._database = database
        self._objects = objects
        self._job_id = job_id
        self._offset = 0

    def run(self) -> None:
        """To `running`."""
        for trigger in RUNNING:
            self.apply(Change(trigger=trigger, set={"generation": 1}))

    def end(self, reason: Reason, message: str | None = None) -> None:
        """To the terminal state of the reason."""
        self.apply(Change(trigger=Trigger.STOP, reason=reason, message=message))
        self.apply(Change(trigger=Trigger.NODES_GONE))

    def apply(self, change: Change) -> None:
        """One step with this result."""
        change.next_in_s = 0.0

        def step(conn: Connection) -> None:
            claim = take_job(conn, self._job_id)
            assert claim is not None, "the job has ended"
            steps.apply(conn, claim, change)

        self._database.write(step)

    def report(self, step: int, total_steps: int, **values: float) -> None:
        """Progress and a metric point."""
        now = datetime.now(UTC)
        progress = Progress(step=step, total_steps=total_steps, values=values, eta_s=float(total_steps - step))
        point = MetricPoint(step=step, at=now.timestamp(), values=values)

        def write(conn: Connection) -> None:
            metrics.set_progress(conn, self._job_id, 1, now, progress)
            metrics.add_points(conn, self._job_id, 1, [point])

        self._database.write(write)

    def print(self, text: str, *, rank: int = 0) -> None:
        """A chunk of a rank's standard output, uploaded and reported."""
        data = text.encode()
        key = f"{self._job_id}/1/logs/j/{rank}-stdout-{self._offset:012}"
        self._objects.put(key, [data])
        now = datetime.now(UTC).timestamp()
        chunk = LogChunk(
            rank=rank,
            stream="stdout",
            offset=self._offset,
            length=len(data),
            lines=text.count("\n"),
            object=key,
            first_at=now,
            last_at=now,
        )
        self._offset += len(data)
        self._database.write(lambda conn: logs.add_chunk(conn, self._job_id, 1, "j", chunk))

    def leave(self, path: str, content: bytes) -> None:
        """An artifact, uploaded and reported."""
        digest = hashlib.sha256(content).hexdigest()
        key = f"{self._job_id}/1/artifacts/{path}"
        self._objects.put(key, [content], digest)
        self._database.write(
            lambda conn: artifacts.put(
                conn, self._job_id, path, generation=1, size=len(content), sha256=digest, object=key
            )
        )
