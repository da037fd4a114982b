"""Paperspace: GPU virtual machines over its REST API v1.

The API has no idempotency key, no tags and no prices: a machine is known by its name, and prices come from the bundled
catalogue, which is old. Whether a type can be had now it tells for each type and region. Keys go in by a start script
that is registered under the node's token and goes with the node; what came of a create is told by the machine's events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from shunter_providers import catalogue
from shunter_providers.catalogue import Listed
from shunter_providers.cloud_kit.bearer import bearer
from shunter_providers.cloud_kit.faults import Row
from shunter_providers.cloud_kit.key_script import key_script
from shunter_providers.cloud_kit.naming import token_of
from shunter_providers.cloud_kit.options import read_options
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.cloud_kit.rest import RestCloud
from shunter_providers.cloud_kit.settings import BaseUrl, CloudSettings
from shunter_providers.cloud_kit.together import all_of
from shunter_providers.contract import (
    Availability,
    Capabilities,
    Fault,
    Identity,
    Instance,
    Intent,
    NodeCondition,
    NodeView,
    Offer,
    OfferQuery,
    Price,
    ProviderError,
    Rate,
    Scope,
    SelfStop,
    SshEndpoint,
)
from shunter_providers.jurisdictions import of_region
from shunter_providers.plugin_settings import Variables, read_settings

_PACING: Final = (Rate(60, 60.0),)
"""The vendor limits calls and does not say to how many."""
_USER: Final = "paperspace"


class PaperspaceSettings(CloudSettings):
    """Settings of the `paperspace` plugin."""

    api_key: Annotated[SecretStr, Variables("PAPERSPACE_API_KEY")]
    """A key of a team."""
    base_url: BaseUrl = "https://api.paperspace.com/v1"
    template_id: str = ""
    """What machines boot. Empty: the vendor's template that suits the type, one with drivers before others."""
    disk_gib: int = Field(default=100, ge=50)
    """The vendor has 50, 100, 250, 500, 1000 and 2000."""


