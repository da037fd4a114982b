"""OVHcloud's words to ours, pure: prices, what is offered, how a server is ordered, and how it is."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from shunter_providers import catalogue
from shunter_providers.cloud_kit.boot import cloud_init
from shunter_providers.cloud_kit.naming import token_of
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.clouds.ovh.settings import OvhSettings
from shunter_providers.contract import (
    Availability,
    Fault,
    Intent,
    Launch,
    NodeCondition,
    NodeView,
    Offer,
    Price,
    ProviderError,
    SshEndpoint,
)
from shunter_providers.jurisdictions import EU, of_region

QUOTAS: Final = (
    ("maxTotalCores", "totalCoresUsed"),
    ("maxTotalRAMSize", "totalRAMUsed"),
    ("maxTotalInstances", "totalInstancesUsed"),
)
"""What a project may have in a region, and has: cores, memory in MiB, servers."""
_LARGEST_USER_DATA_BYTES: Final = 48_000
"""64 KB in base64."""
# fmt: off
_REGIONS: Final[Mapping[str, str]] = {
    "GRA*": "FR", "SBG*": "FR", "RBX*": "FR", "EU-WEST-PAR*": "FR", "DE*": "DE", "WAW*": "PL", "EU-SOUTH-MIL*": "IT",
    "UK*": "GB", "BHS*": "CA", "CA-EAST-TOR*": "CA", "US-*": "US", "SGP*": "SG", "AP-SOUTHEAST-SGP*": "SG",
    "SYD*": "AU", "AP-SOUTHEAST-SYD*": "AU", "MUM*": "IN", "AP-SOUTH-MUM*": "IN",
}
_GPUS: Final[Mapping[str, tuple[str, float, int]]] = {
    "h100-380": ("H100", 80, 1), "h100-760": ("H100", 80, 2), "h100-1520": ("H100", 80, 4),
    "a100-180": ("A100", 80, 1), "a100-360": ("A100", 80, 2), "a100-720": ("A100", 80, 4),
    "l40s-90":  ("L40S", 48, 1), "l40s-180": ("L40S", 48, 2), "l40s-360": ("L40S", 48, 4),
    "l4-90":    ("L4",   24, 1), "l4-180":   ("L4",   24, 2), "l4-360":   ("L4",   24, 4),
    "a10-45":   ("A10",  24, 1), "a10-90":   ("A10",  24, 2), "a10-180":  ("A10",  24, 4),
    "t1-45":    ("V100", 16, 1), "t1-90":    ("V100", 16, 2), "t1-180":   ("V100", 16, 4),
    "t2-45":    ("V100", 32, 1), "t2-90":    ("V100", 32, 2), "t2-180":   ("V100", 32, 4),
    "t2-le-45": ("V100", 32, 1), "t2-le-90": ("V100", 32, 2), "t2-le-180": ("V100", 32, 4),
    "rtx5000-28": ("RTX-5000", 16, 1), "rtx5000-56": ("RTX-5000", 16, 2), "rtx5000-84": ("RTX-5000", 16, 3),
    "t1-le-45": ("V100", 16, 1), "t1-le-90": ("V100", 16, 2), "t1-le-180": ("V100", 16, 4),
}
"""Model, memory and count by flavor, for nova does not tell them."""
_CPU_FAMILIES: Final = ("b2-", "b3-", "c2-", "c3-", "r2-", "r3-")
_CONDITIONS: Final[Mapping[str, tuple[NodeCondition, str]]] = {
    "BUILD":             (NodeCondition.PENDING, ""),
    "REBUILD":           (NodeCondition.PENDING, ""),
    "ACTIVE":            (NodeCondition.RUNNING, ""),
    "REBOOT":            (NodeCondition.RUNNING, ""),
    "HARD_REBOOT":       (NodeCondition.RUNNING, ""),
    "MIGRATING":         (NodeCondition.RUNNING, ""),
    "PASSWORD":          (NodeCondition.RUNNING, ""),
    "SHUTOFF":           (NodeCondition.STOPPED, "it was stopped, and bills all the same"),
    "PAUSED":            (NodeCondition.STOPPED, "it is paused"),
    "SUSPENDED":         (NodeCondition.STOPPED, "it is suspended"),
    "SHELVED":           (NodeCondition.STOPPED, "it is shelved"),
    "SHELVED_OFFLOADED": (NodeCondition.STOPPED, "it is shelved"),
    "RESIZE":            (NodeCondition.STOPPED, "it is being made another size"),
    "REVERT_RESIZE":     (NodeCondition.STOPPED, "it is being made another size"),
    "VERIFY_RESIZE":     (NodeCondition.RUNNING, ""),
    "RESCUE":            (NodeCondition.STOPPED, "it is in rescue mode"),
    "DELETED":           (NodeCondition.GONE,    ""),
    "SOFT_DELETED":      (NodeCondition.GONE,    ""),
}
_NODE_FAULTS: Final = (
    (r"No valid host|not enough hosts|Exhausted all hosts|No fixed IP addresses", Fault.NO_CAPACITY),
    (r"quota exceeded", Fault.QUOTA),
)
# fmt: on


def jurisdiction_of(region: str) -> str:
    """The country of a region; empty for one that is new."""
    return of_region(region, _REGIONS)


def prices_of(answer: Fields, settings: OvhSettings) -> Iterator[tuple[str, Price]]:
    """Prices by flavor from `addons` with the plan code `FLAVOR.consumption`, in hundred-millionths."""
    currency = answer.inside("locale").text("currencyCode")
    usd_per_unit = {"USD": 1.0, "EUR": settings.usd_per_eur}.get(currency)
    for addon in answer.items("addons"):
        flavor, _, kind = addon.text("planCode", "-").partition(".")
        if kind != "consumption" or usd_per_unit is None:
            continue
        try:
            hourly = next(one for one in addon.items("pricings") if "consumption" in one.texts("capacities"))
            amount = hourly.money("price") / 1e8
        except (ProviderError, StopIteration):  # one that is garbled or free hides no other
            continue
        usd = round(amount * usd_per_unit, 6)
        yield flavor, Price(gpu_usd_per_hour=usd, currency=currency, usd_per_unit=usd_per_unit)


def offers_of(
    market: tuple[str, Sequence[Fields], Mapping[str, float]], prices: Mapping[str, Price], settings: OvhSettings
) -> Iterator[Offer]:
    region, flavors, limits = market
    left = [limits.get(most, float("inf")) - limits.get(used, 0.0) for most, used in QUOTAS]
    for flavor in flavors:
        try:
            name, cpus = flavor.text("name"), flavor.count("vcpus")
            memory_gib, disk_gib = flavor.number("ram") / 1024, flavor.number("disk")
        except ProviderError:
            continue
        price = prices.get(name) or _listed_price(name, region, settings)
        model, gpu_memory_gib, gpus = _GPUS.get(name, (None, 0.0, 0))
        if price is None or (model is None and not name.startswith(_CPU_FAMILIES)):
            continue
        yield Offer(
            instance_type=name,
            region=region,
            jurisdiction=jurisdiction_of(region),
            price=price,
            gpu_model=model,
            gpus=gpus,
            gpu_memory_gib=gpu_memory_gib,
            cpus=cpus,
            cpu_slots=0 if gpus else cpus,
            memory_gib=memory_gib,
            disk_gib=disk_gib,
            kind="vm",
            availability=Availability.UNKNOWN if _fits((cpus, memory_gib * 1024, 1), left) else Availability.NO_QUOTA,
            interconnect="ethernet" if len(settings.networks) > 1 else "any",
            fabric=f"{settings.networks[-1]} {region}" if len(settings.networks) > 1 else None,
        )


def _fits(wanted: Sequence[float], left: Sequence[float]) -> bool:
    return all(one <= rest for one, rest in zip(wanted, left, strict=True))


def _listed_price(name: str, region: str, settings: OvhSettings) -> Price | None:
    """The bundled catalogue's, of that region: it knows them by their town, and the Union as a whole."""
    rates = {"EUR": settings.usd_per_eur} if settings.usd_per_eur is not None else {}
    places = (region.rstrip("0123456789"), "EU" if jurisdiction_of(region) in EU else "")
    rows = (row for row in catalogue.listed("ovh") if row.instance_type == name and row.region in places)
    return next((price for row in rows if (price := row.price(rates=rates)) is not None), None)


