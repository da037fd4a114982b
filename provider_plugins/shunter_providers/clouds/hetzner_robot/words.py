"""Hetzner Robot's words to ours: products to offers, an order and its server to a node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from shunter_providers import catalogue
from shunter_providers.cloud_kit.naming import token_of
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.contract import NodeCondition, NodeView, Offer, Price, ProviderError, SshEndpoint
from shunter_providers.jurisdictions import of_region

_ADDRESS: Final = "primary_ipv4"
_NAME: Final = re.compile(r"(?P<token>[a-z0-9-]+)\.(?P<order>B\d{8}(-\d+){1,3})")
_DISK: Final = re.compile(r"(?:\d+ ?x ?)?(?P<size>\d+(?:\.\d+)?) ?(?P<unit>[GT])B.*(NVMe|SSD|HDD)", re.IGNORECASE)


class Shape(NamedTuple):
    """What is in a product; the API tells it in prose only."""

    gpu_model: str
    gpu_memory_gib: float
    cpus: int
    memory_gib: float


# fmt: off
_REGIONS: Final[Mapping[str, str]] = {
    "FSN*": "DE",
    "NBG*": "DE",
    "HEL*": "FI",
}
_SHAPES: Final[Mapping[str, Shape]] = {
    "GEX44":  Shape("RTX-4000-Ada", 20, 14, 64),
    "GEX130": Shape("RTX-6000-Ada", 48, 24, 128),
}
# fmt: on
"""By the vendor's product pages; the catalogue knows others."""


class Server(NamedTuple):
    """A server of the account."""

    number: str
    name: str
    address: str
    status: str
    cancelled: bool
    paid_until: str

    @property
    def order(self) -> Order | None:
        """As far as its name tells; None: it is not ours."""
        found = _NAME.fullmatch(self.name)
        token = token_of(found["token"]) if found is not None else None
        if found is None or token is None:
            return None
        return Order(found["order"], "ready", self.number, token, (), frozenset())


class Order(NamedTuple):
    """One node: a transaction in the vendor's words."""

    id: str
    status: str
    number: str | None
    """Of the server, once there is one."""
    token: str | None
    """None: somebody else's order."""
    keys: tuple[tuple[str, str], ...]
    """Names and fingerprints of the keys that it was ordered with."""
    host_keys: frozenset[str]
    """MD5, as the vendor writes it."""

    @property
    def server_name(self) -> str:
        """What the server is called, so that it is known when the order is no longer listed."""
        return f"{self.token}.{self.id}"


def order_of(transaction: Fields) -> Order:
    """Read one."""
    keys = tuple(_key_names(transaction))
    token = next((token for name, _ in keys if (token := token_of(name))), None)
    hosts = transaction.items("host_key") if "host_key" in transaction else []
    return Order(
        id=transaction.text("id"),
        status=transaction.text("status"),
        number=transaction.text("server_number", "-").replace("-", "") or None,
        token=token,
        keys=keys,
        host_keys=frozenset(host.inside("key").text("fingerprint") for host in hosts),
    )


def known_by_name(order: Order, server: Server | None) -> Order:
    """The order; ours by its server's name, where its keys no longer tell."""
    named = server.order if server is not None and order.token is None else None
    return order._replace(token=named.token) if named is not None and named.id == order.id else order


def server_of(server: Fields) -> Server:
    """Read one."""
    return Server(
        number=server.text("server_number"),
        name=server.text("server_name", "-"),
        address=server.text("server_ip", "-"),
        status=server.text("status"),
        cancelled=server.flag("cancelled"),
        paid_until=server.text("paid_until", "-"),
    )


def view_of(
    order: Order,
    server: Server | None,
    *,
    waits_for: str = "",
    fails_for: str = "",
    ssh: SshEndpoint | None = None,
) -> NodeView:
    """A node. `waits_for`, `fails_for`: why one that runs for the vendor does not for us."""
    condition, reason = _condition(order, server)
    if waits_for:
        condition, reason = NodeCondition.PENDING, waits_for
    if fails_for:
        condition, reason = NodeCondition.FAILED, fails_for
    addresses = {"public": server.address} if server is not None and server.address != "-" else {}
    return NodeView(order.id, order.token, condition, reason, addresses, ssh=ssh)


