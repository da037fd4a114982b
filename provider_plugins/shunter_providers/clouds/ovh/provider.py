"""OVHcloud Public Cloud: nodes by OpenStack over libcloud, prices by the vendor's public price list.

Nova makes twins, so that a node is known by its name. What has no room for a node shows only at the node, as an error
that keeps its quota until the node is deleted. Prices are in the currency of the subsidiary: without a rate to USD
nothing is offered that is billed in another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ClassVar, Final, TypeVar

from shunter_providers.cloud_kit.http import Api
from shunter_providers.cloud_kit.naming import looks_like
from shunter_providers.cloud_kit.options import read_options
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.cloud_kit.rest import RestCloud
from shunter_providers.cloud_kit.together import all_of
from shunter_providers.clouds.ovh.openstack import Account, Grants, OpenStack
from shunter_providers.clouds.ovh.servers import QUOTAS, offers_of, prices_of, server_of, view_of
from shunter_providers.clouds.ovh.settings import OvhOptions, OvhSettings
from shunter_providers.contract import (
    Capabilities,
    Fault,
    Identity,
    Instance,
    Intent,
    NodeView,
    Offer,
    OfferQuery,
    Price,
    ProviderError,
    Scope,
    SelfStop,
)
from shunter_providers.plugin_settings import read_settings

_T = TypeVar("_T")

_AT_ONCE: Final = 8
_CALL_WITHIN_S: Final = 25.0
_CONSOLE_LINES: Final = 400
_PRICES_FOR_S: Final = 3600.0
_PRICES_AGAIN_IN_S: Final = 60.0


class OvhProvider(RestCloud):
    """Servers of one project, in all of its regions."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        bootstrap="ssh",
        idempotency="search_only",
        kinds=("vm",),
        runs_images=True,
        runs_images_by_docker=True,
        price_source="mixed",
        fabric="ethernet",
        options=tuple(OvhOptions.model_fields),
        self_stop=SelfStop.NONE,
        visibility_delay_s=30.0,
        readiness_deadline_s=900.0,
        scan_interval_s=30.0,
        create_timeout_s=60.0,
        console=True,
    )
    handle_pattern = r"[A-Z0-9-]+/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"

    def __init__(self, instance: Instance) -> None:
        settings = self._settings = read_settings(instance, OvhSettings)
        password = settings.password.get_secret_value()
        prices = Api(base_url=settings.price_url, timeout_s=settings.timeout_s)
        credential = f"{settings.user} {password}"
        super().__init__(instance, prices, credential=credential, account=settings.project_id, times=settings)
        self._openstack = Account(
            auth_url=settings.auth_url.removesuffix("/v3"),
            user=settings.user,
            password=password,
            project_id=settings.project_id,
            user_domain=settings.user_domain,
            timeout_s=settings.timeout_s,
        )
        self._grants = Grants()
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="OvhProvider")
        self._prices: tuple[float, Mapping[str, Price]] = (-_PRICES_FOR_S, {})

    async def whoami(self) -> Identity:
        """See the contract; the limits are those of the first region."""
        region = (await self._regions())[0]
        limits = await self._call(lambda cloud: _limits(cloud, region))
        return Identity(self._settings.project_id, dict(limits))

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """Every flavor with a known price, by region."""
        regions = await self._regions()
        read = [self._call(partial(_market, region=region)) for region in regions]
        markets = await asyncio.gather(*read, return_exceptions=True)
        errors = [one for one in markets if isinstance(one, BaseException)]
        for error in errors:  # one region that is down hides no other
            if len(errors) == len(markets) or not isinstance(error, ProviderError) or error.fault is Fault.AUTH:
                raise error
        prices = await self._price_list()
        return [
            offer
            for market in markets
            if not isinstance(market, BaseException)
            for offer in offers_of(market, prices, self._settings)
        ]

    async def console(self, handle: str) -> str:
        """See the contract."""
        if not looks_like(handle, self.handle_pattern):
            return ""
        region, _, server = handle.partition("/")
        asked = {"os-getConsoleOutput": {"length": _CONSOLE_LINES}}
        path = f"/servers/{server}/action"
        try:
            told = await self._call(lambda cloud: cloud.ask(("compute", region), "POST", path, body=asked))
        except ProviderError as exc:
            if exc.fault not in (Fault.NOT_FOUND, Fault.CONFLICT):  # it is gone, or no host has it yet
                raise
            return ""
        return told.text("output", "")

    async def close(self) -> None:
        """See the contract."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        await super().close()

    async def _order(self, intent: Intent) -> str:
        options = read_options(intent, OvhOptions, self.instance.name)
        settings, region = self._settings, intent.offer.region
        image = options.image or (settings.gpu_image if intent.offer.gpus else settings.image)

        def order(cloud: OpenStack) -> str:
            networks = [_id_of(cloud, ("network", region), "/v2.0/networks", one) for one in settings.networks]
            found = {
                "flavorRef": _flavor(cloud, region, intent.offer.instance_type),
                "imageRef": _id_of(cloud, ("image", region), "/v2/images", image),
                "networks": [{"uuid": one} for one in networks],
            }
            body = {"server": {**found, **server_of(intent)}}
            answer = cloud.ask(("compute", region), "POST", "/servers", body=body)
            return f"{region}/{answer.inside('server').text('id')}"

        return await self._call(order, creates=True)

    async def _look(self, handle: str) -> NodeView:
        region, _, server = handle.partition("/")
        found = await self._call(lambda cloud: cloud.ask(("compute", region), "GET", f"/servers/{server}"))
        return view_of(found.inside("server"), region, self._settings)

    async def _list(self) -> Sequence[NodeView]:
        read = [self._call(partial(_servers, region=region)) for region in await self._regions()]
        found = await all_of(read)
        return [view_of(server, region, self._settings) for servers in found for region, server in servers]

    async def _end(self, handle: str) -> None:
        region, _, server = handle.partition("/")
        try:
            await self._call(lambda cloud: cloud.ask(("compute", region), "DELETE", f"/servers/{server}"))
        except ProviderError as exc:
            if not (exc.fault is Fault.TRANSIENT and exc.scope is Scope.OFFER):  # it is being deleted already
                raise

    async def _regions(self) -> Sequence[str]:
        regions: Sequence[str] = self._settings.regions
        if not regions:
            regions = await self._call(lambda cloud: cloud.grant().regions())
        if not regions:
            detail = f"the project {self._settings.project_id} has no region: activate one in the vendor's console"
            raise ProviderError(Fault.INVALID, detail, scope=Scope.ACCOUNT)
        return regions

    async def _price_list(self) -> Mapping[str, Price]:
        """Live prices by flavor; the last that could be read where there are none, and then the catalogue's."""
        read_at, prices = self._prices
        if time.monotonic() - read_at < _PRICES_FOR_S:
            return prices
        try:
            answer = await self.http.fields(
                "GET", "/order/catalog/public/cloud", params={"ovhSubsidiary": self._settings.subsidiary}
            )
            prices = dict(prices_of(answer, self._settings))
        except ProviderError:
            self._prices = (time.monotonic() - _PRICES_FOR_S + _PRICES_AGAIN_IN_S, prices)
            return prices
        self._prices = (time.monotonic(), prices)
        return prices

    async def _call(self, work: Callable[[OpenStack], _T], *, creates: bool = False) -> _T:
        """In a thread, with connections of its own; given up where it takes too long."""

        def run() -> _T:
            cloud = OpenStack(self._openstack, self._grants)
            try:
                return work(cloud)
            except ProviderError:
                raise
            except Exception as exc:  # libcloud raises many kinds, of which none says more
                fault = Fault.AMBIGUOUS if creates else Fault.TRANSIENT
                raise ProviderError(fault, f"{type(exc).__name__}: {exc}", may_have_created=creates) from exc
            finally:
                cloud.close()

        within_s = self.capabilities.create_timeout_s - 5 if creates else _CALL_WITHIN_S
        try:
            return await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(self._threads, run), within_s)
        except TimeoutError as exc:
            fault = Fault.AMBIGUOUS if creates else Fault.TRANSIENT
            raise ProviderError(fault, f"no answer within {within_s:.0f} s", may_have_created=creates) from exc


