"""DigitalOcean: GPU droplets (virtual machines), and droplets with dedicated CPUs, over its REST API v2.

The API has no idempotency key; a droplet is known by its name. Listings leave GPU droplets out unless they are asked
for by themselves. A create is answered before it has begun, and what came of it is told by the droplet's actions. User
data holds 64 KiB, so only keys go in, and the service starts the agent by SSH.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from shunter_providers.cloud_kit.bearer import bearer
from shunter_providers.cloud_kit.boot import cloud_init
from shunter_providers.cloud_kit.faults import Row
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
    Launch,
    NodeCondition,
    NodeView,
    Offer,
    OfferQuery,
    Price,
    ProviderError,
    Rate,
    Scope,
    SshEndpoint,
)
from shunter_providers.gpu_names import gpu_model
from shunter_providers.jurisdictions import of_region
from shunter_providers.plugin_settings import Variables, read_settings

_PACING: Final = (Rate(250, 60.0), Rate(5000, 3600.0))


class DigitaloceanSettings(CloudSettings):
    """Settings of the `digitalocean` plugin."""

    api_key: Annotated[SecretStr, Variables("DIGITALOCEAN_TOKEN", "DIGITALOCEAN_ACCESS_TOKEN")]
    """A token that may read and write droplets, and make tags."""
    base_url: BaseUrl = "https://api.digitalocean.com"
    ssh_keys: tuple[int | str, ...] = ()
    """Keys of the account (numbers or fingerprints) for every droplet. With one, the vendor mails no root password."""
    image: str = ""
    """Slug or number of an image. Empty: the vendor's own for the kind of GPU, Ubuntu for droplets without."""


class DigitaloceanOptions(BaseModel):
    """What a job may say in `placement.options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str | None = Field(default=None, min_length=1)
    """Slug or number of an image of the vendor's or of the account."""


class DigitaloceanProvider(RestCloud):
    """Droplets of one team."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        bootstrap="ssh",
        idempotency="search_only",
        kinds=("vm",),
        runs_images=True,
        runs_images_by_docker=True,
        price_source="live",
        fabric="ethernet",
        pacing=_PACING,
        options=tuple(DigitaloceanOptions.model_fields),
        visibility_delay_s=30.0,
        readiness_deadline_s=900.0,
        create_timeout_s=60.0,
    )
    handle_pattern = r"[1-9][0-9]{0,14}"

    def __init__(self, instance: Instance) -> None:
        settings = self._settings = read_settings(instance, DigitaloceanSettings)
        key = settings.api_key.get_secret_value()
        api = bearer(settings, self.capabilities, _FAULTS, _words_of)
        super().__init__(instance, api, credential=key, times=settings)

    async def whoami(self) -> Identity:
        """The team that the token belongs to; a locked account makes nothing."""
        account = (await self.http.fields("GET", "/v2/account")).inside("account")
        if account.text("status", "active") == "locked":
            detail = f"the account is locked: {account.text('status_message', 'the vendor says not why')}"
            raise ProviderError(Fault.PAYMENT, detail, scope=Scope.ACCOUNT)
        team = account.inside("team")
        name = team.text("uuid") if "uuid" in team else account.text("uuid")
        return Identity(name, {"droplets": account.count("droplet_limit", 0)})

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """Sizes with GPUs, and with dedicated CPUs, in each region where they are to be had."""
        return [offer for size in await self._pages("sizes", {}) for offer in _readable(_offers(size))]

    async def _order(self, intent: Intent) -> str:
        options = read_options(intent, DigitaloceanOptions, self.instance.name)
        body = _droplet(intent, self._settings, options.image or self._settings.image)
        answer = await self.http.fields("POST", "/v2/droplets", json=body, creates=True)
        return answer.inside("droplet").text("id")

    async def _look(self, handle: str) -> NodeView:
        view = _view((await self.http.fields("GET", f"/v2/droplets/{handle}")).inside("droplet"))
        if view.condition is not NodeCondition.PENDING:
            return view
        actions = (await self.http.fields("GET", f"/v2/droplets/{handle}/actions")).items("actions")
        return _after(view, actions)

    async def _list(self) -> Sequence[NodeView]:
        """Both kinds: each is left out of the other's listing."""
        kinds = await all_of(self._pages("droplets", {"type": kind}) for kind in ("droplets", "gpus"))
        return list({view.handle: view for droplets in kinds for view in map(_view, droplets)}.values())

    async def _end(self, handle: str) -> None:
        await self.http.ask("DELETE", f"/v2/droplets/{handle}")

    async def _pages(self, what: str, asked: Mapping[str, str]) -> list[Fields]:
        """All pages. They are counted, so what goes meanwhile moves the rest up: a page that misses some is an error.

        Raises:
            ProviderError: `TRANSIENT`: fewer than the vendor says there are.
        """
        found: list[Fields] = []
        page = 0
        while True:
            page += 1
            params = {**asked, "per_page": 200, "page": page}
            answer = await self.http.fields("GET", f"/v2/{what}", params=params)
            items = answer.items(what)
            found += items
            if "next" not in answer.inside("links").inside("pages"):
                break
            if not items:
                raise ProviderError(Fault.TRANSIENT, f"GET /v2/{what}: page {page} is empty, and there are more")
        total = answer.inside("meta").count("total", len(found))
        if len(found) < total:
            raise ProviderError(Fault.TRANSIENT, f"GET /v2/{what}: {len(found)} of {total} were listed")
        return found


