"""Azure's words to ours, pure: what is offered, how a node is ordered, and how it is."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from shunter_providers import catalogue
from shunter_providers.cloud_kit.boot import cloud_init
from shunter_providers.cloud_kit.faults import Refused, classify
from shunter_providers.cloud_kit.naming import token_of
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.clouds.azure.arm import FAULTS
from shunter_providers.clouds.azure.parts import TOKEN_TAG, Addresses, group_of
from shunter_providers.clouds.azure.places import Place
from shunter_providers.clouds.azure.settings import AzureOptions, AzureSettings, jurisdiction_of
from shunter_providers.contract import (
    Availability,
    Intent,
    Launch,
    NodeCondition,
    NodeView,
    Offer,
    Price,
    ProviderError,
    SshEndpoint,
)

_CUSTOM_DATA_BYTES: Final = 65535
_HOURS_A_MONTH: Final = 730.0
_NETWORK_VERSION: Final = "2022-11-01"
_UBUNTU: Final = "Canonical:ubuntu-24_04-lts:server:latest"
_UBUNTU_WITH_DRIVER: Final = "microsoft-dsvm:ubuntu-hpc:2204:latest"
# fmt: off
_GPUS: Final[Mapping[str, tuple[str, float]]] = {
    r"Standard_NC\d+as_T4_v3":                  ("T4", 16),
    r"Standard_NC\d+r?s_v3":                    ("V100", 16),
    r"Standard_ND\d+rs_v2":                     ("V100", 32),
    r"Standard_NV(36|72)adm?s_A10_v5":          ("A10", 24),
    r"Standard_NC\d+ads_A100_v4":               ("A100", 80),
    r"Standard_ND\d+asr_v4":                    ("A100", 40),
    r"Standard_ND\d+amsr_A100_v4":              ("A100", 80),
    r"Standard_NC\d+adi?s_H100_v5":             ("H100", 94),
    r"Standard_ND\d+isr_H100_v5":               ("H100", 80),
    r"Standard_ND\d+isr_H200_v5":               ("H200", 141),
    r"Standard_ND\d+isr_MI300X_v5":             ("MI300X", 192),
    r"Standard_NC\d+\w*_RTXPRO6000BSE_v6":      ("RTX-PRO-6000", 96),
}
"""Model and memory in GiB, which the API does not tell. Types of a part of a GPU are left out."""
_CONDITIONS: Final[Mapping[str, tuple[NodeCondition, str]]] = {
    "starting":     (NodeCondition.PENDING, ""),
    "running":      (NodeCondition.RUNNING, ""),
    "stopping":     (NodeCondition.STOPPED, "it is being shut down"),
    "stopped":      (NodeCondition.STOPPED, "it was shut down, and bills on"),
    "deallocating": (NodeCondition.STOPPED, "it is being deallocated"),
    "deallocated":  (NodeCondition.STOPPED, "it was deallocated; its disk and its address bill on"),
}
"""Of power states."""
# fmt: on
WATCH: Final = (
    'while sleep 5; do curl -sf -m 4 -H Metadata:true "http://169.254.169.254/metadata/scheduledevents?api-version='
    '2020-07-01" | grep -q \'"Preempt"\' && poweroff; done'
)
"""Azure tells a spot node of its end 30 s before, and only if it asks."""
_EVICTED: Final = "the vendor took it away (evicted); its disk and its address bill on"


class Market(NamedTuple):
    """What is known of a region beside its types."""

    usd_per_hour: Mapping[tuple[str, str], float]
    """By type and capacity."""
    free_cores: Mapping[str, int]
    """What is left of its limits, by their lower-case names."""


def offers_of(sku: Fields, region: str, market: Market, settings: AzureSettings) -> Iterator[Offer]:
    """A machine type in a region, on demand and spot, as far as a price is known."""
    name = sku.text("name")
    can = Fields({one.text("name"): one.raw("value") for one in sku.items("capabilities")}, f"capabilities of {name}")
    gpus = can.count("GPUs", 0)
    model = _gpu_of(name) if gpus else None
    if (gpus and model is None) or (not gpus and name not in settings.cpu_types) or not _boots(can, settings):
        return
    cores = can.count("vCPUs")
    cpus = can.count("vCPUsAvailable", cores)
    for capacity in ("on_demand", "spot"):
        price = _price(name, region, capacity, market, settings)
        if price is None or (capacity == "spot" and can.text("LowPriorityCapable", "False") != "True"):
            continue
        limits = ("lowprioritycores",) if capacity == "spot" else (sku.text("family", "-").lower(), "cores")
        fits = _how_many(market.free_cores, limits, cores)
        yield Offer(
            instance_type=name,
            region=region,
            jurisdiction=jurisdiction_of(region),
            price=price,
            gpu_model=model[0] if model is not None else None,
            gpus=gpus,
            gpu_memory_gib=model[1] if model is not None else 0.0,
            cpus=cpus,
            cpu_slots=0 if gpus else cpus,
            memory_gib=can.number("MemoryGB"),
            disk_gib=float(settings.disk_gib),
            capacity=capacity,
            kind="vm",
            availability=_availability(sku, fits),
            count=fits,
            interconnect="ethernet",
            fabric=f"{settings.subnets.get(region, 'shunter')} {region}",
        )


def free_cores(usages: Iterable[Fields]) -> dict[str, int]:
    """What is left of a region's limits, by their lower-case names."""
    found = {}
    for usage in usages:
        with suppress(ProviderError):  # one that cannot be read hides no other
            left = usage.number("limit") - usage.number("currentValue")
            found[usage.inside("name").text("value").lower()] = max(0, int(left))
    return found


