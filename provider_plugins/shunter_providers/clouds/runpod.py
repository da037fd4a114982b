"""RunPod: GPU and CPU containers ("pods") over its REST API v2.

The API has no idempotency key, no tags and no spot capacity; a pod is known by its name. Its keys name no account.
Refusals for want of capacity are told from others by words alone, and the vendor's advice for any 400 is to try the
next candidate: none of them ends a job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from shunter_providers.cloud_kit.bearer import bearer
from shunter_providers.cloud_kit.boot import container_environment, container_script
from shunter_providers.cloud_kit.faults import Row
from shunter_providers.cloud_kit.naming import token_of
from shunter_providers.cloud_kit.options import read_options
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.cloud_kit.rest import RestCloud
from shunter_providers.cloud_kit.settings import BaseUrl, TellingSettings
from shunter_providers.cloud_kit.together import all_of
from shunter_providers.contract import (
    Availability,
    Capabilities,
    Fault,
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
from shunter_providers.gpu_names import gpu_model
from shunter_providers.plugin_settings import Variables, read_settings

_PACING: Final = (Rate(60, 60.0),)
_START: Final = """\
sh -c '
if [ -x /start.sh ]; then exec /start.sh; fi
if [ -n "$PUBLIC_KEY" ]; then
  mkdir -p ~/.ssh /run/sshd && printf "%s\\n" "$PUBLIC_KEY" >> ~/.ssh/authorized_keys && chmod -R go= ~/.ssh
  command -v sshd || { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y openssh-server; }
  ssh-keygen -A
  "$(command -v sshd)"
fi
exec sleep infinity'"""
"""RunPod's own images start sshd in `/start.sh`; in others we do, as the vendor's pages say."""


class RunpodSettings(TellingSettings):
    """Settings of the `runpod` plugin."""

    told_by: ClassVar[str] = "launch"

    api_key: Annotated[SecretStr, Variables("RUNPOD_API_KEY")]
    """A key with the right to read and write pods."""
    base_url: BaseUrl = "https://api.runpod.io/v2"
    account: str = ""
    """What to call the account, since the API does not tell. Empty: a digest of the key."""
    cloud: Literal["SECURE", "COMMUNITY"] = "SECURE"
    """`COMMUNITY` pods stand with strangers, and nobody says where."""
    image: str = Field(default="runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404", min_length=1)
    """For jobs that name none."""
    disk_gib: int = Field(default=100, ge=1)
    """Container disk of a pod."""


class RunpodOptions(BaseModel):
    """What a job may say in `placement.options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    disk_gib: int | None = Field(default=None, ge=1)
    min_cuda_version: Annotated[str, Field(pattern=r"^\d+\.\d+$")] | None = None


class RunpodProvider(RestCloud):
    """Pods of one account."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        bootstrap="ssh",
        idempotency="search_only",
        kinds=("container",),
        price_source="live",
        fabric="none",
        pacing=_PACING,
        options=tuple(RunpodOptions.model_fields),
        self_stop=SelfStop.STOPS_COMPUTE,
        power_off="[ ! -r /etc/rp_environment ] || . /etc/rp_environment; "
        "runpodctl stop pod {handle} || runpodctl pod stop {handle}",
        visibility_delay_s=30.0,
        readiness_deadline_s=1200.0,  # large images are pulled for that long, and then never
        create_timeout_s=60.0,
        runs_images=True,
    )
    handle_pattern = r"[a-z0-9]{4,40}"

    def __init__(self, instance: Instance) -> None:
        settings = self._settings = read_settings(instance, RunpodSettings)
        key = settings.api_key.get_secret_value()
        api = bearer(settings, self.capabilities, _FAULTS, _words_of)
        super().__init__(instance, api, credential=key, account=settings.account, times=settings)

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """GPU pods of 1 to 8 GPUs, and CPU pods."""
        asked = [self._catalog("gpus", count=count) for count in _COUNTS]
        *gpus, cpus = await all_of([*asked, self._catalog("cpus")])
        cloud, disk = self._settings.cloud, self._settings.disk_gib
        found = [
            offer
            for count, kinds in zip(_COUNTS, gpus, strict=True)
            for kind in kinds
            for offer in _readable(_gpu_offers(kind, count, cloud, disk))
        ]
        if cloud == "SECURE":
            found += [offer for kind in cpus for offer in _readable(_cpu_offers(kind, disk))]
        return found

    async def _catalog(self, what: str, **params: Any) -> list[Fields]:
        asked = {"include": "AVAILABILITY", "product": "POD", **params}
        if what == "gpus":
            asked["cloud"] = self._settings.cloud
        return (await self.http.fields("GET", f"/catalog/{what}", params=asked)).items(what)

    async def _order(self, intent: Intent) -> str:
        options = read_options(intent, RunpodOptions, self.instance.name)
        body = _pod(intent, self._settings, options)
        return (await self.http.fields("POST", "/pods", json=body, creates=True)).text("id")

    async def _look(self, handle: str) -> NodeView:
        return _view(await self.http.fields("GET", f"/pods/{handle}"))

    async def _list(self) -> Sequence[NodeView]:
        """Pods of clusters are left out of listings unless they are asked for."""
        answer = await self.http.fields("GET", "/pods", params={"includeClusterPods": "true"})
        return [_view(pod) for pod in answer.items("pods")]

    async def _end(self, handle: str) -> None:
        await self.http.ask("DELETE", f"/pods/{handle}")


