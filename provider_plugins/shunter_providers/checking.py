"""Checks of a configured instance, for `shunter provider check`: offline, live (costs nothing), and with one node.

Each finding is a sentence that leads to the fix. Nothing here raises: what goes wrong is a finding.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from shunter_schemas.ids import new_deployment_id, new_node_token

from shunter_providers.advice import with_advice
from shunter_providers.contract import (
    Availability,
    Fault,
    Instance,
    Intent,
    Launch,
    NodeCondition,
    Offer,
    OfferQuery,
    Provider,
    ProviderError,
)
from shunter_providers.registry import Registry

_T = TypeVar("_T")
_LOOK_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. `ok` None: nothing to worry about, but worth knowing."""

    check: str
    ok: bool | None
    words: str
    took_s: float = 0.0


def check_offline(instance: Instance) -> Iterator[Finding]:
    """Whether the plugin loads and its settings are complete; asks nobody."""
    registry = Registry({instance.name: instance})
    try:
        declared = registry.get(instance.name).capabilities
    except ProviderError as exc:
        yield Finding("plugin and settings", False, exc.detail)
        return
    yield Finding("plugin and settings", True, f"{instance.plugin} loads, its settings are complete")
    again = "may be sent again" if declared.idempotency != "search_only" else "makes a twin when it is sent again"
    yield Finding("contract", True, f"version {declared.contract_version}; a create call {again}")
    if declared.spends_setup_fee:
        yield Finding("set-up fee", None, "each node costs one: only jobs that name this instance run here")


async def check_live(provider: Provider) -> AsyncIterator[Finding]:
    """Who we are, what is offered, what we own there: calls that cost nothing."""
    identity = await _asked("identity", provider.whoami, lambda who: f"the credentials work: {who.account}")
    yield identity
    if not identity.ok:
        return
    yield await _asked("offers", lambda: provider.offers(OfferQuery()), _about_offers)
    deployment = new_deployment_id()
    yield await _asked("listing", lambda: provider.list_owned(deployment), lambda _: "what we own there can be listed")


async def check_spending(provider: Provider) -> AsyncIterator[Finding]:
    """One node of the cheapest kind through its life: made, found, up, ended, gone. It is ended whatever happens."""
    offer = cheapest(await provider.offers(OfferQuery()))
    if offer is None:
        yield Finding("create", None, "nothing is available now; try again later")
        return
    deployment = new_deployment_id()
    intent = Intent(
        token=new_node_token(deployment),
        tags={"deployment": deployment, "job": "job_check"},
        offer=offer,
        launch=Launch(argv=("true",), files={}),
        rank=0,
        gang_size=1,
        slots=1,
        slot_indices=(0,),
    )
    async for finding in _life(provider, intent, deployment):
        yield finding


def cheapest(offers: Sequence[Offer]) -> Offer | None:
    """The cheapest that can be had and is no spot capacity."""
    free = [one for one in offers if one.availability in (Availability.AVAILABLE, Availability.UNKNOWN)]
    steady = [one for one in free if one.capacity == "on_demand" and one.price.setup_usd == 0]
    return min(steady, key=lambda one: one.price.usd_per_hour, default=None)


async def _life(provider: Provider, intent: Intent, deployment: str) -> AsyncIterator[Finding]:
    began = time.monotonic()
    try:
        where = f"{intent.offer.instance_type} in {intent.offer.region}"
        yield await _asked("create", lambda: provider.create(intent), lambda handle: f"{where}: {handle}")
        found = await _asked("find", lambda: _found(provider, intent.token, deployment), str)
        yield found
        if found.ok:
            yield await _asked("boot", lambda: _up(provider, found.words), str)
    finally:
        ended = await _asked("end", lambda: _ended(provider, deployment), str)
    yield ended
    usd = (time.monotonic() - began) / 3600 * intent.offer.price.usd_per_hour
    yield Finding("bill", None, f"about {usd:.3f} USD, or the vendor's least unit")


async def _asked(check: str, call: Callable[[], Awaitable[_T]], words: Callable[[_T], str]) -> Finding:
    began = time.monotonic()
    try:
        answer = await call()
    except ProviderError as exc:
        return Finding(check, False, f"{exc.fault}: {with_advice(exc)}", time.monotonic() - began)
    return Finding(check, True, words(answer), time.monotonic() - began)


def _about_offers(offers: Sequence[Offer]) -> str:
    free = sum(offer.availability is Availability.AVAILABLE for offer in offers)
    nowhere = sum(not offer.jurisdiction for offer in offers)
    best = cheapest(offers)
    price = f"; the cheapest {best.instance_type} at {best.price.usd_per_hour:.2f} USD an hour" if best else ""
    unknown = f"; {nowhere} in places of unknown jurisdiction" if nowhere else ""
    return f"{len(offers)} offers, {free} available now{price}{unknown}"


async def _found(provider: Provider, token: str, deployment: str) -> str:
    give_up_at = time.monotonic() + provider.capabilities.visibility_delay_s + 5
    while time.monotonic() < give_up_at:
        for view in await provider.list_owned(deployment):
            if view.token == token:
                return view.handle
        await asyncio.sleep(_LOOK_EVERY_S)
    raise ProviderError(Fault.NOT_FOUND, "no listing shows it: it was not made, or the visibility delay is too short")


async def _up(provider: Provider, handle: str) -> str:
    began = time.monotonic()
    give_up_at = began + provider.capabilities.readiness_deadline_s
    while (view := await provider.get(handle)).condition is not NodeCondition.RUNNING:
        if view.condition in (NodeCondition.FAILED, NodeCondition.GONE) or time.monotonic() > give_up_at:
            told = f"it is {view.condition}: {view.reason or 'no reason is told'}"
            raise ProviderError(view.fault or Fault.TRANSIENT, told)
        await asyncio.sleep(_LOOK_EVERY_S)
    return f"it runs after {time.monotonic() - began:.0f} s"


async def _ended(provider: Provider, deployment: str) -> str:
    give_up_at = time.monotonic() + 300
    while views := await provider.list_owned(deployment):
        for view in views:
            await provider.terminate(view.handle)
        if time.monotonic() > give_up_at:
            left = ", ".join(view.handle for view in views)
            raise ProviderError(Fault.TRANSIENT, f"END IT BY HAND: {left} is still listed")
        await asyncio.sleep(_LOOK_EVERY_S)
    return "nothing of ours is left there"