def order(intent: Intent, options: AzureOptions, settings: AzureSettings, place: Place) -> dict[str, Any]:
    """The body of the call that makes a node, with everything that shall go when it does."""
    offer, token = intent.offer, intent.token
    tags = tags_of(intent)
    key = " ".join(intent.public_key.split()) if intent.public_key else _key_of_nobody(token)
    login = {"path": f"/home/{settings.user}/.ssh/authorized_keys", "keyData": key}
    linux = {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [login]}}
    system: dict[str, Any] = {"computerName": token, "adminUsername": settings.user, "linuxConfiguration": linux}
    told = _told(intent)
    if told is not None:
        system["customData"] = base64.b64encode(told.encode()).decode()
    image = options.image or settings.image or (_UBUNTU_WITH_DRIVER if offer.gpus else _UBUNTU)
    disk = {
        "name": token,
        "createOption": "FromImage",
        "deleteOption": "Delete",
        "diskSizeGB": settings.disk_gib,
        "managedDisk": {"storageAccountType": settings.disk_type},
    }
    properties: dict[str, Any] = {
        "hardwareProfile": {"vmSize": offer.instance_type},
        "storageProfile": {"imageReference": _image(image), "osDisk": disk},
        "osProfile": system,
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
        "networkProfile": {
            "networkApiVersion": _NETWORK_VERSION,
            "networkInterfaceConfigurations": [_interface(token, tags, place, settings)],
        },
    }
    if offer.capacity == "spot":
        properties |= {
            "priority": "Spot",
            "evictionPolicy": settings.eviction,
            "billingProfile": {"maxPrice": options.max_usd_per_hour or -1},
        }
    for name, id_ in (
        ("availabilitySet", options.availability_set),
        ("proximityPlacementGroup", options.proximity_placement_group),
    ):
        if id_ is not None:
            properties[name] = {"id": id_}
    if options.capacity_reservation_group is not None:
        group = {"id": options.capacity_reservation_group}
        properties["capacityReservation"] = {"capacityReservationGroup": group}
    body: dict[str, Any] = {"location": offer.region, "tags": tags, "properties": properties}
    return {**body, "zones": [options.zone]} if options.zone is not None else body


def tags_of(intent: Intent) -> dict[str, str]:
    """What a node and its parts are known by, here and in the vendor's bill."""
    known = {f"shunter-{name}": intent.tags[name] for name in ("deployment", "job") if name in intent.tags}
    return {TOKEN_TAG: intent.token, **known}


def view_of(
    machine: Fields, statuses: Sequence[Fields], addresses: Mapping[str, Addresses], settings: AzureSettings
) -> NodeView:
    """A machine, given the statuses of its instance view, and the addresses by lower-case id of interface."""
    name, properties = machine.text("name").lower(), machine.inside("properties")
    condition, reason = _condition(properties, statuses)
    profile = properties.inside("networkProfile")
    ids = [
        one.text("id").lower() for one in (profile.items("networkInterfaces") if "networkInterfaces" in profile else ())
    ]
    found = next((addresses[id_] for id_ in ids if id_ in addresses), Addresses("", ""))
    reachable = found.private if settings.private_addresses else found.public
    shown = {"private": found.private, "public": found.public}
    return NodeView(
        handle=f"{group_of(machine.text('id'))}/{name}",
        token=token_of(name),
        condition=condition,
        reason=reason,
        addresses={kind: address for kind, address in shown.items() if address},
        ssh=SshEndpoint(reachable, 22, settings.user) if reachable else None,
        **_failure(condition, reason),
    )


def _failure(condition: NodeCondition, reason: str) -> dict[str, Any]:
    """What its code says, which is what the create call would have said."""
    if condition is not NodeCondition.FAILED:
        return {}
    code, _, message = reason.partition(": ")
    told = classify(Refused(500, code, message), FAULTS, creates=False)  # there is no status of its own
    return {"fault": told.fault, "scope": told.scope}


