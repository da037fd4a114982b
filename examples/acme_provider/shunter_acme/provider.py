"""The `acme` plugin: settings, the class that does the calls, then the vendor's words to Shunter's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import SecretStr
from shunter_providers.cloud_kit.boot import cloud_init
from shunter_providers.cloud_kit.faults import Row
from shunter_providers.cloud_kit.http import Api
from shunter_providers.cloud_kit.naming import token_of
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.cloud_kit.rest import RestCloud
from shunter_providers.cloud_kit.settings import BaseUrl, CloudSettings
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
    Rate,
    Scope,
    SelfStop,
    SshEndpoint,
)
from shunter_providers.gpu_names import gpu_model
from shunter_providers.plugin_settings import Variables, read_settings

_PACING = (Rate(300, 60.0),)


class AcmeSettings(CloudSettings):
    """What stands in `[providers.acme.settings]`."""

    api_key: Annotated[SecretStr, Variables("ACME_API_KEY")]
    base_url: BaseUrl = "https://api.acme.example/v1"


class AcmeProvider(RestCloud):
    """Servers of one account."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        bootstrap="user_data",
        idempotency="search_only",  # a second create call with the same name makes a twin
        kinds=("vm",),
        price_source="live",
        pacing=_PACING,
        self_stop=SelfStop.NONE,
        visibility_delay_s=10.0,
        readiness_deadline_s=600.0,
    )
    handle_pattern = r"srv-[0-9a-f]{8}"

    def __init__(self, instance: Instance) -> None:
        settings = read_settings(instance, AcmeSettings)
        key = settings.api_key.get_secret_value()
        api = Api(
            base_url=settings.base_url,
            faults=_FAULTS,
            pacing=_PACING,
            headers={"Authorization": f"Bearer {key}"},
            timeout_s=settings.timeout_s,
        )
        super().__init__(instance, api, credential=key, times=settings)

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        plans = await self.http.fields("GET", "/plans")
        return [_offer(plan, region) for plan in plans.items("plans") for region in plan.items("regions")]

    async def _order(self, intent: Intent) -> str:
        server = await self.http.fields("POST", "/servers", json=_body(intent), creates=True)
        return server.text("id")

    async def _look(self, handle: str) -> NodeView:
        return _view(await self.http.fields("GET", f"/servers/{handle}"))

    async def _list(self) -> Sequence[NodeView]:
        return [_view(server) for server in (await self.http.fields("GET", "/servers")).items("servers")]

    async def _end(self, handle: str) -> None:
        await self.http.ask("DELETE", f"/servers/{handle}")


# Pure from here on: the vendor's words in, Shunter's out.

_FAULTS = (
    Row(409, "sold out", Fault.NO_CAPACITY, Scope.REGION),
    Row(403, "quota", Fault.QUOTA, Scope.ACCOUNT),
)
_JURISDICTIONS: Mapping[str, str] = {"fra": "DE", "nyc": "US"}
_CONDITIONS: Mapping[str, NodeCondition] = {
    "creating": NodeCondition.PENDING,
    "active": NodeCondition.RUNNING,
    "stopped": NodeCondition.STOPPED,
    "deleting": NodeCondition.STOPPED,
}


def _offer(plan: Fields, region: Fields) -> Offer:
    gpus = plan.count("gpus")
    return Offer(
        instance_type=plan.text("name"),
        region=region.text("name"),
        jurisdiction=_JURISDICTIONS.get(region.text("name"), ""),
        price=Price(gpu_usd_per_hour=plan.money("usd_per_hour")),
        gpu_model=gpu_model(plan.text("gpu")) if gpus else None,
        gpus=gpus,
        gpu_memory_gib=plan.number("gpu_memory_gb", 0),
        cpus=plan.count("cpus"),
        cpu_slots=0 if gpus else plan.count("cpus"),
        memory_gib=plan.number("memory_gb"),
        availability=Availability.AVAILABLE if region.count("free") else Availability.NONE,
        count=region.count("free"),
    )


def _body(intent: Intent) -> dict[str, Any]:
    return {
        "name": intent.token,
        "plan": intent.offer.instance_type,
        "region": intent.offer.region,
        "user_data": cloud_init(intent) or "",
    }


def _view(server: Fields) -> NodeView:
    state, address = server.text("state"), server.text("address", "-")
    return NodeView(
        handle=server.text("id"),
        token=token_of(server.text("name")),
        condition=_CONDITIONS.get(state, NodeCondition.UNKNOWN),
        reason="" if state in ("creating", "active") else f"Acme says: {state}",
        addresses={"public": address} if address != "-" else {},
        billed_usd_per_hour=server.number("usd_per_hour"),
        ssh=SshEndpoint(address, 22, "root") if address != "-" else None,
    )