# Pure from here on: the vendor's words to ours.

_COUNTS: Final = (1, 2, 4, 8)
_CPU_COUNTS: Final = (2, 4, 8, 16, 32)
_DISK_USD_PER_GIB_HOUR: Final = 0.10 / 730
"""Container disk of a running pod, 0.10 USD a GB and month by the vendor's price page."""

# fmt: off
_FAULTS: Final = (
    # Capacity has no code of its own, and every other 400 is for the next candidate too, as the vendor says.
    Row(400, r"instances? available|resources to deploy|could not be placed|capacity|out of stock",
        Fault.NO_CAPACITY, Scope.OFFER),
    Row(400, r"quota|limit (of|reached|exceeded)|spend(ing)? limit", Fault.QUOTA, Scope.ACCOUNT),
    Row(400, "", Fault.NO_CAPACITY, Scope.OFFER),
    Row(403, r"pool|gpu|instance type|machine", Fault.QUOTA, Scope.OFFER),
    Row(422, "", Fault.INVALID, Scope.OFFER),
)
_CONDITIONS: Final[Mapping[str, NodeCondition]] = {
    "PROVISIONING": NodeCondition.PENDING,
    "STARTING":     NodeCondition.PENDING,
    "RUNNING":      NodeCondition.RUNNING,
    "EXITED":       NodeCondition.STOPPED,
    "ERROR":        NodeCondition.FAILED,
    "TERMINATED":   NodeCondition.GONE,
}
_AVAILABILITIES: Final[Mapping[str, Availability]] = {
    "NONE":   Availability.NONE,
    "LOW":    Availability.AVAILABLE,
    "MEDIUM": Availability.AVAILABLE,
    "HIGH":   Availability.AVAILABLE,
}
# fmt: on
_REASONS: Final[Mapping[NodeCondition, str]] = {
    NodeCondition.STOPPED: "the container ended: its program stopped, or the host took it away",
    NodeCondition.FAILED: "the pod failed; most often its image cannot be pulled",
}


def jurisdiction_of(data_center: str) -> str:
    """The country of a data center by its name: `US-TX-3`, `CA-MTL-1`, `EU-RO-1`, `EUR-IS-2`, `AP-JP-1`."""
    parts = data_center.split("-")
    if parts[0] in ("US", "CA"):
        return parts[0]
    continent = parts[0] in ("EU", "EUR", "AP", "AS", "OC", "SEA", "SA", "ME", "AF")
    return parts[1] if continent and len(parts) > 2 and re.fullmatch("[A-Z]{2}", parts[1]) else ""


def _gpu_offers(kind: Fields, count: int, cloud: str, disk_gib: int) -> Iterator[Offer]:
    tier = cloud.lower()
    if not kind.flag(tier) or kind.inside("maxCount").count(tier, 0) < count:
        return
    usd = count * kind.inside("price").money(tier)
    for region, availability in _places(kind, cloud):
        yield Offer(
            instance_type=f"{count}x {kind.text('id')}",
            region=region,
            jurisdiction=jurisdiction_of(region),
            price=_price(usd, disk_gib),
            gpu_model=gpu_model(kind.text("id")),
            gpus=count,
            gpu_memory_gib=kind.number("memory"),
            disk_gib=disk_gib,
            kind="container",
            availability=availability,
            interconnect="none",
        )


