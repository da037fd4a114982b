"""Google Cloud: virtual machines of Compute Engine, driven over libcloud's connection and sign-in (`gce`).

An offer's region is a zone, for capacity is a zone's. A node's name is its token and its create call bears a
`requestId` made of it, so that one sent again makes nothing more. The call is answered by an operation, and a lack of
capacity stands only there: it is waited for a moment, and looked up again wherever a node is missing. The API tells no
prices; they are those of the bundled catalogue, or the operator's own.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from shunter_providers import catalogue
from shunter_providers.cloud_kit.blocking import PaceOfLoop, Tokens
from shunter_providers.cloud_kit.naming import looks_like, token_of
from shunter_providers.cloud_kit.options import read_options
from shunter_providers.cloud_kit.paced import PacedProvider
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.clouds.google_cloud.gce import Gce, failure_of, sign_in
from shunter_providers.clouds.google_cloud.nodes import fate_of, offers_of, order, quotas_of, region_of, view_of
from shunter_providers.clouds.google_cloud.settings import GoogleCloudOptions, GoogleCloudSettings, account_of
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

_PACING: Final = (Rate(20, 1.0),)
_HANDLE: Final = r"[a-z]+(-[a-z]+)+[0-9]+-[a-z]/[a-z][a-z0-9-]{0,62}"
"""Zone and name."""
_REQUESTS: Final = uuid.UUID("6f0c1f5e-54f8-4f3b-9a44-0f0e1d6c7a52")
"""The namespace of our `requestId`s."""


class GoogleCloudProvider(PacedProvider[Gce]):
    """Nodes of one project."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        bootstrap="ssh",
        idempotency="token",
        kinds=("vm",),
        runs_images=True,
        runs_images_by_docker=True,
        capacities=("on_demand", "spot"),
        price_source="catalogue",
        fabric="ethernet",
        pacing=_PACING,
        options=tuple(GoogleCloudOptions.model_fields),
        self_stop=SelfStop.STOPS_COMPUTE,
        visibility_delay_s=30.0,
        readiness_deadline_s=900.0,
        scan_interval_s=20.0,
        create_timeout_s=60.0,
        console=True,
    )

    def __init__(self, instance: Instance) -> None:
        super().__init__()
        settings = self._settings = read_settings(instance, GoogleCloudSettings)
        if not settings.credentials_file and settings.credentials is None:
            detail = "set credentials_file (the variable GOOGLE_APPLICATION_CREDENTIALS) to the path of a service"
            whole = f"providers.{instance.name}: {detail} account's key, or credentials to its JSON"
            raise ProviderError(Fault.INVALID, whole)
        object.__setattr__(self, "capabilities", settings.adjusted(self.capabilities))  # of this instance alone
        self._name = instance.name
        credential = settings.credentials.get_secret_value() if settings.credentials else settings.credentials_file
        self._pace = PaceOfLoop(instance, f"{credential} {settings.project}", _PACING)
        self._tokens = Tokens(sign_in)
        self._made_at: dict[str, float] = {}
        """Handles of nodes of whose making the operations may not tell yet."""

    def connect(self) -> Gce:
        """See the base."""
        return Gce(account_of(self._settings), self._tokens, self._pace)

    def translate(self, error: Exception, *, creates: bool) -> ProviderError:
        """See the base; what the API says was translated where it was read."""
        fault = Fault.AMBIGUOUS if creates else Fault.TRANSIENT
        return ProviderError(fault, f"{type(error).__name__}: {error}", may_have_created=creates)

    def ask_identity(self, client: Gce) -> Identity:
        """See the base."""
        project = client.ask("GET", "")
        return Identity(
            project.text("name"), {quota.text("metric"): quota.number("limit") for quota in quotas_of(project)}
        )

    def ask_offers(self, client: Gce, query: OfferQuery) -> Sequence[Offer]:
        """Every type with a known price, by zone, on demand and spot."""
        quotas = {
            region.text("name"): {quota.text("metric"): quota for quota in quotas_of(region)}
            for page in client.pages("/regions", {})
            for region in page.items("items")
        }
        types = sorted({*(row.instance_type for row in catalogue.listed("gcp")), *self._own_types()})
        wanted = " OR ".join(f'(name = "{one}")' for one in types)
        found: list[Offer] = []
        for zone, kind in client.of_all_zones("machineTypes", wanted):
            if not self._settings.zones or zone in self._settings.zones:
                found += self._readable(zone, kind, quotas.get(region_of(zone), {}))
        return found

    def make(self, client: Gce, intent: Intent) -> str:
        """See the base. Sent again it is answered with the same operation, or with the name that is taken."""
        options = read_options(intent, GoogleCloudOptions, self._name)
        zone = intent.offer.region
        if not looks_like(f"{zone}/{intent.token}", _HANDLE):
            raise ProviderError(Fault.INVALID, f"{zone!r} is no zone", scope=Scope.OFFER)
        handle = f"{zone}/{intent.token}"
        body = order(intent, options, self._settings, client.project)
        path, request_id = f"/zones/{zone}/instances", str(uuid.uuid5(_REQUESTS, handle))
        try:
            operation = client.ask("POST", path, params={"requestId": request_id}, body=body, creates=True)
        except ProviderError as exc:
            if exc.fault is Fault.CONFLICT and self.look(client, handle).condition is not NodeCondition.GONE:
                return handle
            raise
        self._note_made(handle)
        self._wait_for(client, zone, operation)
        return handle

    def look(self, client: Gce, handle: str) -> NodeView:
        """See the base. A node that is missing is told of by its operations."""
        if not looks_like(handle, _HANDLE):
            return NodeView(handle, None, NodeCondition.GONE, "no such node")
        zone, _, name = handle.partition("/")
        try:
            return view_of(client.ask("GET", f"/zones/{zone}/instances/{name}"), zone, self._settings.user)
        except ProviderError as exc:
            if exc.fault is not Fault.NOT_FOUND:
                raise
        within_s = self.capabilities.visibility_delay_s
        operations = _operations_on(client, zone, name)
        if not operations and time.monotonic() - self._made_at.get(handle, -within_s) < within_s:
            return NodeView(handle, token_of(name), NodeCondition.PENDING, "not shown yet")
        return NodeView(handle, token_of(name), *fate_of(operations, within_s))

    def look_for_all(self, client: Gce, deployment: str) -> Sequence[NodeView]:
        """See the base."""
        wanted = f'name eq "shn-{deployment}-.*"'
        views = (view_of(one, zone, self._settings.user) for zone, one in client.of_all_zones("instances", wanted))
        return [view for view in views if token_of(view.token, deployment)]

    def end(self, client: Gce, handle: str) -> bool:
        """See the base; the boot disk goes with its node."""
        if not looks_like(handle, _HANDLE):
            return True
        zone, _, name = handle.partition("/")
        try:
            client.ask("DELETE", f"/zones/{zone}/instances/{name}")
        except ProviderError as exc:
            if exc.fault is not Fault.NOT_FOUND and not (exc.fault is Fault.TRANSIENT and exc.scope is Scope.OFFER):
                raise
        return self.look(client, handle).condition in (NodeCondition.GONE, NodeCondition.FAILED)

    async def console(self, handle: str) -> str:
        """See the contract: the first serial port."""
        return await self._in_thread(lambda client: _console(client, handle))

    def _own_types(self) -> Iterator[str]:
        for name in (*self._settings.prices, *self._settings.spot_prices):
            yield name.partition("/")[0]

    def _readable(self, zone: str, kind: Fields, quotas: Mapping[str, Fields]) -> list[Offer]:
        """One type that the vendor garbles must not hide the others."""
        try:
            return list(offers_of(zone, kind, quotas, self._settings))
        except ProviderError:
            return []

    def _note_made(self, handle: str) -> None:
        now, within_s = time.monotonic(), self.capabilities.visibility_delay_s
        self._made_at = {one: at for one, at in self._made_at.items() if now - at < within_s} | {handle: now}

    def _wait_for(self, client: Gce, zone: str, operation: Fields) -> None:
        """Until it is done or that is no longer worth the wait; raises what it failed with."""
        path = f"/zones/{zone}/operations/{operation.text('name')}"
        give_up_at = time.monotonic() + self._settings.operation_wait_s
        pause_s = 0.05
        while operation.text("status") != "DONE" and time.monotonic() < give_up_at:
            time.sleep(pause_s)
            pause_s = min(2.0, 2 * pause_s)
            try:
                operation = client.ask("GET", path)
            except ProviderError:  # the node is under way all the same, and is looked at again
                return
        failure = failure_of(operation)
        if failure is not None:
            raise failure


def _console(client: Gce, handle: str) -> str:
    zone, _, name = handle.partition("/")
    if not looks_like(handle, _HANDLE):
        return ""
    return client.ask("GET", f"/zones/{zone}/instances/{name}/serialPort", params={"port": 1}).text("contents", "")


def _operations_on(client: Gce, zone: str, name: str) -> Sequence[Fields]:
    """All that is known of what was done to a node; nothing where there is no such zone."""
    wanted = f'targetLink eq ".*/instances/{name}"'
    try:
        pages = list(client.pages(f"/zones/{zone}/operations", {"filter": wanted}))
    except ProviderError as exc:
        if exc.fault is not Fault.NOT_FOUND:
            raise
        return ()
    return [one for page in pages if "items" in page for one in page.items("items")]
