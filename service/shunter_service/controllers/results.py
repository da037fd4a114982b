"""What a job leaves: artifacts, checkpoints, and its receipt."""

from __future__ import annotations

from typing import Annotated, cast
from urllib.parse import quote

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, HeaderParameter
from shunter_schemas.api import ArtifactPage, Checkpoint, CheckpointPage, Receipt
from shunter_store.accounts import money
from shunter_store.job import standings
from shunter_store.report import artifacts, checkpoints
from shunter_store.report.artifacts import ArtifactRow
from shunter_store.report.time_spent import paces
from sqlalchemy import Connection

from shunter_service.access import AnyRequest, own_job
from shunter_service.context import Service
from shunter_service.showing.receipts import receipt
from shunter_service.showing.views import artifact_view
from shunter_service.web.answers import shaped
from shunter_service.web.cursors import by_text, encode_cursor
from shunter_service.web.downloads import Conditions, Piece, download
from shunter_service.web.parameters import Cursor, JobId, Limit, checked_id
from shunter_service.web.problems import not_found

Range = Annotated[str | None, HeaderParameter(name="Range", description="`bytes=FIRST-LAST`: one part of the file.")]
IfRange = Annotated[
    str | None, HeaderParameter(name="If-Range", description="With `Range`: only if the file still has this `ETag`.")
]
IfNoneMatch = Annotated[
    str | None, HeaderParameter(name="If-None-Match", description="An `ETag` that the client holds.")
]


class ResultsController(Controller):
    """Files are known from the moment their upload was reported, also while the job runs."""

    path = "/v1/jobs/{job_id:str}"
    tags = ["jobs"]

    @get("/artifacts", operation_id="ListArtifacts")
    async def artifacts(
        self,
        request: AnyRequest,
        job_id: JobId,
        service: NamedDependency[Service],
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> Response[ArtifactPage]:
        """The files that the job left, by path."""
        checked_id("job", "job", job_id)
        after = by_text(cursor) or ""

        def read(conn: Connection) -> ArtifactPage:
            own_job(conn, request.user, job_id)
            rows = artifacts.page(conn, job_id, after=after, limit=limit + 1)
            return ArtifactPage(
                items=tuple(artifact_view(row, _href(row)) for row in rows[:limit]),
                next_cursor=encode_cursor(rows[limit - 1].path) if len(rows) > limit else None,
            )

        return shaped(await service.db.aread(read))

    @get("/artifacts/{artifact_path:path}", operation_id="DownloadArtifact", opt={"bytes": True})
    async def artifact(
        self,
        request: AnyRequest,
        job_id: JobId,
        artifact_path: FromPath[str],
        service: NamedDependency[Service],
        range_: Range = None,
        if_range: IfRange = None,
        if_none_match: IfNoneMatch = None,
    ) -> Response[bytes]:
        """The bytes of one file. `Range` gives a part; the `ETag` is the file's SHA-256."""
        checked_id("job", "job", job_id)
        path = artifact_path.removeprefix("/")

        def read(conn: Connection) -> ArtifactRow | None:
            own_job(conn, request.user, job_id)
            return None if "\x00" in path else artifacts.get(conn, job_id, path)

        row = await service.db.aread(read)
        if row is None:
            raise not_found("artifact", path[:200])
        answer = download(
            service,
            [Piece(row.object, row.size)],
            media_type="application/octet-stream",
            conditions=Conditions(range_, if_none_match, if_range),
            tag=row.sha256,
        )
        return cast("Response[bytes]", answer)

    @get("/checkpoints", operation_id="ListCheckpoints")
    async def checkpoints(
        self, request: AnyRequest, job_id: JobId, service: NamedDependency[Service], limit: Limit = 100
    ) -> Response[CheckpointPage]:
        """The checkpoints that are good to resume from, newest first."""
        checked_id("job", "job", job_id)

        def read(conn: Connection) -> CheckpointPage:
            own_job(conn, request.user, job_id)
            rows = [row for row in checkpoints.page(conn, job_id, limit=10_000) if row.pruned_at is None]
            return CheckpointPage(
                items=tuple(
                    Checkpoint(
                        step=row.step,
                        generation=row.generation,
                        size_bytes=row.size,
                        files=len(row.files),
                        values=row.values,
                        committed_at=row.committed_at,
                        from_job=row.origin_job,
                    )
                    for row in rows[:limit]
                )
            )

        return shaped(await service.db.aread(read))

    @get("/receipt", operation_id="GetReceipt")
    async def receipt(self, request: AnyRequest, job_id: JobId, service: NamedDependency[Service]) -> Response[Receipt]:
        """What the job cost by what it was spent on, from the ledger, beside what was predicted; also while it runs."""
        checked_id("job", "job", job_id)

        def read(conn: Connection) -> Receipt:
            standing = standings.of_row(conn, own_job(conn, request.user, job_id))
            now, meters = money.of_job(conn, job_id)
            return receipt(standing, now, meters, paces(conn, job_id))

        return shaped(await service.db.aread(read))


def _href(row: ArtifactRow) -> str:
    return f"/v1/jobs/{row.job_id}/artifacts/{quote(row.path)}"
