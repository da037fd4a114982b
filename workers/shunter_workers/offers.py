"""What the configured instances offer now, asked for at most every few seconds by a process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from shunter_planner import Candidate, Unavailable
from shunter_providers.contract import Capabilities, Fault, Offer, OfferQuery, ProviderError
from shunter_providers.registry import Registry
from shunter_schemas.job import JobSpec
from shunter_store.installation.settings import Hold

from shunter_workers.accounts import Accounts
from shunter_workers.view import Market, Requoted

GOOD_FOR_S: Final = 30.0
GOOD_FOR_ON_SHARED_HOSTS_S: Final = 2.0
QUOTED_WITHIN_S: Final = 5.0
"""Before a node is made its price is read again, unless that was done just before, for another of the gang."""
ASK_WITHIN_S: Final = 10.0
_SETUP_FEE: Final = "each node costs a set-up fee there: only jobs that name it in placement.providers run on it"


@dataclass(frozen=True, slots=True)
class _Answer:
    asked_at: float
    offers: Sequence[Offer] | ProviderError
    shared_hosts: bool
    setup_fee: bool = False
    runs_images: bool = False

    def is_fresh(self) -> bool:
        good_for_s = GOOD_FOR_ON_SHARED_HOSTS_S if self.shared_hosts else GOOD_FOR_S
        return time.monotonic() - self.asked_at < good_for_s


class Offers:
    """The market of one process."""

    def __init__(self, registry: Registry, accounts: Accounts, holds: Mapping[str, Hold | None]) -> None:
        self._registry = registry
        self._accounts = accounts
        self._holds = holds
        self._answers: dict[str, _Answer] = {}

    async def collect(self, document: JobSpec) -> Market:
        """Offers of every instance that the document allows. What could not be asked is named with the cause."""
        wanted = [name for name in self._registry.names if self._is_wanted(name, document)]
        answers = await asyncio.gather(*(self._ask(name) for name in wanted))
        candidates: list[Candidate] = []
        unavailable: list[Unavailable] = []
        for name, answer in zip(wanted, answers, strict=True):
            if isinstance(answer.offers, ProviderError):
                unavailable.append(Unavailable(name, answer.offers.detail))
            elif answer.setup_fee and name not in document.placement.providers:
                unavailable.append(Unavailable(name, _SETUP_FEE))
            else:
                kind = answer.shared_hosts, answer.runs_images
                candidates += [Candidate(name, offer, *kind) for offer in answer.offers]
        return Market(self._registry.names, candidates, unavailable)

    async def read_again(self, name: str, offer: Offer) -> Requoted | None:
        """What this offer of an instance is at this moment; None: the instance cannot be asked, or bills nothing."""
        declared = self.capabilities().get(name)
        if declared is None or not declared.bills:
            return None
        answer = self._answers.get(name)
        if answer is None or time.monotonic() - answer.asked_at > QUOTED_WITHIN_S:
            answer = self._answers[name] = await self._ask_anew(name)
        if isinstance(answer.offers, ProviderError):
            return None
        wanted = (offer.instance_type, offer.region, offer.capacity)
        same = [one for one in answer.offers if (one.instance_type, one.region, one.capacity) == wanted]
        return Requoted(min(same, key=lambda one: one.price.usd_per_hour, default=None))

    def capabilities(self) -> dict[str, Capabilities]:
        """By instance, of those whose plugin loads."""
        found = {}
        for name in self._registry.names:
            try:
                found[name] = self._registry.get(name).capabilities
            except ProviderError:
                continue
        return found

    async def learn_account(self, name: str) -> None:
        """Ask for an instance's account, if it is not known; what cannot be found out now stays unknown."""
        with suppress(ProviderError, TimeoutError):
            async with asyncio.timeout(ASK_WITHIN_S):
                await self._accounts.of(name)

    def accounts(self) -> dict[str, str]:
        """By instance, as far as known."""
        return self._accounts.known()

    def _is_wanted(self, name: str, document: JobSpec) -> bool:
        wanted = document.placement.providers
        return not wanted or name in wanted

    async def _ask(self, name: str) -> _Answer:
        answer = self._answers.get(name)
        if answer is None or not answer.is_fresh():
            answer = self._answers[name] = await self._ask_anew(name)
        return answer

    async def _ask_anew(self, name: str) -> _Answer:
        asked_at = time.monotonic()
        hold = self._holds.get(name)
        if hold is not None and hold.of_everything:
            return _Answer(asked_at, ProviderError(Fault.TRANSIENT, hold.words), shared_hosts=True)
        try:
            provider = self._registry.get(name)
            if hold is not None and provider.capabilities.bills:
                return _Answer(asked_at, ProviderError(Fault.TRANSIENT, hold.words), shared_hosts=True)
            async with asyncio.timeout(ASK_WITHIN_S):
                await self._accounts.of(name)  # no node without knowing whose it will be
                offers = await provider.offers(OfferQuery())
        except ProviderError as exc:
            return _Answer(asked_at, exc, shared_hosts=True)
        except TimeoutError:
            late = ProviderError(Fault.TRANSIENT, f"no answer within {ASK_WITHIN_S:.0f} s")
            return _Answer(asked_at, late, shared_hosts=True)
        declared = provider.capabilities
        return _Answer(asked_at, tuple(offers), declared.shared_hosts, declared.spends_setup_fee, declared.runs_images)
