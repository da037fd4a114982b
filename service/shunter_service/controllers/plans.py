"""`/v1/plans`: what would become of a job document."""

from __future__ import annotations

from litestar import Controller, Response, post
from litestar.di import NamedDependency
from shunter_schemas.api import PlanAnswer

from shunter_service.accepting import planning
from shunter_service.access import AnyRequest
from shunter_service.context import Service
from shunter_service.web.answers import shaped
from shunter_service.web.bodies import json_body


class PlansController(Controller):
    """Plans are answers, nothing is kept."""

    path = "/v1/plans"
    tags = ["jobs"]

    @post(operation_id="CreatePlan", status_code=200)
    async def create(self, request: AnyRequest, service: NamedDependency[Service]) -> Response[PlanAnswer]:
        """Plan a job document without submitting it: strategy, place, memory, time, cost, and why not the others.

        Spends nothing and reserves nothing. Where nothing takes the job, the answer says so in `refused`.
        """
        body = await json_body(request, service.settings.max_document_bytes)
        return shaped(await planning.plan_document(service, body))