# Pure from here on: the vendor's words to ours.

_LARGEST_USER_DATA: Final = 64 << 10
_DEDICATED: Final = re.compile(r"c-\d+")
"""Sizes without GPUs that share their CPUs with nobody."""
_TOTAL: Final = re.compile(r"x(\d+)-(\d+)gb")
"""In the slug of a size: GPUs, and the memory of all of them."""
_NOWHERE: Final = "unknown"

# fmt: off
_REGIONS: Final[Mapping[str, str]] = {
    "ams*": "NL",
    "atl*": "US",
    "blr*": "IN",
    "fra*": "DE",
    "lon*": "GB",
    "nyc*": "US",
    "ric*": "US",
    "sfo*": "US",
    "sgp*": "SG",
    "syd*": "AU",
    "tor*": "CA",
}
_FAULTS: Final = (
    # One status, and one code, for everything: the words decide.
    Row(None, r"account (is|has been) (locked|suspended)|billing|payment|past due", Fault.PAYMENT, Scope.ACCOUNT),
    Row(422,  r"exceed your .*limit|limit (has been |is )?reached|droplet limit", Fault.QUOTA, Scope.ACCOUNT),
    Row(422,  r"restricted|request access|open a ticket|contact support", Fault.QUOTA, Scope.OFFER),
    Row(403,  r"size|gpu|restricted|droplet type", Fault.QUOTA, Scope.OFFER),
    Row(422,  r"region is (not available|disabled)", Fault.NO_CAPACITY, Scope.REGION),
    Row(422,  r"not available|unavailable|capacity|out of stock|sold out", Fault.NO_CAPACITY, Scope.OFFER),
    Row(423,  "", Fault.CONFLICT, Scope.OFFER),
)
_CONDITIONS: Final[Mapping[str, tuple[NodeCondition, str]]] = {
    "new":     (NodeCondition.PENDING, ""),
    "active":  (NodeCondition.RUNNING, ""),
    "off":     (NodeCondition.STOPPED, "it is switched off, and bills all the same"),
    "archive": (NodeCondition.STOPPED, "the vendor has archived it"),
}
_IMAGES: Final[Mapping[tuple[str, int], str]] = {
    ("amd", 1):    "gpu-amd-base",
    ("amd", 8):    "gpu-amd-base",
    ("nvidia", 1): "gpu-h100x1-base",
    ("nvidia", 8): "gpu-h100x8-base",
}
"""The vendor's images with drivers, for all kinds of GPU of a make."""
# fmt: on
_UBUNTU: Final = "ubuntu-24-04-x64"


def jurisdiction_of(region: str) -> str:
    """The country of a region; empty for one that is new."""
    return of_region(region, _REGIONS)


def _offers(size: Fields) -> Iterator[Offer]:
    slug, gpus = size.text("slug"), _gpus(size)
    if not gpus and not _DEDICATED.fullmatch(slug):
        return
    free = size.flag("available", default=True)
    for region in size.texts("regions") or [_NOWHERE]:
        yield Offer(
            instance_type=slug,
            region=region,
            jurisdiction=jurisdiction_of(region),
            price=Price(gpu_usd_per_hour=size.money("price_hourly")),
            gpu_model=gpu_model(size.inside("gpu_info").text("model")) if gpus else None,
            gpus=gpus,
            gpu_memory_gib=_gpu_memory_gib(size) if gpus else 0.0,
            cpus=size.count("vcpus"),
            cpu_slots=0 if gpus else size.count("vcpus"),
            memory_gib=size.number("memory") / 1024,
            disk_gib=size.number("disk"),
            kind="vm",
            availability=Availability.AVAILABLE if free and region != _NOWHERE else Availability.NONE,
            interconnect="ethernet",
            fabric=f"vpc-{region}",
        )