class PaperspaceOptions(BaseModel):
    """What a job may say in `placement.options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    template_id: str | None = Field(default=None, min_length=1)
    disk_gib: int | None = Field(default=None, ge=50)


class PaperspaceProvider(RestCloud):
    """Machines of one team."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        bootstrap="ssh",
        idempotency="search_only",
        kinds=("vm",),
        runs_images=True,
        runs_images_by_docker=True,
        price_source="catalogue",
        fabric="none",
        pacing=_PACING,
        options=tuple(PaperspaceOptions.model_fields),
        self_stop=SelfStop.STOPS_COMPUTE,
        visibility_delay_s=60.0,
        readiness_deadline_s=900.0,  # the vendor calls a machine stuck that provisions for ten minutes
        scan_interval_s=20.0,
        create_timeout_s=90.0,
    )
    handle_pattern = r"ps[a-z0-9]{4,30}"

    def __init__(self, instance: Instance) -> None:
        settings = self._settings = read_settings(instance, PaperspaceSettings)
        key = settings.api_key.get_secret_value()
        api = bearer(settings, self.capabilities, _FAULTS, _words_of)
        super().__init__(instance, api, credential=key, times=settings)

    async def whoami(self) -> Identity:
        """The team of the key; a session of nobody is answered with null."""
        session = await self.http.ask("GET", "/auth/session")
        if session is None:
            detail = "GET /auth/session: the key belongs to nobody"
            raise ProviderError(Fault.AUTH, detail, scope=Scope.ACCOUNT)
        team = Fields(session, "GET /auth/session").inside("team")
        return Identity(team.text("id"), {"machines": team.count("maxMachines", 0)})

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """Types of the catalogue that have a price, each asked for whether it can be had now."""
        priced = [
            (row, price) for row in catalogue.listed("paperspace") if (price := row.price()) and row.region in _SLUGS
        ]
        free = await all_of(self._availability(row) for row, _ in priced)
        return [
            _offer(row, price, is_free, self._settings.disk_gib)
            for (row, price), is_free in zip(priced, free, strict=True)
        ]

    async def _availability(self, row: Listed) -> Availability:
        """Unknown where the vendor does not answer for this one type."""
        asked = {"machineType": row.instance_type, "region": _SLUGS[row.region]}
        try:
            answer = await self.http.fields("GET", "/machine-availability", params=asked)
            return Availability.AVAILABLE if answer.flag("available") else Availability.NONE
        except ProviderError as exc:
            if exc.scope is Scope.ACCOUNT:
                raise
            return Availability.UNKNOWN

    async def _order(self, intent: Intent) -> str:
        options = read_options(intent, PaperspaceOptions, self.instance.name)
        template = options.template_id or self._settings.template_id or await self._template(intent.offer)
        script = await self._register(intent)
        body = _machine(intent, template, options.disk_gib or self._settings.disk_gib, script)
        try:
            answer = await self.http.fields("POST", "/machines", json=body, creates=True)
        except ProviderError as exc:
            if not exc.may_have_created:
                await self._forget(intent.token)
            raise
        return answer.inside("data").text("id")

    async def _template(self, offer: Offer) -> str:
        suiting = [one for one in await self._pages("/os-templates", {}) if _suits(one, offer.instance_type)]
        if not suiting:
            detail = f"no template of the vendor suits a {offer.instance_type}: set template_id"
            raise ProviderError(Fault.INVALID, detail, scope=Scope.OFFER)
        return min(suiting, key=_rank).text("id")

    async def _register(self, intent: Intent) -> str | None:
        """The node's own start script; None: there are no keys to bring."""
        if intent.public_key is None and intent.host_key is None:
            return None
        script = key_script(intent, home=f"/home/{_USER}", owner=_USER, largest_bytes=_LARGEST_SCRIPT_BYTES)
        known = await self._scripts(intent.token)
        if known:
            return known[0]
        body = {"name": intent.token, "script": script, "isRunOnce": True}
        return (await self.http.fields("POST", "/startup-scripts", json=body)).text("id")

    async def _scripts(self, token: str) -> list[str]:
        found = await self._pages("/startup-scripts", {"name": token})
        return [script.text("id") for script in found if script.text("name", "-") == token]

    async def _forget(self, token: str) -> None:
        """A script that nobody runs any more costs nothing: what is wrong with its end hides no other fault."""
        try:
            for script in await self._scripts(token):
                await self.http.ask("DELETE", f"/startup-scripts/{script}")
        except ProviderError:
            return

    async def _look(self, handle: str) -> NodeView:
        return await self._seen(_view(await self.http.fields("GET", f"/machines/{handle}")))

    async def _list(self) -> Sequence[NodeView]:
        views = [_view(machine) for machine in await self._pages("/machines", {})]
        return [await self._seen(view) if _is_ours_and_off(view) else view for view in views]

    async def _seen(self, view: NodeView) -> NodeView:
        """What its events say of a machine that is not up: it may still be made, or never."""
        if view.condition not in (NodeCondition.PENDING, NodeCondition.STOPPED):
            return view
        return _after(view, await self._pages("/machine-events", {"machineId": view.handle}))

    async def _end(self, handle: str) -> None:
        """Delete the machine, and forget its script: a left-over that nothing else would sweep."""
        view = _view(await self.http.fields("GET", f"/machines/{handle}"))
        if view.condition is NodeCondition.GONE:
            return
        try:
            await self.http.ask("DELETE", f"/machines/{handle}")
        except ProviderError as exc:
            if exc.fault is not Fault.CONFLICT:  # it is being deleted already
                raise
        if view.token is not None:
            await self._forget(view.token)

    async def _pages(self, path: str, asked: Mapping[str, str]) -> list[Fields]:
        found: list[Fields] = []
        after: dict[str, str] = {}
        while True:
            page = await self.http.fields("GET", path, params={**asked, "limit": 120, **after})
            found += page.items("items")
            if not page.flag("hasMore"):
                return found
            if after == {"after": page.text("nextPage")}:
                raise ProviderError(Fault.TRANSIENT, f"GET {path}: the same page again and again")
            after = {"after": page.text("nextPage")}


# Pure from here on: the vendor's words to ours.

_LARGEST_SCRIPT_BYTES: Final = 16 << 10
"""Not told by the vendor; ours have 2 KiB."""
_NVLINK: Final = ("H100x8", "A100-80Gx8")
_TEMPLATES: Final = ("ml-in-a-box", "ml in a box", "ubuntu 24", "ubuntu 22", "ubuntu 20", "ubuntu")
"""What is looked for in a template's name, the first that is found is the best."""