def _cpu_offers(kind: Fields, disk_gib: int) -> Iterator[Offer]:
    limits, usd = kind.inside("vcpu"), kind.inside("price").money("securePerVcpu")
    for region, availability in _places(kind, "SECURE"):
        for count in _CPU_COUNTS:
            if not limits.count("min") <= count <= limits.count("max"):
                continue
            yield Offer(
                instance_type=f"cpu {kind.text('id')} {count}",
                region=region,
                jurisdiction=jurisdiction_of(region),
                price=_price(count * usd, disk_gib),
                cpus=count,
                cpu_slots=count,
                memory_gib=count * kind.number("ramGbPerVcpu"),
                disk_gib=disk_gib,
                kind="container",
                availability=availability,
                interconnect="none",
            )


def _places(kind: Fields, cloud: str) -> Iterator[tuple[str, Availability]]:
    """Data centers; community pods stand anywhere, and so do kinds that are nowhere now."""
    centers = kind.items("dataCenters") if cloud == "SECURE" and "dataCenters" in kind else []
    for center in centers:
        yield center.text("id"), _AVAILABILITIES.get(center.text("availability"), Availability.UNKNOWN)
    if not centers:
        yield cloud, _AVAILABILITIES.get(kind.text("availability", "UNKNOWN"), Availability.UNKNOWN)


def _price(usd_per_hour: float, disk_gib: int) -> Price:
    return Price(gpu_usd_per_hour=round(usd_per_hour, 6), disk_usd_per_hour=round(disk_gib * _DISK_USD_PER_GIB_HOUR, 6))


def _readable(offers: Iterator[Offer]) -> list[Offer]:
    """One kind that the vendor garbles must not hide the others."""
    try:
        return list(offers)
    except ProviderError:
        return []


def _pod(intent: Intent, settings: RunpodSettings, options: RunpodOptions) -> dict[str, Any]:
    offer = intent.offer
    body: dict[str, Any] = {
        "name": intent.token,
        "image": intent.image or settings.image,
        "cloud": settings.cloud,
        "disk": options.disk_gib or settings.disk_gib,
        "env": {
            **container_environment(intent),
            "SHUNTER_BOOT": container_script(intent, then=_START, handle_from="RUNPOD_POD_ID"),
        },
        "args": "sh -c 'eval \"$SHUNTER_BOOT\"'",
        "ports": ["22/tcp"],
        "startSsh": intent.public_key is not None,
    }
    if offer.region not in ("SECURE", "COMMUNITY"):
        body["dataCenterIds"] = [offer.region]
    if offer.gpus:
        body["gpu"] = {"id": offer.instance_type.partition("x ")[2], "count": offer.gpus}
        if options.min_cuda_version:
            body["gpu"]["minCudaVersion"] = options.min_cuda_version
    else:
        body["cpu"] = {"id": offer.instance_type.split()[1], "vcpuCount": offer.cpus}
    return body


def _view(pod: Fields) -> NodeView:
    condition = _CONDITIONS.get(pod.text("status"), NodeCondition.UNKNOWN)
    reason = _REASONS.get(condition, "")
    if condition is NodeCondition.RUNNING and "runtime" not in pod:
        condition, reason = NodeCondition.PENDING, "the image is being pulled"
    ssh = pod.inside("ssh")
    direct = ssh.inside("direct") if "direct" in ssh else None
    return NodeView(
        handle=pod.text("id"),
        token=token_of(pod.text("name", "-")),
        condition=condition,
        reason=reason,
        addresses={"public": direct.text("host")} if direct is not None else {},
        billed_usd_per_hour=pod.number("cost") if "cost" in pod else None,
        ssh=SshEndpoint(direct.text("host"), direct.count("port"), direct.text("username")) if direct else None,
    )


def _words_of(body: Any, text: str) -> tuple[str, str]:
    """RFC 9457: `title`, `detail`, and each violation in `errors`."""
    if not isinstance(body, Mapping):
        return "", text[:300]
    errors = body.get("errors")
    listed = "; ".join(str(one) for one in errors) if isinstance(errors, list) else ""
    return str(body.get("title", "")), " ".join(part for part in (str(body.get("detail", "")), listed) if part)
