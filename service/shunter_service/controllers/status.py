"""The service about itself: liveness, readiness, who I am, providers, the document's schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import cast

from litestar import Controller, Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath
from shunter_providers.registry import installed_plugins
from shunter_schemas.api import Check, Me, PluginInfo, ProviderInfo, ProviderPage, Readiness
from shunter_store import migrate
from shunter_store.accounts import providers, refusals
from shunter_store.installation.settings import ProviderSettings
from sqlalchemy import Connection

from shunter_service.access import AnyRequest
from shunter_service.auth import ADMIN
from shunter_service.context import Service
from shunter_service.showing.views import provider_view
from shunter_service.streams import queries
from shunter_service.web.answers import encode, shaped
from shunter_service.web.parameters import IdempotencyKey
from shunter_service.web.problems import not_found
from shunter_service.web.repeating import Asked, Done, once, sent

_HINT_WAITS_S = 5.0


class StatusController(Controller):
    """What an operator, a load balancer or a curious client asks first."""

    path = "/"
    tags = ["service"]

    @get("/healthz", operation_id="GetHealth", opt={"public": True}, media_type="text/plain")
    async def health(self) -> str:
        """Whether the process reacts; asks nothing else."""
        return "ok"

    @get("/readyz", operation_id="GetReadiness", opt={"public": True})
    async def readiness(self, service: NamedDependency[Service]) -> Response[Readiness]:
        """Whether the API can serve (200 or 503). Redis and workers are named too, but never make it unready."""
        try:
            checks = await service.db.aread(_checks)
        except Exception:  # whatever is wrong with it, the answer is the same
            checks = {"database": Check(ok=False, required=True, detail="does not answer")}
        ready = all(check.ok for check in checks.values() if check.required)
        return shaped(Readiness(status="ready" if ready else "unready", checks=checks), status=200 if ready else 503)

    @get("/v1/me", operation_id="GetMe")
    async def me(self, request: AnyRequest) -> Response[Me]:
        """The key that was sent."""
        key = request.user
        return shaped(
            Me(name=key.name, project=key.project, scopes=tuple(sorted(key.scopes)), created_at=key.created_at)
        )

    @get("/v1/providers", operation_id="ListProviders")
    async def providers(self, service: NamedDependency[Service]) -> Response[ProviderPage]:
        """The configured provider instances, how each was when a worker last read it, and the installed plugins."""
        rows = {row.instance: row for row in await service.db.aread(providers.list_all)}
        configured = sorted(service.data.providers.items())
        items = tuple(provider_view(name, one, rows.get(name)) for name, one in configured)
        return shaped(ProviderPage(items=items, plugins=_plugins(service.data.providers)))

    @post("/v1/providers/{name:str}/retry", operation_id="RetryProvider", status_code=200, opt={"scope": ADMIN})
    async def retry_provider(
        self,
        request: AnyRequest,
        service: NamedDependency[Service],
        name: FromPath[str],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[ProviderInfo]:
        """Jobs may ask it for nodes again at once, although it refused its credentials, or wanted money.

        Safe to repeat.
        """
        configured = service.data.providers.get(name)
        if configured is None:
            raise not_found("provider", name[:60])
        asked = Asked(request.user, f"/v1/providers/{name}/retry", idempotency_key)

        def write(conn: Connection) -> Done:
            refusals.lift(conn, name)
            row = next((row for row in providers.list_all(conn) if row.instance == name), None)
            return Done(200, encode(provider_view(name, configured, row)), {})

        return sent(await once(service, asked, write), ProviderInfo)

    @get("/v1/schemas/job.json", operation_id="GetJobSchema", opt={"public": True})
    async def job_schema(self) -> Response[dict[str, object]]:
        """The JSON Schema of the job document."""
        answer = Response(
            content=_job_schema(),
            media_type="application/schema+json",
            headers={"Cache-Control": "public, max-age=300"},
        )
        return cast("Response[dict[str, object]]", answer)


def _plugins(configured: Mapping[str, ProviderSettings]) -> tuple[PluginInfo, ...]:
    return tuple(
        PluginInfo(
            name=plugin, instances=tuple(sorted(name for name, one in configured.items() if one.plugin == plugin))
        )
        for plugin in _installed()
    )


@cache
def _installed() -> Sequence[str]:
    """A plugin that is installed later is seen after a restart, as it is used after one."""
    return installed_plugins()


def _checks(conn: Connection) -> dict[str, Check]:
    current, head = migrate.current_revision(conn), migrate.head_revision()
    migrated = current == head
    checks = {
        "database": Check(ok=True, required=True, detail=conn.dialect.name),
        "migrations": Check(
            ok=migrated, required=True, detail=f"at {current}" if migrated else f"at {current}, needs {head}"
        ),
    }
    return checks | (_signs_of_life(conn) if migrated else {})


def _signs_of_life(conn: Connection) -> dict[str, Check]:
    waits_s = queries.oldest_hint_s(conn)
    held = queries.live_leases(conn)
    hint = "no hint waits to be sent" if waits_s is None else f"the oldest hint waits for {waits_s:.1f} s"
    return {
        "redis": Check(ok=waits_s is None or waits_s < _HINT_WAITS_S, required=False, detail=hint),
        "workers": Check(
            ok=bool(held),
            required=False,
            detail=f"hold {', '.join(sorted(held))}" if held else "no worker holds any lease",
        ),
    }


@cache
def _job_schema() -> bytes:
    return files("shunter_schemas").joinpath("json/job.schema.json").read_bytes()
