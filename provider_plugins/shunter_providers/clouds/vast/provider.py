"""Vast.ai: GPU containers on a market of machines, over its REST API (v0, and v1 where it lists instances).

What is offered here is a kind of machine in a country; which machine it becomes is chosen when a node is made: the
cheapest one that costs no more than was offered and that the job does not avoid. An ask can be rented once, there is no
other idempotency; an instance is known by its label. Start scripts hold 4 KiB, so only keys go in, and the service
starts the agent by SSH. The API says how often it may be asked by no header, and refuses in plain text.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from shunter_providers.cloud_kit.bearer import bearer
from shunter_providers.cloud_kit.faults import Refused, Row, classify
from shunter_providers.cloud_kit.key_script import key_script
from shunter_providers.cloud_kit.naming import token_of
from shunter_providers.cloud_kit.options import read_options
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.cloud_kit.rest import RestCloud
from shunter_providers.cloud_kit.settings import BaseUrl, CloudSettings
from shunter_providers.cloud_kit.together import all_of
from shunter_providers.clouds.vast.market import TYPES, Ask, chosen, narrower, offers_of, readable
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
    SshEndpoint,
)
from shunter_providers.plugin_settings import Variables, read_settings

_PACING: Final = (Rate(1, 4.5, "create"), Rate(1, 2.0))
"""The vendor names an interval for each endpoint: 4.5 s to rent, 1 to 3 s for the others, which are called in turn."""


class VastSettings(CloudSettings):
    """Settings of the `vast` plugin."""

    api_key: Annotated[SecretStr, Variables("VAST_API_KEY")]
    """A key that may read and write instances."""
    base_url: BaseUrl = "https://console.vast.ai"
    image: str = Field(default="vastai/pytorch:@vastai-automatic-tag", min_length=1)
    """For jobs that name none."""
    disk_gib: int = Field(default=100, ge=8)
    """Disk of an instance; the host sets its price."""
    verified: bool = True
    """Only machines that the vendor has verified."""
    datacenter_only: bool = False
    """Only machines in data centers; others stand with strangers."""
    min_reliability: float = Field(default=0.95, ge=0, le=1)
    """As the vendor scores machines."""
    min_rental_hours: float = Field(default=24.0, ge=0)
    """Machines that their host lets for less time than that are passed over."""
    bid_over_minimum: float = Field(default=1.1, ge=1, le=10)
    """What is bid for spot capacity, as a multiple of the least that would win now."""


class VastOptions(BaseModel):
    """What a job may say in `placement.options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    disk_gib: int | None = Field(default=None, ge=8)
    min_cuda_version: Annotated[str, Field(pattern=r"^\d+\.\d+$")] | None = None


class VastProvider(RestCloud):
    """Instances of one account."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        bootstrap="ssh",
        idempotency="search_only",
        kinds=("container",),
        capacities=("on_demand", "spot"),
        price_source="live",
        fabric="none",
        pacing=_PACING,
        options=tuple(VastOptions.model_fields),
        visibility_delay_s=30.0,
        readiness_deadline_s=1200.0,  # instances that load for longer do so for ever
        scan_interval_s=20.0,
        create_timeout_s=90.0,
        runs_images=True,
    )
    handle_pattern = r"[1-9][0-9]{0,14}"

    def __init__(self, instance: Instance) -> None:
        settings = self._settings = read_settings(instance, VastSettings)
        key = settings.api_key.get_secret_value()
        api = bearer(settings, self.capabilities, _FAULTS, _words_of)
        super().__init__(instance, api, credential=key, times=settings)
        self._tried: dict[str, float] = {}
        """Asks that this process took, and when: searches show them for a while."""

    async def whoami(self) -> Identity:
        """The user that the key belongs to."""
        return Identity((await self.http.fields("GET", "/api/v0/users/current/")).text("id"))

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """Each kind of machine in each country, at the price of the cheapest few."""
        markets = await all_of(self._asks(capacity, {"limit": 3000}) for capacity in TYPES)
        disk_gib = self._settings.disk_gib
        return [
            offer
            for capacity, market in zip(TYPES, markets, strict=True)
            for offer in offers_of(capacity, market, disk_gib)
        ]

    async def _asks(self, capacity: str, more: Mapping[str, Any]) -> list[Ask]:
        body = {**_filters(self._settings), "type": TYPES[capacity], **more}
        answer = await self.http.fields("POST", "/api/v0/bundles/", json=body)
        return readable(answer.items("offers"), self._settings.bid_over_minimum if capacity == "spot" else None)

    async def _order(self, intent: Intent) -> str:
        options = read_options(intent, VastOptions, self.instance.name)
        disk_gib = options.disk_gib or self._settings.disk_gib
        more = narrower(intent.offer, disk_gib)
        if options.min_cuda_version is not None:
            more["cuda_max_good"] = {"gte": float(options.min_cuda_version)}
        ask = self._choose(await self._asks(intent.offer.capacity, more), intent)
        body = _rental(intent, ask, self._settings.image, disk_gib)
        try:
            answer = await self.http.fields("PUT", f"/api/v0/asks/{ask.id}/", json=body, creates=True)
            _check(answer)
        except ProviderError as exc:
            if _HALF_MADE in exc.detail:
                exc.may_have_created = True
            raise
        return answer.text("new_contract")

    def _choose(self, market: Sequence[Ask], intent: Intent) -> Ask:
        """Several nodes that are made at once must not all want the same machine."""
        now = time.monotonic()
        self._tried = {ask: at for ask, at in self._tried.items() if now - at < _SHOWN_FOR_S}
        ask = chosen(market, intent, self._tried)
        self._tried[ask.id] = now
        return ask

    async def _look(self, handle: str) -> NodeView:
        """An instance that does not exist is answered with null."""
        answer = await self.http.fields("GET", f"/api/v0/instances/{handle}/")
        if "instances" not in answer:
            raise ProviderError(Fault.NOT_FOUND, f"there is no instance {handle}", scope=Scope.OFFER)
        return _view(answer.inside("instances"), self._settings.image)

    async def _list(self) -> Sequence[NodeView]:
        """All pages; a page has 25 at most."""
        views: list[NodeView] = []
        after: dict[str, str] = {}
        while True:
            page = await self.http.fields("GET", "/api/v1/instances/", params={"limit": 25, **after})
            views += [_view(one, self._settings.image) for one in page.items("instances")]
            if "next_token" not in page:
                return views
            if after == {"after_token": page.text("next_token")}:
                raise ProviderError(Fault.TRANSIENT, "GET /api/v1/instances/: the same page again and again")
            after = {"after_token": page.text("next_token")}

    async def _end(self, handle: str) -> None:
        """Destroy it: one that is only stopped bills its disk."""
        _check(await self.http.fields("DELETE", f"/api/v0/instances/{handle}/"))


# Pure from here on: the vendor's words to ours.

_SHOWN_FOR_S: Final = 60.0
_LARGEST_START_BYTES: Final = 4096
_HALF_MADE: Final = "made all the same: contract"
"""A bid that is too low is refused, and yet its instance exists, stopped, and bills its disk."""

# fmt: off
_FAULTS: Final = (
    Row(None, r"invalid user key|auth_error|invalid api key",             Fault.AUTH,         Scope.ACCOUNT),
    Row(None, r"too frequent|rate_limit",                                 Fault.RATE_LIMITED, Scope.ACCOUNT),
    Row(None, r"(insufficient|lacks?|not enough)[ _]+(credit|balance|funds)",  # seen with 400; not in the documents
        Fault.PAYMENT, Scope.ACCOUNT),
    Row(None, r"no_such_ask|is not available|no longer available",        Fault.NO_CAPACITY,  Scope.OFFER),
    Row(None, r"invalid_price|not your own",                              Fault.NO_CAPACITY,  Scope.OFFER),
    Row(None, r"no_such_instance|instance not found",                     Fault.NOT_FOUND,    Scope.OFFER),
)
_CONDITIONS: Final[Mapping[str, tuple[NodeCondition, str]]] = {
    "created":   (NodeCondition.PENDING, ""),
    "loading":   (NodeCondition.PENDING, "the image is being pulled"),
    "scheduling": (NodeCondition.PENDING, ""),
    "running":   (NodeCondition.RUNNING, ""),
    "exited":    (NodeCondition.STOPPED, "its container ended"),
    "stopped":   (NodeCondition.STOPPED, "it was stopped"),
    "offline":   (NodeCondition.UNKNOWN, "its host does not answer the vendor"),
}
# fmt: on
_DEAD: Final = ("OCI runtime create failed", "Error response from daemon")
"""In `status_msg`: what does not pass by itself."""


_NO_IMAGE: Final = re.compile(
    r"pull access denied|manifest unknown|manifest for .* not found|repository .* not found|repository does not exist|"
    r"invalid reference format|no matching manifest|no match for platform",
    re.IGNORECASE,
)
"""The same, of images: another host changes nothing."""


def _filters(settings: VastSettings) -> dict[str, Any]:
    body: dict[str, Any] = {
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "external": {"eq": False},
        "num_gpus": {"gte": 1},
        "gpu_arch": {"eq": "nvidia"},
        "direct_port_count": {"gte": 1},
        "reliability": {"gte": settings.min_reliability},
        "duration": {"gte": settings.min_rental_hours * 3600},
        "disk_space": {"gte": settings.disk_gib},
        "order": [["dph_total", "asc"]],
    }
    if settings.verified:
        body["verified"] = {"eq": True}
    if settings.datacenter_only:
        body["datacenter"] = {"eq": True}
    return body


def _rental(intent: Intent, ask: Ask, image: str, disk_gib: int) -> dict[str, Any]:
    body: dict[str, Any] = {
        "image": intent.image or image,
        "label": intent.token,
        "disk": float(disk_gib),
        "runtype": "ssh_direct",
        "target_state": "running",
        "cancel_unavail": True,  # else what cannot start waits, and bills its disk
        "onstart": key_script(intent, largest_bytes=_LARGEST_START_BYTES),
    }
    if intent.offer.capacity == "spot":
        body["price"] = ask.usd_per_hour
    return body


def _check(answer: Fields) -> None:
    """Refusals also come with status 200: `{"success": false, "error", "msg"}`."""
    if not answer.flag("success", default=True):
        body = {name: answer.raw(name) for name in ("error", "msg", "new_contract")}
        raise classify(Refused(400, *_words_of(body, "")), _FAULTS, creates=False)


def _view(one: Fields, own_image: str) -> NodeView:
    condition, reason = _state(one)
    no_image = condition is NodeCondition.FAILED and _NO_IMAGE.search(reason) is not None
    ssh = _direct(one)
    if condition is NodeCondition.RUNNING and ssh is None:
        condition, reason = NodeCondition.PENDING, "its ports are not open yet"
    addresses = {"machine": one.text("machine_id", "-"), "public": ssh.host if ssh is not None else "-"}
    return NodeView(
        handle=one.text("id"),
        token=token_of(one.text("label", "-")),
        condition=condition,
        reason=reason,
        addresses={name: address for name, address in addresses.items() if address != "-"},
        billed_usd_per_hour=one.number("dph_total") if "dph_total" in one else None,
        ssh=ssh if condition is NodeCondition.RUNNING else None,
        fault=Fault.INVALID if no_image else None,
        scope=Scope.ACCOUNT if no_image and one.text("image_uuid", "") == own_image else Scope.OFFER,
    )


def _state(one: Fields) -> tuple[NodeCondition, str]:
    said = one.text("status_msg", "-").strip()
    if {one.text(name, "-") for name in ("cur_state", "intended_status", "next_state")} == {"stopped"}:
        outbid = "another renter bid more, or took the machine on demand"
        return NodeCondition.STOPPED, outbid if one.flag("is_bid") else "the vendor stopped it: no credit, or its end"
    status = one.text("actual_status", "created")
    if status != "running" and _NO_IMAGE.search(said):
        return NodeCondition.FAILED, f"the image cannot be pulled: {said[:300]}"
    if status != "running" and any(word in said for word in _DEAD):
        return NodeCondition.FAILED, f"its host cannot start it: {said[:300]}"
    return _CONDITIONS.get(status, (NodeCondition.UNKNOWN, status))


def _direct(one: Fields) -> SshEndpoint | None:
    """The machine's own address and the port that leads to the container's 22: the proxy shows another host key."""
    ports = one.inside("ports")
    if "22/tcp" not in ports or "public_ipaddr" not in one:
        return None
    mapped = ports.items("22/tcp")
    host = one.text("public_ipaddr").strip()
    return SshEndpoint(host, mapped[0].count("HostPort"), "root") if mapped and host else None


def _words_of(body: Any, text: str) -> tuple[str, str]:
    """`{"success", "error", "msg"}`; some name only `msg`, `message` or `detail`, and limits come as plain text."""
    if not isinstance(body, Mapping):
        return "", text[:300]
    said = next((str(body[name]) for name in ("msg", "message", "detail") if body.get(name)), "")
    made = f" ({_HALF_MADE} {body['new_contract']})" if body.get("new_contract") else ""
    return str(body.get("error") or ""), f"{said}{made}" or text[:300]
