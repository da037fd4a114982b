"""EC2's words to ours and ours to EC2's: types and prices to offers, an intent to an order, an instance to a node."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from shunter_providers import catalogue
from shunter_providers.cloud_kit.naming import token_of
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.clouds.aws.settings import AwsOptions, AwsSettings, jurisdiction_of
from shunter_providers.contract import (
    Availability,
    Intent,
    NodeCondition,
    NodeView,
    Offer,
    Price,
    ProviderError,
    SshEndpoint,
)
from shunter_providers.gpu_names import gpu_model

TOKEN_TAG: Final = "shunter-token"  # noqa: S105 - no secret at all
DEPLOYMENT_TAG: Final = "shunter-deployment"
HOURS_PER_MONTH: Final = 730.0
NOT_GONE: Final = ("pending", "running", "shutting-down", "stopping", "stopped")
_HOLDS_A_GPU_OF: Final = "NVIDIA"

# fmt: off
_CONDITIONS: Final[Mapping[str, tuple[NodeCondition, str]]] = {
    "pending":       (NodeCondition.PENDING, ""),
    "running":       (NodeCondition.RUNNING, ""),
    "shutting-down": (NodeCondition.STOPPED, "it is being terminated"),
    "stopping":      (NodeCondition.STOPPED, "it is being stopped"),
    "stopped":       (NodeCondition.STOPPED, "it was stopped"),
    "terminated":    (NodeCondition.GONE,    "it was terminated"),
}
# fmt: on


class Image(NamedTuple):
    """What a node starts from."""

    id: str
    root_device: str
    root_gib: int


class Reservation(NamedTuple):
    """Capacity that the account has already."""

    id: str
    zone: str
    is_block: bool


class Market(NamedTuple):
    """What a region sells at the moment, beside its types."""

    listed_usd: Mapping[str, float]
    """By type: on demand, as the vendor lists it."""
    spot_usd: Mapping[str, float]
    """By type: the dearest of the region's zones, since EC2 chooses among them."""
    reserved: Mapping[str, int]
    """By type: how many more nodes the account's reservations have room for."""


class Place(NamedTuple):
    """Where in a region a node is put."""

    image: Image
    security_group: str
    subnet: str | None
    reservation: Reservation | None


def offers_of(kind: Fields, region: str, market: Market, settings: AwsSettings) -> list[Offer]:
    """One type in one region, in each capacity that it is sold in; none where the row cannot be read or a price is
    missing: one type that the vendor garbles must not hide the others."""
    try:
        return list(_offers(kind, region, market, settings))
    except ProviderError:
        return []


def spot_prices(rows: Sequence[Fields]) -> dict[str, float]:
    """The dearest zone of each type."""
    found: dict[str, float] = {}
    for row in rows:
        try:
            name, usd = row.text("instanceType"), row.money("spotPrice")
        except ProviderError:
            continue
        found[name] = max(usd, found.get(name, 0.0))
    return found


def reservation_of(row: Fields) -> Reservation:
    """One capacity reservation."""
    is_block = row.text("reservationType", "default") == "capacity-block"
    return Reservation(row.text("capacityReservationId"), row.text("availabilityZone"), is_block)


def newest(images: Sequence[Fields]) -> Image | None:
    """The image that was made last; None: there is none."""
    if not images:
        return None
    image = max(images, key=lambda one: (one.text("creationDate", "-"), one.text("imageId")))
    root = image.text("rootDeviceName")
    mappings = image.items("blockDeviceMapping") if "blockDeviceMapping" in image else []
    sizes = [one.inside("ebs").count("volumeSize", 0) for one in mappings if one.text("deviceName", "-") == root]
    return Image(image.text("imageId"), root, max(sizes, default=0))


def order(
    intent: Intent, place: Place, user_data: str | None, settings: AwsSettings, options: AwsOptions
) -> dict[str, Any]:
    """The launch. The same intent gives the same one, as a client token demands, as long as the image is the newest."""
    found: dict[str, Any] = {
        "ImageId": place.image.id,
        "InstanceType": intent.offer.instance_type,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": intent.token,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "BlockDeviceMapping": [_disk(place.image, settings)],
        "TagSpecification": list(_tags(intent)),
        **_network(place, settings, options),
        **_purchase(intent.offer.capacity, place.reservation),
    }
    if user_data is not None:
        found["UserData"] = base64.b64encode(user_data.encode()).decode()
    if settings.instance_profile:
        found["IamInstanceProfile"] = {"Name": settings.instance_profile}
    zone = place.reservation.zone if place.reservation is not None else options.zone
    placement = {"AvailabilityZone": zone, "GroupName": options.placement_group}
    if any(placement.values()):
        found["Placement"] = {name: value for name, value in placement.items() if value}
    return found


def handle_of(region: str, instance: Fields) -> str:
    """`REGION/ID`: an id alone does not tell where to ask."""
    return f"{region}/{instance.text('instanceId')}"


def view_of(region: str, instance: Fields, settings: AwsSettings) -> NodeView:
    """A node as its instance shows it."""
    state = instance.inside("instanceState").text("name")
    condition, reason = _CONDITIONS.get(state, (NodeCondition.UNKNOWN, state))
    if condition in (NodeCondition.STOPPED, NodeCondition.GONE):
        reason = instance.inside("stateReason").text("message", reason) if "stateReason" in instance else reason
    addresses = {"public": instance.text("ipAddress", "-"), "private": instance.text("privateIpAddress", "-")}
    known = {name: address for name, address in addresses.items() if address != "-"}
    reached = known.get("private" if settings.private_addresses else "public")
    tags = instance.items("tagSet") if "tagSet" in instance else []
    token = next((tag.text("value", "-") for tag in tags if tag.text("key") == TOKEN_TAG), None)
    return NodeView(
        handle=handle_of(region, instance),
        token=token_of(token),
        condition=condition,
        reason=reason,
        addresses=known,
        ssh=SshEndpoint(reached, 22, settings.ssh_user) if reached else None,
    )


