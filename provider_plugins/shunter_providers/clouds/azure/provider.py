"""Azure: virtual machines of one subscription, driven over libcloud's connection to the Resource Manager (`arm`).

A node's name is its token, and its create call makes nothing where there is one of that name: without that, Azure would
change the machine that is there, or refuse what cannot be changed. Interface, address and disk are made in the same
call and go with their machine; what is left of one all the same is found by its tag or name, shown as the node, and
ended. A lack of capacity may stand only in the operation, or in the machine's state.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from shunter_providers.cloud_kit.blocking import PaceOfLoop, Tokens
from shunter_providers.cloud_kit.naming import looks_like, token_of
from shunter_providers.cloud_kit.options import read_options
from shunter_providers.cloud_kit.paced import PacedProvider
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.clouds.azure.arm import COMPUTE, SKUS, SUBSCRIPTIONS, Arm, failure_of, sign_in
from shunter_providers.clouds.azure.nodes import Market, free_cores, offers_of, order, view_of
from shunter_providers.clouds.azure.parts import Beside, Part, addresses_of, left_over, parts_of
from shunter_providers.clouds.azure.places import Place, Places
from shunter_providers.clouds.azure.prices import RetailPrices
from shunter_providers.clouds.azure.settings import AzureOptions, AzureSettings, account_of
from shunter_providers.contract import (
    Capabilities,
    Fault,
    Identity,
    Instance,
    Intent,
    NodeCondition,
    NodeView,
    Offer,
    OfferQuery,
    ProviderError,
    Rate,
    Scope,
    SelfStop,
)
from shunter_providers.plugin_settings import read_settings

_PACING: Final = (Rate(250, 10.0), Rate(200, 20.0, "create"))
"""The Resource Manager's buckets of a region: 250 reads, 25 more a second; 200 writes, 10 more a second."""
_HANDLE: Final = r"[a-z0-9_().-]{1,90}/shn-[a-z0-9]+-[a-z0-9]+"
"""Resource group and name."""
_MACHINES: Final = "/providers/Microsoft.Compute/virtualMachines"
_ENDED: Final = ("Disabled", "Deleted", "Expired")

_log = logging.getLogger(__name__)