def server_of(intent: Intent) -> dict[str, Any]:
    """The part of a server's order that needs no look-up; the launch is too long for it, and comes by SSH."""
    tags = {f"shunter-{name}": value for name, value in intent.tags.items() if name in ("deployment", "job")}
    body: dict[str, Any] = {"name": intent.token, "metadata": tags}
    user_data = cloud_init(replace(intent, launch=Launch((), {})), largest_bytes=_LARGEST_USER_DATA_BYTES)
    if user_data is not None:
        body["user_data"] = base64.b64encode(user_data.encode()).decode()
    return body


def view_of(server: Fields, region: str, settings: OvhSettings) -> NodeView:
    status = server.text("status")
    fault = None
    if status == "ERROR":
        condition, reason = NodeCondition.FAILED, server.inside("fault").text("message", "the vendor does not say why")
        fault = next((one for words, one in _NODE_FAULTS if re.search(words, reason, re.IGNORECASE)), None)
    else:
        condition, reason = _CONDITIONS.get(status, (NodeCondition.UNKNOWN, status))
    if server.text("OS-EXT-STS:task_state", "-") == "deleting" and condition is not NodeCondition.GONE:
        condition, reason = NodeCondition.STOPPED, "it is being deleted"
    addresses = dict(_addresses(server.inside("addresses"), settings.networks))
    public = addresses.get("public")
    return NodeView(
        handle=f"{region}/{server.text('id')}",
        token=token_of(server.text("name", "-")),
        condition=condition,
        reason=reason.strip(),
        addresses=addresses,
        ssh=SshEndpoint(public, 22, settings.user_name) if public else None,
        fault=fault,
    )


def _addresses(found: Fields, networks: Sequence[str]) -> Iterator[tuple[str, str]]:
    for network in networks:
        if network not in found:
            continue
        for address in found.items(network):
            if address.count("version", 4) == 4:
                yield ("public" if network == networks[0] else "private"), address.text("addr")
