"""Hetzner Robot: dedicated servers with a GPU, over its webservice. Each costs a set-up fee that never comes back.

An order bears no name and no tag: ours are known by an SSH key of the account whose name is the node's token, and whose
private half nobody has. An order is worked on for minutes or days; till then it can be neither named nor cancelled.
Orders are listed for 30 days; after that a server is known by its name, which says token and order. The vendor tells
MD5 fingerprints of a server's host keys: the key that the server shows is held against them, and pinned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final

import asyncssh
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from shunter_providers.cloud_kit.faults import Row
from shunter_providers.cloud_kit.http import Api
from shunter_providers.cloud_kit.options import read_options
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.cloud_kit.rest import RestCloud
from shunter_providers.cloud_kit.settings import BaseUrl, CloudSettings
from shunter_providers.cloud_kit.together import all_of
from shunter_providers.clouds.hetzner_robot.words import (
    Order,
    Server,
    dists_of,
    known_by_name,
    offers_of,
    order_of,
    server_of,
    view_of,
)
from shunter_providers.contract import (
    Capabilities,
    Fault,
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
    SshEndpoint,
)
from shunter_providers.plugin_settings import Variables, read_settings

_PACING: Final = (Rate(180, 3600.0),)
_LOGIN: Final = "-login"
"""Ends the name of a job's own key in the account."""
_SCAN_WITHIN_S: Final = 5.0
_log = logging.getLogger(__name__)


class HetznerRobotSettings(CloudSettings):
    """Settings of the `hetzner-robot` plugin."""

    user: Annotated[str, Variables("HETZNER_ROBOT_USER")]
    """A webservice user, with ordering switched on. Three wrong passwords lock this machine out for ten minutes."""
    password: Annotated[SecretStr, Variables("HETZNER_ROBOT_PASSWORD")]
    """Its password."""
    base_url: BaseUrl = "https://robot-ws.your-server.de"
    usd_per_eur: float | None = Field(default=None, gt=0, lt=100)
    """Prices are in EUR: without a rate nothing is offered."""
    dist: str = Field(min_length=1)
    """The operating system to install, as the vendor names it. It must bring NVIDIA's driver: nothing here installs
    one, a server without is given back, and its set-up fee is lost."""
    ssh_port: int = Field(default=22, ge=1, le=65535)


