"""The part of the client for an event loop that looks over all jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from shunter_schemas.api import Costs, FleetNode, FleetPage, OfferPage, ProviderInfo, Reaping, Receipt

from shunter.async_transport import AsyncTransport
from shunter.flows import fleet, jobs, service


class AsyncFleetClient:
    """What `AsyncClient` has of it."""

    _transport: AsyncTransport

    def nodes(
        self,
        *,
        billing: bool = False,
        provider: str | None = None,
        state: str | None = None,
        job_id: str | None = None,
    ) -> AsyncIterator[FleetNode]:
        """Nodes of the ledger, newest first, whosever they are; `billing`: only those that may cost something now."""
        flow = fleet.nodes(billing=billing, provider=provider, state=state, job_id=job_id)
        return self._transport.iterate(flow)

    async def billing(self) -> FleetPage:
        """Everything that bills now; `confirmed` says whether an empty list means that nothing does."""
        return await self._transport.run(fleet.billing())

    async def costs(
        self,
        *,
        group_by: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 1000,
    ) -> Costs:
        """What things cost, from the ledger alone, in groups that add up to the total."""
        return await self._transport.run(fleet.costs(group_by=group_by, since=since, until=until, limit=limit))

    async def receipt(self, job_id: str) -> Receipt:
        """What a job cost: by what it was spent on, by node, for a million tokens, and beside what was predicted."""
        return await self._transport.run(jobs.receipt(job_id))

    async def reaping(self) -> Reaping:
        """Whether nodes that the ledger does not know are ended or only reported, and which they are."""
        return await self._transport.run(fleet.reaping())

    async def confirm_reaping(self) -> Reaping:
        """Say that the ledger is complete: nodes that it does not know may be ended again."""
        return await self._transport.run(fleet.confirm_reaping())

    async def hold_reaping(self, reason: str = "an operator asked for it") -> Reaping:
        """From now on nodes that the ledger does not know are reported only, until somebody confirms."""
        return await self._transport.run(fleet.hold_reaping(reason))

    async def retry_provider(self, name: str) -> ProviderInfo:
        """Let jobs ask a provider for nodes again at once that refused its credentials or wanted money."""
        return await self._transport.run(service.retry_provider(name))

    async def offers(
        self,
        *,
        provider: str | None = None,
        gpu_model: str | None = None,
        min_gpus: int = 0,
        region: str | None = None,
        jurisdiction: str | None = None,
        capacity: str | None = None,
        available: bool = False,
        limit: int = 1000,
    ) -> OfferPage:
        """What all instances offer, the cheapest for a GPU first, and how old each one's offers are."""
        flow = service.offers(
            provider=provider,
            gpu_model=gpu_model,
            min_gpus=min_gpus,
            region=region,
            jurisdiction=jurisdiction,
            capacity=capacity,
            available=available,
            limit=limit,
        )
        return await self._transport.run(flow)