def _condition(properties: Fields, statuses: Sequence[Fields]) -> tuple[NodeCondition, str]:
    """By what was made of its order, then by its power."""
    codes = {one.text("code", "-").partition("/")[0]: one for one in statuses}
    power = codes["PowerState"].text("code").partition("/")[2] if "PowerState" in codes else ""
    state = properties.text("provisioningState", "-")
    if state == "Deleting":
        return NodeCondition.STOPPED, "it is being deleted"
    if state == "Failed" and power != "running":
        status = codes.get("ProvisioningState")
        if status is None:  # it may run all the same
            return NodeCondition.UNKNOWN, "something failed, and its power state is not shown"
        code = status.text("code").rpartition("/")[2]
        return NodeCondition.FAILED, f"{code}: {status.text('message', 'the vendor does not say why')}"
    condition, reason = _CONDITIONS.get(power, (NodeCondition.UNKNOWN, f"power state {power}"))
    if state in ("Creating", "Migrating") and condition is not NodeCondition.STOPPED:
        return NodeCondition.PENDING, ""
    if not power:
        return NodeCondition.PENDING, "its power state is not shown yet"
    if power == "deallocated" and properties.text("priority", "-") == "Spot":
        return condition, _EVICTED
    return condition, reason


def _gpu_of(name: str) -> tuple[str, float] | None:
    return next((gpu for pattern, gpu in _GPUS.items() if re.fullmatch(pattern, name)), None)


def _boots(can: Fields, settings: AzureSettings) -> bool:
    """Whether our images start on it, which are for x86 and of the second generation."""
    if settings.image is not None:
        return True
    return can.text("CpuArchitectureType", "x64") == "x64" and "V2" in can.text("HyperVGenerations", "V1,V2")


def _price(name: str, region: str, capacity: str, market: Market, settings: AzureSettings) -> Price | None:
    """The operator's own, else the vendor's, else the catalogue's; disk and address beside it."""
    beside = settings.disk_gib * settings.disk_usd_per_gib_month / _HOURS_A_MONTH
    if not settings.private_addresses:
        beside += settings.address_usd_per_hour
    own = settings.spot_prices if capacity == "spot" else settings.prices
    usd = own.get(f"{name}/{region}", own.get(name, market.usd_per_hour.get((name, capacity))))
    if usd is not None:
        return Price(gpu_usd_per_hour=usd, disk_usd_per_hour=beside)
    row = catalogue.find("azure", name, region)
    price = row.price(capacity) if row is not None else None
    return replace(price, disk_usd_per_hour=beside) if price is not None else None


def _how_many(free: Mapping[str, int], limits: Sequence[str], cpus: int) -> int | None:
    """How many nodes the region's limits leave room for; None: not known."""
    left = [free[name] for name in limits if name in free]
    return min(left) // cpus if left and cpus else None


def _availability(sku: Fields, fits: int | None) -> Availability:
    """Azure tells no capacity, only what a subscription may not have; a zone that lacks it leaves the others."""
    for restriction in sku.items("restrictions") if "restrictions" in sku else ():
        if restriction.text("type", "-") == "Location":
            by_quota = restriction.text("reasonCode", "-") == "QuotaId"
            return Availability.NO_QUOTA if by_quota else Availability.NONE
    return Availability.NO_QUOTA if fits == 0 else Availability.UNKNOWN


def _told(intent: Intent) -> str | None:
    """Keys; and on a spot node what makes of the vendor's notice a shutdown, which the agent hears of in time."""
    text = cloud_init(replace(intent, launch=Launch((), {})), largest_bytes=_CUSTOM_DATA_BYTES)
    if intent.offer.capacity != "spot" or intent.user_data is not None:
        return text
    config = json.loads(text.partition("\n")[2]) if text is not None else {}
    command = ["systemd-run", "--unit=shunter-eviction", "sh", "-c", WATCH]
    return f"#cloud-config\n{json.dumps({**config, 'runcmd': [command]}, sort_keys=True)}\n"


def _interface(token: str, tags: Mapping[str, str], place: Place, settings: AzureSettings) -> dict[str, Any]:
    address: dict[str, Any] = {"primary": True, "subnet": {"id": place.subnet}}
    if not settings.private_addresses:
        address["publicIPAddressConfiguration"] = {
            "name": token,
            "tags": tags,
            "sku": {"name": "Standard", "tier": "Regional"},
            "properties": {"deleteOption": "Delete", "publicIPAllocationMethod": "Static"},
        }
    properties = {
        "primary": True,
        "deleteOption": "Delete",
        "networkSecurityGroup": {"id": place.security_group},
        "ipConfigurations": [{"name": "address", "properties": address}],
    }
    return {"name": token, "tags": tags, "properties": properties}


def _image(text: str) -> dict[str, str]:
    if not text.startswith("/"):
        return dict(zip(("publisher", "offer", "sku", "version"), text.split(":"), strict=True))
    kinds = {"/communitygalleries/": "communityGalleryImageId", "/sharedgalleries/": "sharedGalleryImageId"}
    return {next((name for start, name in kinds.items() if text.lower().startswith(start)), "id"): text}


def _key_of_nobody(token: str) -> str:
    """Azure makes no machine without a key or a password. Of this one nobody has the private half: it is a digest."""
    parts = (b"ssh-ed25519", hashlib.sha256(f"nobody {token}".encode()).digest())
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} nobody"