def _limits(cloud: OpenStack, region: str) -> Iterator[tuple[str, float]]:
    """What a project may have in a region."""
    found = cloud.ask(("compute", region), "GET", "/limits").inside("limits").inside("absolute")
    for name in (limit for pair in QUOTAS for limit in pair):
        limit = found.raw(name)
        if isinstance(limit, int) and limit >= 0:  # -1: none
            yield name, float(limit)


def _market(cloud: OpenStack, region: str) -> tuple[str, Sequence[Fields], Mapping[str, float]]:
    return region, cloud.all(region, "flavors"), dict(_limits(cloud, region))


def _servers(cloud: OpenStack, region: str) -> Sequence[tuple[str, Fields]]:
    """All that bear a name like ours."""
    return [(region, server) for server in cloud.all(region, "servers", name="^shn-")]


def _flavor(cloud: OpenStack, region: str, name: str) -> str:
    """The id of a flavor by its name."""
    for one in cloud.all(region, "flavors"):
        if one.text("name") == name:
            return one.text("id")
    raise ProviderError(Fault.NO_CAPACITY, f"{region} has no flavor {name!r}", scope=Scope.OFFER)


def _id_of(cloud: OpenStack, place: tuple[str, str], path: str, name: str) -> str:
    """The id of an image or network by its name."""
    kind = path.rpartition("/")[2]
    for one in cloud.ask(place, "GET", path, params={"name": name}).items(kind):
        if one.text("name") == name:
            return one.text("id")
    raise ProviderError(Fault.INVALID, f"{place[1]} has no {kind.removesuffix('s')} {name!r}", scope=Scope.OFFER)