def _gpus(size: Fields) -> int:
    return size.inside("gpu_info").count("count") if "gpu_info" in size else 0


def _gpu_memory_gib(size: Fields) -> float:
    """Of one GPU: the API tells that of one for some sizes and of all for others, the slug tells that of all."""
    told = _TOTAL.search(size.text("slug"))
    if told is not None and int(told[1]):
        return int(told[2]) / int(told[1])
    return size.inside("gpu_info").inside("vram").number("amount")


def _readable(offers: Iterator[Offer]) -> list[Offer]:
    """One size that the vendor garbles must not hide the others."""
    try:
        return list(offers)
    except ProviderError:
        return []


def _droplet(intent: Intent, settings: DigitaloceanSettings, image: str) -> dict[str, Any]:
    tags = [f"shunter-{name}:{value}" for name, value in sorted(intent.tags.items()) if name in ("deployment", "job")]
    body: dict[str, Any] = {
        "name": intent.token,
        "region": intent.offer.region,
        "size": intent.offer.instance_type,
        "image": int(image) if image.isdecimal() else image or _own_image(intent.offer),
        "ssh_keys": list(settings.ssh_keys),
        "tags": ["shunter", *tags],
        "monitoring": False,
        "with_droplet_agent": False,
    }
    user_data = _user_data(intent)
    if user_data is not None:
        body["user_data"] = user_data
    return body


def _own_image(offer: Offer) -> str:
    if not offer.gpus:
        return _UBUNTU
    make = "amd" if (offer.gpu_model or "").startswith("MI") else "nvidia"
    return _IMAGES.get((make, offer.gpus), _IMAGES[make, 1])


def _user_data(intent: Intent) -> str | None:
    """Keys for root. A droplet without a key of the account has a password that asks to be changed at any login, also
    by key: it is told not to."""
    text = cloud_init(replace(intent, launch=Launch((), {})), largest_bytes=_LARGEST_USER_DATA)
    if text is None or intent.user_data is not None:
        return text
    head, _, config = text.partition("\n")
    more = {"disable_root": False, "ssh_pwauth": False, "runcmd": [["sh", "-c", _KEEP_LOGIN]]}
    return f"{head}\n{json.dumps({**json.loads(config), **more}, sort_keys=True)}\n"


_KEEP_LOGIN: Final = 'chage -M -1 -d "$(date +%F)" root'


def _view(droplet: Fields) -> NodeView:
    status = droplet.text("status")
    condition, reason = _CONDITIONS.get(status, (NodeCondition.UNKNOWN, status))
    addresses = _addresses(droplet.inside("networks"))
    if condition is NodeCondition.RUNNING and "public" not in addresses:
        condition, reason = NodeCondition.PENDING, "it has no public address yet"
    size = droplet.inside("size")
    return NodeView(
        handle=droplet.text("id"),
        token=token_of(droplet.text("name", "-")),
        condition=condition,
        reason=reason,
        addresses=addresses,
        billed_usd_per_hour=size.number("price_hourly") if "price_hourly" in size else None,
        ssh=SshEndpoint(addresses["public"], 22, "root") if "public" in addresses else None,
    )


def _addresses(networks: Fields) -> dict[str, str]:
    listed = networks.items("v4") if "v4" in networks else []
    found = {one.text("type"): one.text("ip_address") for one in reversed(listed)}
    return {kind: address for kind, address in found.items() if kind in ("public", "private")}


def _after(view: NodeView, actions: Sequence[Fields]) -> NodeView:
    """A new droplet as its actions show it: one whose creation failed stays new for ever."""
    failed = any(action.text("type") == "create" and action.text("status") == "errored" for action in actions)
    if not failed:
        return view
    return replace(
        view, condition=NodeCondition.FAILED, reason="the vendor could not make it: no capacity, or its image"
    )


def _words_of(body: Any, text: str) -> tuple[str, str]:
    """`{"id", "message", "request_id"}`."""
    if not isinstance(body, Mapping):
        return "", text[:300]
    return str(body.get("id") or ""), str(body.get("message") or "")
