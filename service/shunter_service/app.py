"""The Litestar application: routes, guards, errors, and nothing that knows a business rule."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from litestar import Litestar
from litestar.connection import ASGIConnection
from litestar.di import Provide
from litestar.handlers.base import BaseRouteHandler
from litestar.openapi import OpenAPIConfig
from shunter_store.installation import activity

from shunter_service.auth import Connection, require_key
from shunter_service.context import Service
from shunter_service.controllers.bundles import BundlesController
from shunter_service.controllers.description import DescriptionController
from shunter_service.controllers.events import EventsController
from shunter_service.controllers.fleet import FleetController
from shunter_service.controllers.job_wishes import JobWishesController
from shunter_service.controllers.jobs import JobsController
from shunter_service.controllers.logs import LogsController
from shunter_service.controllers.manual import ManualController
from shunter_service.controllers.metrics import MetricsController
from shunter_service.controllers.node import NodeController
from shunter_service.controllers.objects import ObjectsController
from shunter_service.controllers.offers import OffersController
from shunter_service.controllers.plans import PlansController
from shunter_service.controllers.reaching import ReachingController
from shunter_service.controllers.results import ResultsController
from shunter_service.controllers.status import StatusController
from shunter_service.controllers.stream import StreamController
from shunter_service.web.errors import HANDLERS
from shunter_service.web.parameters import refuse_unknown
from shunter_service.web.requests import finish_head

CONTROLLERS = [
    StatusController,
    DescriptionController,
    ManualController,
    JobsController,
    JobWishesController,
    PlansController,
    OffersController,
    EventsController,
    LogsController,
    MetricsController,
    StreamController,
    ResultsController,
    ReachingController,
    BundlesController,
    FleetController,
    NodeController,
    ObjectsController,
]


async def _tell_activity(service: Service) -> None:
    """Its counters, and the file whose time shows that this process's event loop turns."""
    run_dir = service.data.data_dir / "run"
    alive = run_dir / f"alive-{os.getpid()}"
    try:
        while True:
            counts = {
                "statements": service.db.statements,
                "transactions": service.db.transactions,
                "exchanges": service.exchanges.count,
            }
            await asyncio.to_thread(activity.write, run_dir, "api", counts)
            with suppress(OSError):
                alive.touch()
            await asyncio.sleep(activity.EVERY_S)
    finally:
        activity.forget(run_dir)
        with suppress(OSError):
            alive.unlink(missing_ok=True)


async def admit(connection: Connection, handler: BaseRouteHandler) -> None:
    """The guard of every route. One, since Litestar copies the handler for each.

    Raises:
        ProblemError: see `require_key` and `refuse_unknown`.
    """
    await require_key(connection, handler)
    if connection.scope["query_string"]:
        refuse_unknown(connection, handler)


def create_app(service: Service | None, *, openapi: OpenAPIConfig | None = None) -> Litestar:
    """The application over an opened service, which it closes at shutdown.

    Args:
        service: None only where nothing is served (to describe the API).
        openapi: how to describe the routes; a serving application does not.
    """

    @asynccontextmanager
    async def life(app: Litestar) -> AsyncIterator[None]:
        assert service is not None, "an application without a service cannot serve"
        service.tailer.start()
        service.listeners.start()
        telling = asyncio.create_task(_tell_activity(service))
        try:
            yield
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
            await service.close()

    async def provide_service(request: ASGIConnection) -> Service:  # type: ignore[type-arg]  # Litestar reads the bare class
        assert service is not None
        return service

    app = Litestar(
        route_handlers=CONTROLLERS,
        dependencies={"service": Provide(provide_service)},
        guards=[admit],
        exception_handlers=HANDLERS,
        before_send=[finish_head],
        lifespan=[life],
        openapi_config=openapi,
        logging_config=None,
        request_max_body_size=None,  # `bodies` limits each kind of body, before and while it is read
        debug=False,
    )
    app.state.service = service
    return app