class HetznerRobotOptions(BaseModel):
    """What a job may say in `placement.options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dist: str | None = Field(default=None, min_length=1)


class HetznerRobotProvider(RestCloud):
    """Servers of one account."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        bootstrap="ssh",
        idempotency="search_only",
        kinds=("metal",),
        runs_images=True,
        runs_images_by_docker=True,
        price_source="live",
        fabric="none",
        pacing=_PACING,
        options=tuple(HetznerRobotOptions.model_fields),
        spends_setup_fee=True,
        self_stop=SelfStop.NONE,
        visibility_delay_s=120.0,
        readiness_deadline_s=7200.0,
        scan_interval_s=120.0,
        create_timeout_s=60.0,
    )
    handle_pattern = r"B\d{8}(-\d+){1,3}"

    def __init__(self, instance: Instance) -> None:
        settings = self._settings = read_settings(instance, HetznerRobotSettings)
        password = settings.password.get_secret_value()
        api = Api(
            base_url=settings.base_url,
            faults=_FAULTS,
            pacing=_PACING,
            words_of=_words_of,
            auth=(settings.user, password),
            timeout_s=settings.timeout_s,
        )
        super().__init__(instance, api, credential=f"{settings.user}:{password}", account=settings.user, times=settings)
        self._host_keys: dict[str, str] = {}
        """By handle, once it was held against the vendor's fingerprints."""

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """Products with a known GPU, where the system to install is to be had."""
        rate = self._settings.usd_per_eur
        if rate is None:
            detail = f"providers.{self.instance.name}.settings.usd_per_eur is missing: prices are in EUR"
            raise ProviderError(Fault.INVALID, detail, scope=Scope.PROVIDER)
        products = await self._wrapped("/order/server/product", "product")
        dist = self._settings.dist
        offers = [offer for product in products for offer in offers_of(product, dist, rate)]
        if not offers and (known := dists_of(products)) and dist not in known:
            detail = f"providers.{self.instance.name}.settings.dist: {dist!r} is none of {', '.join(sorted(known))}"
            raise ProviderError(Fault.INVALID, detail, scope=Scope.PROVIDER)
        return offers

    async def _order(self, intent: Intent) -> str:
        options = read_options(intent, HetznerRobotOptions, self.instance.name)
        known = await self._wrapped("/key", "key", empty=True)
        marker = await self._marker(intent.token, known)
        keys = [marker]
        if intent.public_key is not None:
            keys.append(await self._login_key(intent.token, intent.public_key, known))
        form = {
            "product_id": intent.offer.instance_type,
            "location": intent.offer.region,
            "dist": options.dist or self._settings.dist,
            "lang": "en",
            "authorized_key[]": keys,
            "addon[]": ["primary_ipv4"],
        }
        try:
            answer = await self.http.fields("POST", "/order/server/transaction", form=form, creates=True)
        except ProviderError as exc:
            if not exc.may_have_created:
                await self._forget([marker])
            raise
        return answer.inside("transaction").text("id")

    async def _look(self, handle: str) -> NodeView:
        order = await self._order_behind(handle)
        server = await self._server(order)
        order = known_by_name(order, server)
        view = view_of(order, server)
        if view.condition is not NodeCondition.RUNNING or server is None:
            return view
        if server.name != order.server_name and order.token is not None:
            await self._name(order)
        return await self._reached(view, order, server)

    async def _list(self) -> Sequence[NodeView]:
        return [view for _, view in await self._nodes()]

    async def _end(self, handle: str) -> None:
        """Cancel at the first moment that the vendor allows; then forget the keys that nothing else needs."""
        order = await self._order_behind(handle)
        server = await self._server(order)
        if order.number is None and order.status != "cancelled":
            return  # the vendor cancels nothing that it still works on: asked again, until it does
        if server is not None and not server.cancelled:
            path = f"/server/{server.number}/cancellation"
            earliest = (await self.http.fields("GET", path)).inside("cancellation").text("earliest_cancellation_date")
            today = datetime.now(UTC).date().isoformat()
            await self.http.ask("POST", path, form={"cancellation_date": "now" if earliest <= today else earliest})
            server = await self._server(order)
        if server is None:
            await self._sweep(order)

    async def _order_behind(self, handle: str) -> Order:
        """One that the vendor has forgotten is known by its server's name, and is not gone."""
        try:
            answer = await self.http.fields("GET", f"/order/server/transaction/{handle}")
        except ProviderError as exc:
            servers = await self._wrapped("/server", "server", empty=True) if exc.fault is Fault.NOT_FOUND else []
            known = (server_of(server).order for server in servers)
            found = next((order for order in known if order is not None and order.id == handle), None)
            if found is None:
                raise
            return found
        return order_of(answer.inside("transaction"))

    async def _nodes(self) -> list[tuple[Order, NodeView]]:
        """Orders of 30 days, and whatever older server bears one of our names."""
        orders, servers = await all_of(
            [
                self._wrapped("/order/server/transaction", "transaction", empty=True),
                self._wrapped("/server", "server", empty=True),
            ]
        )
        running = {server.number: server for server in map(server_of, servers)}
        read = [order_of(order) for order in orders]
        known = [known_by_name(order, running.get(order.number or "")) for order in read]
        listed = {order.id for order in known}
        older = [order for server in running.values() if (order := server.order) and order.id not in listed]
        return [(order, view_of(order, running.get(order.number or ""))) for order in (*known, *older)]

    async def _server(self, order: Order) -> Server | None:
        if order.number is None:
            return None
        try:
            return server_of((await self.http.fields("GET", f"/server/{order.number}")).inside("server"))
        except ProviderError as exc:
            if exc.fault is not Fault.NOT_FOUND:
                raise
            return None

    async def _name(self, order: Order) -> None:
        """A server that keeps its old name runs all the same; it is asked again with the next look."""
        try:
            await self.http.ask("POST", f"/server/{order.number}", form={"server_name": order.server_name})
        except ProviderError as exc:
            _log.warning("provider %s: %s has no name yet: %s", self.instance.name, order.id, exc.detail)

    async def _reached(self, view: NodeView, order: Order, server: Server) -> NodeView:
        """With the way in, once the host key is known to be the one that the vendor installed."""
        port = self._settings.ssh_port
        key = self._host_keys.get(order.id)
        if key is None and not order.host_keys:
            return view  # nobody can tell whether it is the right one
        if key is None:
            shown = await _shown_key(server.address, port)
            if shown is None:
                return view_of(order, server, waits_for="its SSH server does not answer yet")
            if shown.get_fingerprint("md5").removeprefix("MD5:") not in order.host_keys:
                return view_of(order, server, fails_for="its SSH host key is not the one that the vendor installed")
            key = self._host_keys[order.id] = shown.export_public_key().decode().strip()
        return view_of(order, server, ssh=SshEndpoint(server.address, port, "root", host_keys=(key,)))

    async def _marker(self, token: str, known: Sequence[Fields]) -> str:
        """The fingerprint of the key that marks a node's order. Its private half is thrown away here."""
        found = next((key.text("fingerprint") for key in known if key.text("name") == token), None)
        if found is not None:
            return found
        made = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
        return await self._register(token, made)

    async def _login_key(self, token: str, public_key: str, known: Sequence[Fields]) -> str:
        """The fingerprint of the job's own key, which its nodes share."""
        wanted = public_key.split()[:2]
        found = next((key.text("fingerprint") for key in known if key.text("data", "-").split()[:2] == wanted), None)
        return found or await self._register(f"{token}{_LOGIN}", public_key)

    async def _register(self, name: str, public_key: str) -> str:
        answer = await self.http.fields("POST", "/key", form={"name": name, "data": public_key})
        return answer.inside("key").text("fingerprint")

    async def _sweep(self, order: Order) -> None:
        """The node's mark, and its job's own key, unless another node has them or may be about to."""
        if any(self._may_appear(handle) for handle in list(self._unseen)):
            return
        nodes = [one for one, view in await self._nodes() if view.condition is not NodeCondition.GONE]
        others = [other for other in nodes if other.id != order.id]
        known = [(key.text("name"), key.text("fingerprint")) for key in await self._wrapped("/key", "key", empty=True)]
        needed = {mark for other in others for _, mark in other.keys}
        ours = {mark for name, mark in order.keys if name.endswith(_LOGIN)}
        is_mark = order.token not in {other.token for other in others}
        left = [
            mark for name, mark in known if mark not in needed and ((is_mark and name == order.token) or mark in ours)
        ]
        await self._forget(left)

    async def _forget(self, fingerprints: Sequence[str]) -> None:
        for fingerprint in fingerprints:
            try:
                await self.http.ask("DELETE", f"/key/{fingerprint}")
            except ProviderError as exc:
                if exc.fault is not Fault.NOT_FOUND:
                    raise

    async def _wrapped(self, path: str, name: str, *, empty: bool = False) -> list[Fields]:
        """A list of `{name: {…}}`. The vendor says 404, in words of its own, where a list is `empty`."""
        try:
            items = Fields({"list": await self.http.ask("GET", path)}, f"GET {path}").items("list")
        except ProviderError as exc:
            if empty and exc.fault is Fault.NOT_FOUND and exc.detail.startswith(_NONE_OF_THEM):
                return []
            raise
        return [item.inside(name) for item in items]


# Pure from here on: the vendor's words to ours.

_NONE_OF_THEM: Final = ("404 NOT_FOUND:", "404 SERVER_NOT_FOUND:")

# fmt: off
_FAULTS: Final = (
    Row(403,  r"^RATE_LIMIT_EXCEEDED ",                                      Fault.RATE_LIMITED, Scope.ACCOUNT),
    Row(None, r"product.*(not found|not available|unavailable|sold out)",    Fault.NO_CAPACITY,  Scope.OFFER),
)
# fmt: on


def _words_of(body: Any, text: str) -> tuple[str, str]:
    """`{"error": {"status", "code", "message", "missing", "invalid"}}`."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        return "", text[:300]
    named = [f"{word}: {error[word]}" for word in ("missing", "invalid") if error.get(word)]
    return str(error.get("code", "")), " ".join([str(error.get("message", "")), *named])


async def _shown_key(host: str, port: int) -> asyncssh.SSHKey | None:
    """The host key that a server shows; None: it does not answer."""
    try:
        async with asyncio.timeout(_SCAN_WITHIN_S):
            return await asyncssh.get_server_host_key(host, port, config=None)
    except (OSError, asyncssh.Error, TimeoutError):
        return None
