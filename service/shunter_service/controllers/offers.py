"""`/v1/offers`: what all configured providers offer, as workers last read it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import QueryParameter
from shunter_schemas.api import OfferPage
from shunter_store.accounts import providers
from shunter_store.accounts.providers import ProviderRow
from shunter_store.sql.sqltypes import now_as_time
from sqlalchemy import Connection, select

from shunter_service.context import Service
from shunter_service.showing.offer_views import OfferFilter, offer_page
from shunter_service.web.answers import shaped

Provider = Annotated[str | None, QueryParameter(max_length=64, description="Only offers of this instance.")]
GpuModel = Annotated[
    str | None, QueryParameter(max_length=64, description="Only this model; case, spaces and hyphens do not matter.")
]
MinGpus = Annotated[int, QueryParameter(ge=0, le=1024, description="At least so many GPUs a node.")]
Region = Annotated[str | None, QueryParameter(max_length=127, description="Only this region, by the provider's name.")]
Jurisdiction = Annotated[
    str | None,
    QueryParameter(pattern=r"^(EEA|[A-Z]{2})$", description="Only there: `EU`, `EEA` or an ISO country code."),
]
Capacity = Annotated[
    Literal["on_demand", "spot", "reserved"] | None, QueryParameter(description="Only capacity of this kind.")
]
Available = Annotated[bool, QueryParameter(description="Only what the provider says can be had now.")]
Most = Annotated[int, QueryParameter(ge=1, le=10_000, description="How many offers are shown; `total` counts all.")]

_NOW: Final = select(now_as_time())


class OffersController(Controller):
    """One answer for all instances."""

    path = "/v1"
    tags = ["service"]

    @get("/offers", operation_id="ListOffers")
    async def offers(
        self,
        service: NamedDependency[Service],
        provider: Provider = None,
        gpu_model: GpuModel = None,
        min_gpus: MinGpus = 0,
        region: Region = None,
        jurisdiction: Jurisdiction = None,
        capacity: Capacity = None,
        available: Available = False,
        limit: Most = 1000,
    ) -> Response[OfferPage]:
        """Nodes to be had, the cheapest for a GPU first.

        Workers read all providers at the same time, every half minute. One that is slow or broken neither delays the
        answer nor hides the others: its offers are older then, and `sources` says how old, and why.
        """
        where = OfferFilter(provider, gpu_model, min_gpus, region, jurisdiction, capacity, available)
        rows, now = await service.db.aread(_rows)
        return shaped(offer_page(service.data.providers, rows, where, now, limit))


def _rows(conn: Connection) -> tuple[list[ProviderRow], datetime]:
    return providers.list_all(conn), conn.execute(_NOW).scalar_one()