class AzureProvider(PacedProvider[Arm]):
    """Nodes of one subscription."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        bootstrap="ssh",
        idempotency="unique_name",
        kinds=("vm",),
        runs_images=True,
        runs_images_by_docker=True,
        capacities=("on_demand", "spot"),
        price_source="mixed",
        fabric="ethernet",
        pacing=_PACING,
        options=tuple(AzureOptions.model_fields),
        self_stop=SelfStop.NONE,
        visibility_delay_s=30.0,
        readiness_deadline_s=900.0,
        scan_interval_s=20.0,
        create_timeout_s=60.0,
        console=True,
    )

    def __init__(self, instance: Instance) -> None:
        super().__init__()
        settings = self._settings = read_settings(instance, AzureSettings)
        object.__setattr__(self, "capabilities", settings.adjusted(self.capabilities))  # of this instance alone
        self._name = instance.name
        self._account = account_of(settings)
        self._pace = PaceOfLoop(instance, f"{settings.client_id} {self._account.subscription}", _PACING)
        self._tokens = Tokens(sign_in)
        self._prices = RetailPrices(instance.name, settings.cpu_types)
        self._places = Places(settings)
        self._unseen: dict[str, float] = {}
        """Handles of nodes that the API may not show yet, and when they were made."""

    def connect(self) -> Arm:
        """See the base."""
        return Arm(self._account, self._tokens, self._pace)

    def translate(self, error: Exception, *, creates: bool) -> ProviderError:
        """See the base; what the API says was translated where it was read."""
        fault = Fault.AMBIGUOUS if creates else Fault.TRANSIENT
        return ProviderError(fault, f"{type(error).__name__}: {error}", may_have_created=creates)

    def ask_identity(self, client: Arm) -> Identity:
        """The subscription, and what its limits leave in each region."""
        subscription = client.ask("GET", "", SUBSCRIPTIONS)
        state = subscription.text("state", "-")
        if state in _ENDED:
            detail = f"subscription {subscription.text('subscriptionId')} is {state.lower()}: nothing can be made in it"
            raise ProviderError(Fault.PAYMENT, detail, scope=Scope.ACCOUNT)
        limits: dict[str, Any] = {"name": subscription.text("displayName", "-"), "state": state}
        for region in self._settings.regions:
            left = free_cores(client.pages(f"/providers/Microsoft.Compute/locations/{region}/usages", COMPUTE))
            limits[f"{region} cores left"] = left.get("cores")
            limits[f"{region} spot cores left"] = left.get("lowprioritycores")
        return Identity(subscription.text("subscriptionId"), limits)

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """See the contract. All regions at once; one that fails hides no other."""
        ask = super().offers
        calls = [ask(replace(query, regions=(region,))) for region in self._settings.regions]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        failed = [answer for answer in answers if isinstance(answer, BaseException)]
        if len(failed) == len(answers):
            raise failed[0]
        for error in failed:
            _log.warning("provider %s: a region's offers are missing: %s", self._name, error)
        return [offer for answer in answers if not isinstance(answer, BaseException) for offer in answer]

    def ask_offers(self, client: Arm, query: OfferQuery) -> Sequence[Offer]:
        """Those of the regions in the query: types the subscription knows, at the prices that are known."""
        return [offer for region in query.regions for offer in self._offers_in(client, region)]

    def make(self, client: Arm, intent: Intent) -> str:
        """See the base. Where the name is taken, the node of that name is the answer, whatever it was ordered as."""
        options = read_options(intent, AzureOptions, self._name)
        region = intent.offer.region
        known, place = region in self._places, self._places.of(client, region)
        try:
            return self._order(client, intent, options, place)
        except ProviderError as exc:
            missing = "ResourceGroupNotFound" in exc.detail or "InvalidResourceReference" in exc.detail
            if not known or not missing or exc.may_have_created:
                raise
        self._places.forget(region)  # somebody took it away since; nothing was made
        return self._order(client, intent, options, self._places.of(client, region))

    def look(self, client: Arm, handle: str) -> NodeView:
        """See the base. A node of which parts are left is not gone."""
        gone = NodeView(handle, None, NodeCondition.GONE, "no such node")
        if not looks_like(handle, _HANDLE):
            return gone
        machine = self._machine(client, handle)
        if machine is None:
            if self._may_appear(handle):
                return NodeView(handle, token_of(handle.partition("/")[2]), NodeCondition.PENDING, "not shown yet")
            parts = parts_of(client, handle)
            return left_over(handle, parts) if parts else gone
        shown = machine.inside("properties").inside("instanceView")
        statuses = shown.items("statuses") if "statuses" in shown else ()
        return view_of(machine, statuses, addresses_of(client, machine), self._settings)

    def look_for_all(self, client: Arm, deployment: str) -> Sequence[NodeView]:
        """See the base: machines, then what there is without one. Parts are read first, so that each has a machine
        unless it was left over."""
        beside = Beside(client)
        addresses = beside.addresses()
        statuses = {
            one.text("id").lower(): one.inside("properties").inside("instanceView")
            for one in client.pages(_MACHINES, COMPUTE, statusOnly="true")
        }
        views: dict[str, NodeView] = {}
        for machine in client.pages(_MACHINES, COMPUTE):
            if token_of(machine.text("name").lower(), deployment):
                shown = statuses.get(machine.text("id").lower(), Fields({}, "an instance view"))
                found = shown.items("statuses") if "statuses" in shown else ()
                view = view_of(machine, found, addresses, self._settings)
                views[view.handle] = view
                self._unseen.pop(view.handle, None)
        bare = {
            handle: parts
            for handle, parts in beside.parts().items()
            if handle not in views and token_of(parts[0].token, deployment)
        }
        return [*views.values(), *(self._without_machine(handle, parts) for handle, parts in bare.items())]

    def end(self, client: Arm, handle: str) -> bool:
        """See the base. Interface, address and disk go with the machine; those that did not are deleted after it."""
        if not looks_like(handle, _HANDLE):
            return True
        if client.delete(_path(handle), COMPUTE):
            self._unseen.pop(handle, None)
        if self._machine(client, handle) is not None or self._may_appear(handle):
            return False
        parts = parts_of(client, handle)
        for part in parts:
            part.delete(client)
        return not parts or not parts_of(client, handle)

    async def console(self, handle: str) -> str:
        """See the contract: the serial log of the machine's boot diagnostics."""
        return await self._in_thread(lambda client: _console(client, handle))

    def _offers_in(self, client: Arm, region: str) -> Iterator[Offer]:
        skus = list(client.pages("/providers/Microsoft.Compute/skus", SKUS, filter=f"location eq '{region}'"))
        usages = client.pages(f"/providers/Microsoft.Compute/locations/{region}/usages", COMPUTE)
        market = Market(self._prices.of(client, region), free_cores(usages))
        for sku in skus:
            if sku.text("resourceType", "-") == "virtualMachines":
                yield from self._readable(sku, region, market)

    def _readable(self, sku: Fields, region: str, market: Market) -> list[Offer]:
        """One type that the vendor garbles must not hide the others."""
        try:
            return list(offers_of(sku, region, market, self._settings))
        except ProviderError:
            return []

    def _order(self, client: Arm, intent: Intent, options: AzureOptions, place: Place) -> str:
        handle = f"{place.group}/{intent.token}"
        if not looks_like(handle, _HANDLE):
            raise ProviderError(Fault.INVALID, f"{handle!r} can be no node's group and name")
        body = order(intent, options, self._settings, place)
        try:
            answer = client.send("PUT", _path(handle), COMPUTE, body=body, creates=True)
        except ProviderError as exc:
            if exc.fault is not Fault.CONFLICT:
                raise
            if not exc.detail.startswith("412") and self.look(client, handle).condition is NodeCondition.GONE:
                raise
            self._note_made(handle)
            return handle
        self._note_made(handle)
        self._wait_for(client, handle, answer.operation)
        return handle

    def _wait_for(self, client: Arm, handle: str, operation: str) -> None:
        """Until it is done or that is no longer worth the wait; raises what it failed with."""
        give_up_at = time.monotonic() + self._settings.operation_wait_s
        pause_s = 0.05
        while operation and time.monotonic() < give_up_at:
            time.sleep(pause_s)
            pause_s = min(2.0, 2 * pause_s)
            try:
                seen = client.follow(operation)
            except ProviderError:  # the node is under way all the same, and is looked at again
                return
            status = seen.text("status", "-")
            if status in ("Failed", "Canceled"):
                raise self._undone(client, handle, failure_of(seen))
            if status == "Succeeded":
                return

    def _undone(self, client: Arm, handle: str, failure: ProviderError) -> ProviderError:
        """A machine that could not be made stays, and so do its parts: end them. The failure tells if it takes time."""
        try:
            gone = self.end(client, handle)
        except ProviderError:
            gone = False
        return ProviderError(failure.fault, failure.detail, scope=failure.scope, may_have_created=not gone)

    def _machine(self, client: Arm, handle: str) -> Fields | None:
        machine = client.find(_path(handle), COMPUTE, expand="instanceView")
        if machine is not None:
            self._unseen.pop(handle, None)
        return machine

    def _without_machine(self, handle: str, parts: Sequence[Part]) -> NodeView:
        view = left_over(handle, parts)
        if self._may_appear(handle):
            return replace(view, condition=NodeCondition.PENDING, reason="not shown yet")
        return view

    def _note_made(self, handle: str) -> None:
        now, within_s = time.monotonic(), self.capabilities.visibility_delay_s
        for one, at in list(self._unseen.items()):  # other threads change it meanwhile
            if now - at > within_s:
                self._unseen.pop(one, None)
        self._unseen[handle] = now

    def _may_appear(self, handle: str) -> bool:
        made_at = self._unseen.get(handle)
        return made_at is not None and time.monotonic() - made_at < self.capabilities.visibility_delay_s


def _path(handle: str) -> str:
    group, _, name = handle.partition("/")
    return f"/resourceGroups/{group}{_MACHINES}/{name}"


def _console(client: Arm, handle: str) -> str:
    if not looks_like(handle, _HANDLE):
        return ""
    path = f"{_path(handle)}/retrieveBootDiagnosticsData"
    try:
        found = client.ask("POST", path, COMPUTE, sasUriExpirationTimeInMinutes="5")
    except ProviderError as exc:
        if exc.fault is not Fault.NOT_FOUND:
            raise
        return ""
    url = found.text("serialConsoleLogBlobUri", "")
    return client.text_at(url) if url else ""
