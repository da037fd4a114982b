"""The part of the client that looks over all jobs: nodes, money, and what may be ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from shunter_schemas.api import Costs, FleetNode, FleetPage, OfferPage, ProviderInfo, Reaping, Receipt

from shunter.flows import fleet, jobs, service
from shunter.transport import Transport


class FleetClient:
    """What `Client` has of it."""

    _transport: Transport

    def nodes(
        self,
        *,
        billing: bool = False,
        provider: str | None = None,
        state: str | None = None,
        job_id: str | None = None,
    ) -> Iterator[FleetNode]:
        """Nodes of the ledger, newest first, whosever they are; `billing`: only those that may cost something now."""
        flow = fleet.nodes(billing=billing, provider=provider, state=state, job_id=job_id)
        return self._transport.iterate(flow)

    def billing(self) -> FleetPage:
        """Everything that bills now; `confirmed` says whether an empty list means that nothing does."""
        return self._transport.run(fleet.billing())

    def costs(
        self,
        *,
        group_by: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 1000,
    ) -> Costs:
        """What things cost, from the ledger alone, in groups that add up to the total.

        Args:
            group_by: `provider`, `job`, `project`, `created_by`, `day` (of UTC), `label.KEY`; several make a group of
                each combination.
            since: what it cost from this moment on; `until`: before this one, by default now.
            limit: groups beyond it are one sum, `others`.
        """
        return self._transport.run(fleet.costs(group_by=group_by, since=since, until=until, limit=limit))

    def receipt(self, job_id: str) -> Receipt:
        """What a job cost: by what it was spent on, by node, for a million tokens, and beside what was predicted.

        Causes add up to `usd`, and so do nodes, to the micro-dollar. While the job runs it counts up to now.
        """
        return self._transport.run(jobs.receipt(job_id))

    def reaping(self) -> Reaping:
        """Whether nodes that the ledger does not know are ended or only reported, and which they are."""
        return self._transport.run(fleet.reaping())

    def confirm_reaping(self) -> Reaping:
        """Say that the ledger is complete: nodes that it does not know may be ended again."""
        return self._transport.run(fleet.confirm_reaping())

    def hold_reaping(self, reason: str = "an operator asked for it") -> Reaping:
        """From now on nodes that the ledger does not know are reported only, until somebody confirms."""
        return self._transport.run(fleet.hold_reaping(reason))

    def retry_provider(self, name: str) -> ProviderInfo:
        """Let jobs ask a provider for nodes again at once that refused its credentials or wanted money."""
        return self._transport.run(service.retry_provider(name))

    def offers(
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
        """What all instances offer, the cheapest for a GPU first, and how old each one's offers are.

        Args:
            jurisdiction: `EU`, `EEA` or an ISO country code.
            available: only what the provider says can be had now.
            limit: how many are shown; `total` counts all.
        """
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
        return self._transport.run(flow)
