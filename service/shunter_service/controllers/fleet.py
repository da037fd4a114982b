"""`/v1/nodes`, `/v1/costs`, `/v1/reaping`: what bills now, what things cost, and what may be ended."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, cast

from litestar import Controller, Response, get, post
from litestar.di import NamedDependency
from litestar.params import QueryParameter
from pydantic import TypeAdapter, ValidationError
from shunter_schemas.api import Costs, FleetPage, HoldRequest, Reaping
from shunter_schemas.api.requests import Moment
from shunter_schemas.states import NodeState
from shunter_store.accounts import money, readings
from shunter_store.accounts.money import DIMENSIONS, Span
from shunter_store.installation import deployment, notices
from shunter_store.installation.api_keys import ApiKey
from shunter_store.node import fleet
from shunter_store.node.fleet import NodeFilter
from shunter_store.sql.sqltypes import now_as_time
from sqlalchemy import Connection, select

from shunter_service.access import AnyRequest
from shunter_service.auth import ADMIN
from shunter_service.context import Service
from shunter_service.showing.fleet_views import (
    costs_csv,
    costs_view,
    is_confirmed,
    mode_of,
    node_view,
    readings_view,
    reaping_view,
)
from shunter_service.web.answers import encode, shaped
from shunter_service.web.bodies import json_body, parsed
from shunter_service.web.cursors import encode_cursor, newest_first
from shunter_service.web.parameters import Cursor, IdempotencyKey, Limit
from shunter_service.web.problems import ProblemError, bad_parameter
from shunter_service.web.repeating import Asked, Done, once, sent

OnlyBilling = Annotated[bool, QueryParameter(description="Only nodes that may cost something at this moment.")]
Provider = Annotated[str | None, QueryParameter(max_length=64, description="Only nodes of this provider instance.")]
InState = Annotated[NodeState | None, QueryParameter(name="state", description="Only nodes in this state.")]
OfJob = Annotated[str | None, QueryParameter(max_length=40, description="Only nodes of this job.")]
From = Annotated[str | None, QueryParameter(name="from", description="What it cost from this moment on (RFC 3339).")]
To = Annotated[str | None, QueryParameter(description="What it cost before this moment (RFC 3339); default: now.")]
GroupBy = Annotated[
    str | None,
    QueryParameter(
        max_length=400,
        description="Commas between: `provider`, `job`, `project`, `created_by`, `day` (of UTC), `label.KEY`.",
    ),
]
Groups = Annotated[
    int, QueryParameter(ge=1, le=10_000, description="How many groups are shown; the rest is summed up.")
]

_MOST_DIMENSIONS: Final = 5
_NOW = select(now_as_time())
_MOMENT: Final[TypeAdapter[datetime]] = TypeAdapter(Moment)


class FleetController(Controller):
    """Keys with the scope `admin` see every project's, others their own project's."""

    path = "/v1"
    tags = ["fleet"]

    @get("/nodes", operation_id="ListNodes")
    async def nodes(
        self,
        request: AnyRequest,
        service: NamedDependency[Service],
        billing: OnlyBilling = False,
        provider: Provider = None,
        in_state: InState = None,
        job: OfJob = None,
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> Response[FleetPage]:
        """Nodes of the ledger, newest first, and whether what is known of each provider can be relied on."""
        before = newest_first(cursor)
        where = NodeFilter(billing, provider, in_state, job, _own(request.user))

        def read(conn: Connection) -> FleetPage:
            return _page(conn, service, where, limit, before)

        return shaped(await service.db.aread(read))

    @get("/costs", operation_id="GetCosts")
    async def costs(
        self,
        request: AnyRequest,
        service: NamedDependency[Service],
        since: From = None,
        to: To = None,
        group_by: GroupBy = None,
        limit: Groups = 1000,
    ) -> Response[Costs]:
        """What things cost, from the ledger alone, within a span of time, in groups that add up to the total.

        `Accept: text/csv` gives every group as a line.
        """
        dimensions = _dimensions(group_by)
        span = Span(_moment("from", since), _moment("to", to))
        if span.since and span.until and span.since >= span.until:
            raise bad_parameter("to", "must be later than `from`")
        found = await service.db.aread(
            lambda conn: money.costs(conn, span=span, group_by=dimensions, project=_own(request.user))
        )
        if _wants_csv(request):
            answer = Response(content=costs_csv(found, dimensions).encode(), media_type="text/csv; charset=utf-8")
            return cast("Response[Costs]", answer)
        until = min(span.until or found.read_at, found.read_at)
        return shaped(costs_view(found, dimensions, span.since, until, limit))

    @get("/reaping", operation_id="GetReaping", opt={"scope": ADMIN})
    async def reaping(self, service: NamedDependency[Service]) -> Response[Reaping]:
        """Whether nodes that the ledger does not know are ended or only reported, and which they are."""
        return shaped(await service.db.aread(lambda conn: _reaping(conn, service)))

    @post("/reaping/confirm", operation_id="ConfirmReaping", status_code=200, opt={"scope": ADMIN})
    async def confirm(
        self, request: AnyRequest, service: NamedDependency[Service], idempotency_key: IdempotencyKey = None
    ) -> Response[Reaping]:
        """The ledger is complete: nodes that it does not know may be ended again. Safe to repeat."""
        asked = Asked(request.user, "/v1/reaping/confirm", idempotency_key)

        def write(conn: Connection) -> Done:
            deployment.confirm(conn, by=request.user.name)
            return Done(200, encode(_reaping(conn, service)), {})

        return sent(await once(service, asked, write), Reaping)

    @post("/reaping/hold", operation_id="HoldReaping", status_code=200, opt={"scope": ADMIN})
    async def hold(
        self, request: AnyRequest, service: NamedDependency[Service], idempotency_key: IdempotencyKey = None
    ) -> Response[Reaping]:
        """From now on nodes that the ledger does not know are reported only, until somebody confirms."""
        body = await json_body(request, service.settings.max_document_bytes)
        wanted = parsed(body, HoldRequest)
        asked = Asked(request.user, "/v1/reaping/hold", idempotency_key, body)

        def write(conn: Connection) -> Done:
            deployment.hold(conn, wanted.reason, by=request.user.name)
            return Done(200, encode(_reaping(conn, service)), {})

        return sent(await once(service, asked, write), Reaping)


def _page(
    conn: Connection, service: Service, where: NodeFilter, limit: int, before: tuple[datetime, str] | None
) -> FleetPage:
    now: datetime = conn.execute(_NOW).scalar_one()
    known = {reading.instance: reading for reading in readings.list_all(conn)}
    rows = fleet.page(conn, where, limit=limit + 1, before=before)
    shown = rows[:limit]
    billing = fleet.billing(conn, project=where.project)
    found = readings_view(known, billing, service.data.providers, now, all_strangers=where.project is None)
    last = shown[-1].row if len(rows) > limit else None
    return FleetPage(
        items=tuple(
            node_view(node, known[node.row.instance].read_at if node.row.instance in known else None, now)
            for node in shown
        ),
        next_cursor=None if last is None else encode_cursor(last.intended_at.timestamp(), last.id),
        as_of=now,
        usd_per_hour=sum(one.usd_per_hour for one in billing.values()),
        confirmed=is_confirmed(found, known),
        providers=tuple(found),
        reaping=mode_of(deployment.find(conn), only_reports=service.data.reaping == "report"),
    )


def _reaping(conn: Connection, service: Service) -> Reaping:
    found = deployment.find(conn)
    if found is None:
        raise ProblemError("unavailable", "the installation has not been prepared yet; start `shunter up` first")
    only_reports = service.data.reaping == "report"
    return reaping_view(found, readings.list_all(conn), notices.newest(conn), only_reports=only_reports)


def _own(key: ApiKey) -> str | None:
    """The project that a key is confined to; None: it sees all."""
    return None if ADMIN in key.scopes else key.project


def _dimensions(given: str | None) -> tuple[str, ...]:
    named = tuple(dict.fromkeys(part.strip() for part in (given or "").split(",") if part.strip()))
    for name in named:
        if name not in DIMENSIONS and not (name.startswith("label.") and len(name) > len("label.")):
            raise bad_parameter("group_by", f"`{name[:60]}` is none of {', '.join(DIMENSIONS)}, label.KEY")
    if len(named) > _MOST_DIMENSIONS:
        raise bad_parameter("group_by", f"names {len(named)}; at most {_MOST_DIMENSIONS}")
    return named


def _moment(name: str, given: str | None) -> datetime | None:
    if given is None:
        return None
    try:
        return _MOMENT.validate_python(given)
    except (ValidationError, ValueError):
        raise bad_parameter(name, "must be a moment with its zone, such as 2026-11-30T04:53:15Z") from None


def _wants_csv(request: AnyRequest) -> bool:
    accept = request.headers.get("accept", "")
    return "text/csv" in accept and "application/json" not in accept
