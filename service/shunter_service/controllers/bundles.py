"""`/v1/bundles`: source archives, uploaded once and named by their digest."""

from __future__ import annotations

from litestar import Controller, Response, get, head, post
from litestar.di import NamedDependency
from litestar.params import FromPath
from shunter_schemas.api import Bundle
from shunter_schemas.faults import Fault
from shunter_store.storage import bundles
from shunter_store.storage.bundles import BundleRow
from sqlalchemy import Connection

from shunter_service.accepting.bundle_check import BadBundle, check_bundle
from shunter_service.access import AnyRequest
from shunter_service.auth import WRITE
from shunter_service.context import Service
from shunter_service.showing.views import bundle_view
from shunter_service.web.answers import shaped
from shunter_service.web.bodies import ARCHIVES, check_length, require_type
from shunter_service.web.problems import ProblemError, not_found
from shunter_service.web.transfers import Spooled


class BundlesController(Controller):
    """An archive is content: the same bytes have the same id, whoever sent them, and sending them again is harmless."""

    path = "/v1/bundles"
    tags = ["bundles"]

    @post(operation_id="CreateBundle", status_code=201, opt={"scope": WRITE})
    async def create(self, request: AnyRequest, service: NamedDependency[Service]) -> Response[Bundle]:
        """Upload a `tar.gz` of plain files and folders. 200 instead of 201 when it was known before."""
        require_type(request, ARCHIVES)
        limit_bytes = service.settings.max_bundle_bytes
        check_length(request, limit_bytes)
        spooled = await service.transfers.receive(request, limit_bytes)
        try:
            known = await service.db.aread(lambda conn: bundles.get(conn, spooled.sha256))
            row = known or await _keep(service, spooled)
        finally:
            spooled.close()
        view = bundle_view(row)
        return shaped(view, status=200 if known else 201, headers={"Location": f"/v1/bundles/{view.id}"})

    @get("/{bundle_id:str}", operation_id="GetBundle")
    async def one(self, bundle_id: FromPath[str], service: NamedDependency[Service]) -> Response[Bundle]:
        """Whether the service has an archive, by its id."""
        return shaped(bundle_view(await _find(service, bundle_id)))

    @head("/{bundle_id:str}", operation_id="HasBundle")
    async def known(self, bundle_id: FromPath[str], service: NamedDependency[Service]) -> None:
        """Whether the service has an archive, by its id, without a body."""
        await _find(service, bundle_id)


async def _find(service: Service, bundle_id: str) -> BundleRow:
    digest = bundle_id.removeprefix("bun_")
    if not bundle_id.startswith("bun_") or len(digest) != 64 or not digest.isalnum() or not digest.isascii():
        raise not_found("bundle", bundle_id[:80])
    row = await service.db.aread(lambda conn: bundles.get(conn, digest))
    if row is None:
        raise not_found("bundle", bundle_id)
    return row


async def _keep(service: Service, spooled: Spooled) -> BundleRow:
    """Check the archive, store it, then know it: in that order, so that a known bundle is always whole."""

    def store() -> int:
        entries = check_bundle(spooled.file, spooled.size, service.settings.bundle_limits)
        service.objects.put(bundles.object_key(spooled.sha256), spooled.pieces(), spooled.sha256)
        return entries

    try:
        entries = await service.transfers.run(store)
    except BadBundle as bad:
        detail = bad.detail if bad.member is None else f"{bad.member!r}: {bad.detail}"
        raise ProblemError("invalid_bundle", detail, faults=[Fault("", detail)]) from None

    def know(conn: Connection) -> BundleRow:
        bundles.put(conn, spooled.sha256, spooled.size, entries)
        row = bundles.get(conn, spooled.sha256)
        assert row is not None
        return row

    return await service.db.awrite(know)