# fmt: off
_SLUGS: Final[Mapping[str, str]] = {
    "East Coast (NY2)": "ny2",
    "West Coast (CA1)": "ca1",
    "Europe (AMS1)":    "ams1",
}
"""Regions as the catalogue has them, and as the API wants them."""
_REGIONS: Final[Mapping[str, str]] = {
    "ny2":  "US",
    "ca1":  "US",
    "ams1": "NL",
}
_FAULTS: Final = (
    # The code is the status once more: the words decide.
    Row(None, r"already (being )?(deleted|deactivated)",                             Fault.CONFLICT,    Scope.OFFER),
    Row(None, r"billing|payment|past due|credit card",                               Fault.PAYMENT,     Scope.ACCOUNT),
    Row(None, r"quota|reached (the|your) .*limit|limit (reached|exceeded)|maximum number", Fault.QUOTA, Scope.ACCOUNT),
    Row(None, r"request access|not (been )?approved|approval|requires? permission",  Fault.QUOTA,       Scope.OFFER),
    Row(None, r"out of capacity|no capacity|currently unavailable|not available",    Fault.NO_CAPACITY, Scope.OFFER),
)
_CONDITIONS: Final[Mapping[str, tuple[NodeCondition, str]]] = {
    "provisioning": (NodeCondition.PENDING, ""),
    "starting":     (NodeCondition.PENDING, ""),
    "serviceready": (NodeCondition.PENDING, "its system starts"),
    "restarting":   (NodeCondition.PENDING, "it restarts"),
    "upgrading":    (NodeCondition.PENDING, "the vendor upgrades it"),
    "ready":        (NodeCondition.RUNNING, ""),
    "stopping":     (NodeCondition.STOPPED, "it is being switched off"),
    "off":          (NodeCondition.STOPPED, "it is switched off"),
}
# fmt: on


def jurisdiction_of(region: str) -> str:
    """The country of a region; empty for one that is new."""
    return of_region(region, _REGIONS)


def _offer(row: Listed, price: Price, availability: Availability, disk_gib: int) -> Offer:
    region = _SLUGS[row.region]
    return Offer(
        instance_type=row.instance_type,
        region=region,
        jurisdiction=jurisdiction_of(region),
        price=price,
        gpu_model=row.gpu_model,
        gpus=row.gpus,
        gpu_memory_gib=row.gpu_memory_gib,
        cpus=row.cpus or 0,
        memory_gib=row.memory_gib or 0.0,
        disk_gib=disk_gib,
        kind="vm",
        availability=availability,
    )


def _suits(template: Fields, machine_type: str) -> bool:
    return any(
        one.text("machineTypeLabel", "-") == machine_type and one.flag("isAvailable")
        for one in template.items("availableMachineTypes")
    )


def _rank(template: Fields) -> int:
    names = f"{template.text('name', '-')} {template.text('operatingSystemLabel', '-')}".lower()
    return next((rank for rank, words in enumerate(_TEMPLATES) if words in names), len(_TEMPLATES))


def _machine(intent: Intent, template: str, disk_gib: int, script: str | None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": intent.token,
        "machineType": intent.offer.instance_type,
        "templateId": template,
        "region": intent.offer.region,
        "diskSize": disk_gib,
        "publicIpType": "dynamic",
        "startOnCreate": True,
        "emailPassword": False,
        "autoSnapshotEnabled": False,
        "takeInitialSnapshot": False,
        "enableNvlink": intent.offer.instance_type in _NVLINK,
    }
    return body if script is None else {**body, "startupScriptId": script}


def _view(machine: Fields) -> NodeView:
    state = machine.text("state")
    condition, reason = _CONDITIONS.get(state, (NodeCondition.UNKNOWN, state))
    if "dtDeleted" in machine:
        condition, reason = NodeCondition.GONE, ""
    addresses = {"public": machine.text("publicIp", "-"), "private": machine.text("privateIp", "-")}
    public = addresses["public"]
    if condition is NodeCondition.RUNNING and public == "-":
        condition, reason = NodeCondition.PENDING, "it has no public address yet"
    usd = machine.number("usageRate", 0.0)
    return NodeView(
        handle=machine.text("id"),
        token=token_of(machine.text("name", "-")),
        condition=condition,
        reason=reason,
        addresses={name: address for name, address in addresses.items() if address != "-"},
        billed_usd_per_hour=usd or None,
        ssh=SshEndpoint(public, 22, _USER) if public != "-" else None,
    )


def _is_ours_and_off(view: NodeView) -> bool:
    return view.token is not None and view.condition is NodeCondition.STOPPED


def _after(view: NodeView, events: Sequence[Fields]) -> NodeView:
    """A machine as the newest event shows it that makes or starts it; the newest come first. An error without words
    passes by itself, and says nothing."""
    newest = next((event for event in events if event.text("name", "-") in ("create", "start")), None)
    if newest is None:
        return view
    state = newest.text("state", "-")
    if state in ("error", "cancelled") and "error" in newest:
        reason = f"the vendor could not {newest.text('name')} it: {newest.text('error')[:300]}"
        return replace(view, condition=NodeCondition.FAILED, reason=reason)
    if state in ("new", "in progress") and view.condition is NodeCondition.STOPPED:
        return replace(view, condition=NodeCondition.PENDING, reason="it is being made")
    return view


def _words_of(body: Any, text: str) -> tuple[str, str]:
    """`{"code", "message", "details"}`."""
    if not isinstance(body, Mapping):
        return "", text[:300]
    return str(body.get("code") or ""), str(body.get("message") or "")
