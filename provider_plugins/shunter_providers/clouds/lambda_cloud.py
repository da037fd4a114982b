"""Lambda: GPU virtual machines over its REST API 1.8.

The API has no idempotency key; an instance is known by its name. A launch wants exactly one key that is registered in
the account: ours is registered under the node's token, and goes with the node. Its keys name no account.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, SecretStr

from shunter_providers.cloud_kit.bearer import bearer
from shunter_providers.cloud_kit.boot import cloud_init
from shunter_providers.cloud_kit.faults import Row
from shunter_providers.cloud_kit.naming import token_of
from shunter_providers.cloud_kit.options import read_options
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.cloud_kit.rest import RestCloud
from shunter_providers.cloud_kit.settings import BaseUrl, TellingSettings
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
from shunter_providers.gpu_names import gpu_model, memory_gib
from shunter_providers.jurisdictions import of_region
from shunter_providers.plugin_settings import Variables, read_settings

_PACING: Final = (Rate(1, 12.0, "create"), Rate(1, 1.0))
_USER: Final = "ubuntu"


class LambdaSettings(TellingSettings):
    """Settings of the `lambda` plugin."""

    api_key: Annotated[SecretStr, Variables("LAMBDA_API_KEY", "LAMBDA_CLOUD_API_KEY")]
    """A Cloud API key."""
    base_url: BaseUrl = "https://cloud.lambda.ai/api/v1"
    account: str = ""
    """What to call the account, since the API does not tell. Empty: a digest of the key."""
    ssh_key_name: str = ""
    """A key of the account for nodes of jobs without a key of their own. Empty: the account's first."""
    image_family: str = ""
    """Empty: the vendor's default image."""


class LambdaOptions(BaseModel):
    """What a job may say in `placement.options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image_family: str | None = None
    file_system_names: tuple[str, ...] = ()
    """Persistent storage of the account, in the same region, to mount."""


class LambdaProvider(RestCloud):
    """Instances of one account."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        bootstrap="ssh",
        idempotency="search_only",
        kinds=("vm",),
        runs_images=True,
        runs_images_by_docker=True,
        price_source="live",
        fabric="none",
        pacing=_PACING,
        options=tuple(LambdaOptions.model_fields),
        self_stop=SelfStop.NONE,
        visibility_delay_s=60.0,
        readiness_deadline_s=1200.0,
        scan_interval_s=20.0,
        create_timeout_s=90.0,
    )
    handle_pattern = r"[0-9a-f]{32}"

    def __init__(self, instance: Instance) -> None:
        settings = self._settings = read_settings(instance, LambdaSettings)
        key = settings.api_key.get_secret_value()
        api = bearer(settings, self.capabilities, _FAULTS, _words_of)
        super().__init__(instance, api, credential=key, account=settings.account, times=settings)

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """Every type: where it can be had now, and as taken where it cannot."""
        answer = await self.http.fields("GET", "/instance-types")
        return [offer for _, kind in answer.inside("data").named() for offer in _readable(_offers(kind))]

    async def _order(self, intent: Intent) -> str:
        options = read_options(intent, LambdaOptions, self.instance.name)
        body = _launch(intent, await self._key_name(intent), options.image_family or self._settings.image_family)
        if options.file_system_names:
            body["file_system_names"] = list(options.file_system_names)
        answer = await self.http.fields("POST", "/instance-operations/launch", json=body, creates=True)
        ids = answer.inside("data").texts("instance_ids")
        if len(ids) != 1:
            detail = f"the launch answered {len(ids)} instances"
            raise ProviderError(Fault.AMBIGUOUS, detail, may_have_created=True)
        return ids[0]

    async def _key_name(self, intent: Intent) -> str:
        """The one key that a launch names; the job's own is registered under the node's token."""
        if intent.public_key is not None:
            await self._register(intent.token, intent.public_key)
            return intent.token
        if self._settings.ssh_key_name:
            return self._settings.ssh_key_name
        keys = (await self.http.fields("GET", "/ssh-keys")).items("data")
        if not keys:
            name = f"providers.{self.instance.name}"
            detail = f"{name}: a launch names an SSH key, and the account has none: add one, or set ssh_key_name"
            raise ProviderError(Fault.INVALID, detail, scope=Scope.ACCOUNT)
        return keys[0].text("name")

    async def _register(self, name: str, public_key: str) -> None:
        known = [key.text("name") for key in (await self.http.fields("GET", "/ssh-keys")).items("data")]
        if name not in known:
            await self.http.ask("POST", "/ssh-keys", json={"name": name, "public_key": public_key})

    async def _look(self, handle: str) -> NodeView:
        return _view((await self.http.fields("GET", f"/instances/{handle}")).inside("data"))

    async def _list(self) -> Sequence[NodeView]:
        return [_view(instance) for instance in (await self.http.fields("GET", "/instances")).items("data")]

    async def _end(self, handle: str) -> None:
        """Terminate, and forget the node's own key: the second is a left-over that nothing else would sweep."""
        view = await self._look(handle)
        if view.condition is NodeCondition.GONE:
            return
        if view.reason != _ENDING:
            body = {"instance_ids": [handle]}
            await self.http.ask("POST", "/instance-operations/terminate", json=body)
        if view.token is not None:
            keys = (await self.http.fields("GET", "/ssh-keys")).items("data")
            for key in keys:
                if key.text("name") == view.token:
                    await self.http.ask("DELETE", f"/ssh-keys/{key.text('id')}")