def offers_of(product: Fields, dist: str, usd_per_eur: float) -> list[Offer]:
    """One product in each of its places; none where it cannot be read, has no known GPU, or lacks the system."""
    try:
        return list(_offers(product, dist, usd_per_eur))
    except ProviderError:
        return []


def dists_of(products: Sequence[Fields]) -> set[str]:
    """Every system that is to be had on a product with a known GPU."""
    return {dist for product in products if _shape_of(product.text("id", "-")) for dist in product.texts("dist")}


def jurisdiction_of(region: str) -> str:
    """The country of a location; empty for one that is new."""
    return of_region(region, _REGIONS)


def _key_names(transaction: Fields) -> Iterator[tuple[str, str]]:
    for one in transaction.items("authorized_key") if "authorized_key" in transaction else ():
        key = one.inside("key")
        yield key.text("name", "-"), key.text("fingerprint")


def _condition(order: Order, server: Server | None) -> tuple[NodeCondition, str]:
    if order.status == "in process":
        return NodeCondition.QUEUED, "the order is being worked on"
    if order.status == "cancelled":
        return NodeCondition.GONE, "the order was cancelled"
    if order.status != "ready":
        return NodeCondition.UNKNOWN, f"the order is {order.status!r}"
    if order.number is None:
        return NodeCondition.QUEUED, "the order has no server yet"
    if server is None:
        return NodeCondition.GONE, "the server is no longer the account's"
    if server.cancelled:
        return NodeCondition.STOPPED, f"it is cancelled, and paid until {server.paid_until}"
    if server.status != "ready":
        return NodeCondition.PENDING, server.status
    return NodeCondition.RUNNING, ""


def _offers(product: Fields, dist: str, usd_per_eur: float) -> Iterator[Offer]:
    name = product.text("id")
    shape = _shape_of(name)
    if shape is None or dist not in product.texts("dist"):
        return
    address = {price.text("location"): price for addon in _addons(product) for price in addon.items("prices")}
    for price in product.items("prices"):
        region = price.text("location")
        parts = [price, *([address[region]] if region in address else [])]
        per_hour = price.inside("price").money("hourly_net") + sum(
            part.inside("price").number("hourly_net") for part in parts[1:]
        )
        setup = sum(part.inside("price_setup").number("net", 0.0) for part in parts)
        yield Offer(
            instance_type=name,
            region=region,
            jurisdiction=jurisdiction_of(region),
            price=Price(
                gpu_usd_per_hour=round(per_hour * usd_per_eur, 6),
                setup_usd=round(setup * usd_per_eur, 2),
                currency="EUR",
                usd_per_unit=usd_per_eur,
            ),
            gpu_model=shape.gpu_model,
            gpus=1,
            gpu_memory_gib=shape.gpu_memory_gib,
            cpus=shape.cpus,
            memory_gib=shape.memory_gib,
            disk_gib=_disk_gib(product),
            kind="metal",
            interconnect="none",
        )


def _shape_of(name: str) -> Shape | None:
    known = _SHAPES.get(name)
    row = next((row for row in catalogue.listed("hetzner-robot") if row.instance_type == name), None)
    if known is not None or row is None:
        return known
    return Shape(row.gpu_model, row.gpu_memory_gib, row.cpus or 0, row.memory_gib or 0.0)


def _addons(product: Fields) -> list[Fields]:
    addons = product.items("orderable_addons") if "orderable_addons" in product else []
    return [addon for addon in addons if addon.text("id") == _ADDRESS]


def _disk_gib(product: Fields) -> float:
    """Of one disk: the vendor mirrors two. 0: it does not say."""
    for line in product.texts("description"):
        if found := _DISK.search(line):
            return float(found["size"]) * (1e12 if found["unit"].upper() == "T" else 1e9) // (1 << 30)
    return 0.0