def _offers(kind: Fields, region: str, market: Market, settings: AwsSettings) -> Iterator[Offer]:
    name = kind.text("instanceType")
    sold_as = kind.texts("supportedUsageClasses")
    listed = _on_demand(name, region, market, settings)
    offer = _offer(kind, name, region, settings)
    if offer is None:
        return
    if listed is not None and "on-demand" in sold_as:
        yield _priced(offer, listed, settings)
    if name in market.spot_usd and "spot" in sold_as:
        yield _priced(offer, Price(gpu_usd_per_hour=market.spot_usd[name]), settings, capacity="spot")
    if listed is not None and market.reserved.get(name):
        yield _priced(offer, listed, settings, capacity="reserved", count=market.reserved[name])


def _offer(kind: Fields, name: str, region: str, settings: AwsSettings) -> Offer | None:
    """The shape, still without a price; None: a part of a GPU, or one that this release cannot use."""
    gpus = kind.inside("gpuInfo").items("gpus") if "gpuInfo" in kind else []
    cpus = kind.inside("vCpuInfo").count("defaultVCpus")
    if any(gpu.text("manufacturer") != _HOLDS_A_GPU_OF or not gpu.count("count") for gpu in gpus) or len(gpus) > 1:
        return None
    gpu = gpus[0] if gpus else None
    return Offer(
        instance_type=name,
        region=region,
        jurisdiction=jurisdiction_of(region),
        price=Price(),
        gpu_model=gpu_model(gpu.text("name")) if gpu is not None else None,
        gpus=gpu.count("count") if gpu is not None else 0,
        gpu_memory_gib=_gib(gpu.inside("memoryInfo")) if gpu is not None else 0.0,
        cpus=cpus,
        cpu_slots=0 if gpu is not None else cpus,
        memory_gib=_gib(kind.inside("memoryInfo")),
        disk_gib=settings.disk_gib,
        kind="vm",
        interconnect="ethernet",
        network_gbps=_network_gbps(kind.inside("networkInfo")),
    )


def _network_gbps(network: Fields) -> float | None:
    """What the first card of a node gives at all times: our nodes have one interface."""
    cards = network.items("networkCards") if "networkCards" in network else []
    first = next((card for card in cards if card.count("networkCardIndex", 0) == 0), None)
    return (first.number("baselineBandwidthInGbps", 0.0) or None) if first is not None else None


def _priced(
    offer: Offer, price: Price, settings: AwsSettings, *, capacity: str = "on_demand", count: int | None = None
) -> Offer:
    disk = settings.disk_gib * settings.disk_usd_per_gib_month / HOURS_PER_MONTH
    return replace(
        offer,
        price=replace(price, disk_usd_per_hour=round(disk, 6)),
        capacity=capacity,
        count=count,
        availability=Availability.AVAILABLE if count else Availability.UNKNOWN,
    )


def _on_demand(name: str, region: str, market: Market, settings: AwsSettings) -> Price | None:
    """The operator's own word, else the vendor's list, else the catalogue; None: nobody knows."""
    said = settings.usd_per_hour.get(f"{region}/{name}", settings.usd_per_hour.get(name, market.listed_usd.get(name)))
    if said is not None:
        return Price(gpu_usd_per_hour=said)
    row = catalogue.find("aws", name, region)
    return row.price() if row is not None else None


def _disk(image: Image, settings: AwsSettings) -> dict[str, Any]:
    size = max(settings.disk_gib, image.root_gib)
    ebs = {"VolumeSize": size, "VolumeType": "gp3", "DeleteOnTermination": True}
    return {"DeviceName": image.root_device, "Ebs": ebs}


def _tags(intent: Intent) -> Iterator[dict[str, Any]]:
    """On everything that is made with an instance and may bill."""
    ours = {f"shunter-{name}": value for name, value in intent.tags.items() if name in ("deployment", "job")}
    tags = {"Name": intent.token, TOKEN_TAG: intent.token, **ours}
    kinds = ["instance", "volume", "network-interface"]
    if intent.offer.capacity == "spot":
        kinds.append("spot-instances-request")
    for kind in kinds:
        yield {"ResourceType": kind, "Tag": [{"Key": key, "Value": value} for key, value in sorted(tags.items())]}


def _network(place: Place, settings: AwsSettings, options: AwsOptions) -> dict[str, Any]:
    """The default network gives a public address by itself; elsewhere the interface has to say so."""
    if place.subnet is None and not options.efa:
        return {"SecurityGroupId": [place.security_group]}
    interface: dict[str, Any] = {
        "DeviceIndex": 0,
        "DeleteOnTermination": True,
        "AssociatePublicIpAddress": not settings.private_addresses,
        "SecurityGroupId": [place.security_group],
    }
    if place.subnet is not None:
        interface["SubnetId"] = place.subnet
    if options.efa:
        interface["InterfaceType"] = "efa"
    return {"NetworkInterface": [interface]}


def _purchase(capacity: str, reservation: Reservation | None) -> dict[str, Any]:
    if capacity == "spot":
        spot = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        return {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": spot}}
    if reservation is None:
        return {}
    target = {"CapacityReservationTarget": {"CapacityReservationId": reservation.id}}
    market = {"InstanceMarketOptions": {"MarketType": "capacity-block"}} if reservation.is_block else {}
    return {"CapacityReservationSpecification": target, **market}


def _gib(memory: Fields) -> float:
    return round(memory.number("sizeInMiB") / 1024, 2)