# Pure from here on: the vendor's words to ours.

_ENDING: Final = "it is being terminated"

# fmt: off
_REGIONS: Final[Mapping[str, str]] = {
    "us-*":             "US",
    "europe-central-1": "DE",
    "europe-south-1":   "IT",
    "asia-northeast-1": "JP",
    "asia-northeast-2": "JP",
    "asia-south-1":     "IN",
    "me-west-1":        "IL",
    "australia-east-1": "AU",
}
_HOME_REGIONS: Final = ("us-east-1", "us-west-1", "us-south-1", "us-midwest-1", "europe-central-1", "asia-northeast-1")
"""Where types that are taken everywhere are said to be; the API names the regions of free ones only."""
_FAULTS: Final = (
    Row(None, r"insufficient-capacity",                              Fault.NO_CAPACITY, Scope.OFFER),
    Row(None, r"quota-exceeded",                                     Fault.QUOTA,       Scope.ACCOUNT),
    Row(None, r"global/(account-inactive|invalid-address)",          Fault.PAYMENT,     Scope.ACCOUNT),
    Row(None, r"global/invalid-api-key",                             Fault.AUTH,        Scope.ACCOUNT),
    Row(None, r"global/object-does-not-exist",                       Fault.NOT_FOUND,   Scope.OFFER),
    Row(None, r"file-system-in-wrong-region|global/invalid-",        Fault.INVALID,     Scope.OFFER),
    Row(None, r"global/duplicate",                                   Fault.CONFLICT,    Scope.OFFER),
    Row(None, r"^provider/|global/internal-error",                   Fault.TRANSIENT,   Scope.PROVIDER),
)
_CONDITIONS: Final[Mapping[str, tuple[NodeCondition, str]]] = {
    "booting":     (NodeCondition.PENDING, ""),
    "active":      (NodeCondition.RUNNING, ""),
    "unhealthy":   (NodeCondition.FAILED,  "the vendor calls it unhealthy"),
    "preempted":   (NodeCondition.FAILED,  "the vendor took it away (preempted)"),
    "terminating": (NodeCondition.STOPPED, _ENDING),
    "terminated":  (NodeCondition.GONE,    ""),
}
# fmt: on


def jurisdiction_of(region: str) -> str:
    """The country of a region; empty for one that is new."""
    return of_region(region, _REGIONS)


def _offers(kind: Fields) -> Iterator[Offer]:
    shape = kind.inside("instance_type")
    specs = shape.inside("specs")
    described = shape.text("gpu_description", "N/A")
    gpus = specs.count("gpus")
    free = [region.text("name") for region in kind.items("regions_with_capacity_available")]
    for region in free or _HOME_REGIONS:
        yield Offer(
            instance_type=shape.text("name"),
            region=region,
            jurisdiction=jurisdiction_of(region),
            price=Price(gpu_usd_per_hour=shape.money("price_cents_per_hour") / 100),
            gpu_model=gpu_model(described.partition("(")[0]) if gpus else None,
            gpus=gpus,
            gpu_memory_gib=(memory_gib(described) or 0.0) if gpus else 0.0,
            cpus=specs.count("vcpus"),
            cpu_slots=0 if gpus else specs.count("vcpus"),
            memory_gib=specs.number("memory_gib"),
            disk_gib=specs.number("storage_gib"),
            kind="vm",
            availability=Availability.AVAILABLE if free else Availability.NONE,
        )


def _readable(offers: Iterator[Offer]) -> list[Offer]:
    """One type that the vendor garbles must not hide the others."""
    try:
        return list(offers)
    except ProviderError:
        return []


def _launch(intent: Intent, key_name: str, image_family: str) -> dict[str, Any]:
    tags = {f"shunter-{name}": value for name, value in intent.tags.items() if name in ("deployment", "job")}
    body: dict[str, Any] = {
        "region_name": intent.offer.region,
        "instance_type_name": intent.offer.instance_type,
        "ssh_key_names": [key_name],
        "name": intent.token,
        "hostname": intent.token,
        "tags": [{"key": key, "value": value} for key, value in sorted(tags.items())],
    }
    user_data = cloud_init(intent, largest_bytes=1_000_000)
    if user_data is not None:
        body["user_data"] = user_data
    if image_family:
        body["image"] = {"family": image_family}
    return body


def _view(instance: Fields) -> NodeView:
    condition, reason = _CONDITIONS.get(instance.text("status"), (NodeCondition.UNKNOWN, instance.text("status")))
    public = instance.text("ip", "-")
    addresses = {"public": public, "private": instance.text("private_ip", "-")}
    kind = instance.inside("instance_type")
    return NodeView(
        handle=instance.text("id"),
        token=token_of(instance.text("name", "-")),
        condition=condition,
        reason=reason,
        addresses={name: address for name, address in addresses.items() if address != "-"},
        billed_usd_per_hour=kind.number("price_cents_per_hour") / 100 if "price_cents_per_hour" in kind else None,
        ssh=SshEndpoint(public, 22, _USER) if public != "-" else None,
    )


def _words_of(body: Any, text: str) -> tuple[str, str]:
    """`{"error": {"code", "message", "suggestion"}}`."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        return "", text[:300]
    said = (str(error.get(name) or "") for name in ("message", "suggestion"))
    return str(error.get("code", "")), " ".join(part for part in said if part)
