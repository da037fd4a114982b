"""Compute Engine's words to ours, pure: what is offered, how a node is ordered, how it is, and what became of it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from shunter_providers import catalogue
from shunter_providers.cloud_kit.boot import cloud_init
from shunter_providers.cloud_kit.naming import token_of
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.clouds.google_cloud.gce import failure_of
from shunter_providers.clouds.google_cloud.settings import GoogleCloudOptions, GoogleCloudSettings
from shunter_providers.contract import (
    Availability,
    Intent,
    Launch,
    NodeCondition,
    NodeView,
    Offer,
    Price,
    SshEndpoint,
)
from shunter_providers.gpu_names import gpu_model, memory_gib
from shunter_providers.jurisdictions import of_region

_LARGEST_METADATA_BYTES: Final = 256 * 1024
_HOURS_A_MONTH: Final = 730.0
_SHORTEST_RUN_S: Final = 30
_LONGEST_RUN_S: Final = 120 * 86400
_UBUNTU: Final = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
_UBUNTU_WITH_DRIVER: Final = (
    "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2204-amd64-with-nvidia-580"
)
_HYPERDISK_ONLY: Final = ("a3-ultragpu-", "a4-", "a4x-", "c4-", "c4a-", "c4d-", "n4-")
_SPOT_ONLY: Final = ("a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g")
"""On demand they are not to be had."""
# fmt: off
_MEMORY_GIB: Final[Mapping[str, float]] = {
    "nvidia-tesla-a100": 40, "nvidia-l4": 24, "nvidia-tesla-t4": 16, "nvidia-tesla-v100": 16, "nvidia-tesla-p100": 16,
    "nvidia-tesla-p4": 8, "nvidia-b200": 180, "nvidia-gb200": 186, "nvidia-rtx-pro-6000": 96,
}
"""Of accelerators whose name does not tell it."""
_QUOTAS: Final[Mapping[str, str]] = {
    "nvidia-tesla-a100":      "NVIDIA_A100_GPUS",
    "nvidia-a100-80gb":       "NVIDIA_A100_80GB_GPUS",
    "nvidia-h100-80gb":       "NVIDIA_H100_GPUS",
    "nvidia-l4":              "NVIDIA_L4_GPUS",
    "nvidia-tesla-t4":        "NVIDIA_T4_GPUS",
    "nvidia-tesla-v100":      "NVIDIA_V100_GPUS",
}
"""A region's limits; those of spot begin with `PREEMPTIBLE_`. The API tells none of newer models, and of H100 only
that of spot."""
_REGIONS: Final[Mapping[str, str]] = {
    "us-*":                    "US",
    "northamerica-northeast1": "CA",
    "northamerica-northeast2": "CA",
    "northamerica-south1":     "MX",
    "southamerica-east1":      "BR",
    "southamerica-west1":      "CL",
    "europe-central2":         "PL",
    "europe-north1":           "FI",
    "europe-north2":           "SE",
    "europe-southwest1":       "ES",
    "europe-west1":            "BE",
    "europe-west2":            "GB",
    "europe-west3":            "DE",
    "europe-west4":            "NL",
    "europe-west6":            "CH",
    "europe-west8":            "IT",
    "europe-west9":            "FR",
    "europe-west10":           "DE",
    "europe-west12":           "IT",
    "asia-east1":              "TW",
    "asia-east2":              "HK",
    "asia-northeast1":         "JP",
    "asia-northeast2":         "JP",
    "asia-northeast3":         "KR",
    "asia-south1":             "IN",
    "asia-south2":             "IN",
    "asia-southeast1":         "SG",
    "asia-southeast2":         "ID",
    "asia-southeast3":         "TH",
    "australia-southeast1":    "AU",
    "australia-southeast2":    "AU",
    "me-central1":             "QA",
    "me-central2":             "SA",
    "me-west1":                "IL",
    "africa-south1":           "ZA",
}
_CONDITIONS: Final[Mapping[str, tuple[NodeCondition, str]]] = {
    "PENDING":        (NodeCondition.PENDING, ""),
    "PROVISIONING":   (NodeCondition.PENDING, ""),
    "STAGING":        (NodeCondition.PENDING, ""),
    "RUNNING":        (NodeCondition.RUNNING, ""),
    "PENDING_STOP":   (NodeCondition.STOPPED, "it is being stopped"),
    "STOPPING":       (NodeCondition.STOPPED, "it is being stopped"),
    "DEPROVISIONING": (NodeCondition.STOPPED, "it is being stopped"),
    "SUSPENDING":     (NodeCondition.STOPPED, "it is being suspended"),
    "SUSPENDED":      (NodeCondition.STOPPED, "it is suspended"),
    "STOPPED":        (NodeCondition.STOPPED, "it was stopped: by itself, or by the vendor"),
    "TERMINATED":     (NodeCondition.STOPPED, "it was stopped: by itself, or by the vendor"),
    "REPAIRING":      (NodeCondition.FAILED,  "the vendor repairs its machine"),
}
# fmt: on
_PREEMPTED: Final = "compute.instances.preempted"


def region_of(zone: str) -> str:
    """`us-central1-a` lies in `us-central1`."""
    return zone.rpartition("-")[0]


def jurisdiction_of(zone: str) -> str:
    """The country of a zone; empty for one that is new."""
    return of_region(region_of(zone), _REGIONS)


def quotas_of(place: Fields) -> Sequence[Fields]:
    """The limits of a project or region; none where it does not tell them."""
    return place.items("quotas") if "quotas" in place else ()


def offers_of(zone: str, kind: Fields, quotas: Mapping[str, Fields], settings: GoogleCloudSettings) -> Iterator[Offer]:
    """A machine type in a zone, on demand and spot, as far as a price is known.

    Args:
        quotas: of the zone's region, by metric.
    """
    name = kind.text("name")
    built_in = kind.items("accelerators") if "accelerators" in kind else []
    accelerator = built_in[0].text("guestAcceleratorType") if built_in else ""
    gpus = built_in[0].count("guestAcceleratorCount") if built_in else 0
    cpus = kind.count("guestCpus")
    if kind.text("architecture", "-") == "ARM64" and not settings.image:  # our images are for x86
        return
    for capacity in ("on_demand", "spot"):
        price = _price(name, zone, capacity, settings)
        if price is None or (capacity == "on_demand" and name in _SPOT_ONLY):
            continue
        yield Offer(
            instance_type=name,
            region=zone,
            jurisdiction=jurisdiction_of(zone),
            price=price,
            gpu_model=gpu_model(accelerator) if gpus else None,
            gpus=gpus,
            gpu_memory_gib=(memory_gib(accelerator) or _MEMORY_GIB.get(accelerator, 0.0)) if gpus else 0.0,
            cpus=cpus,
            cpu_slots=0 if gpus else cpus,
            memory_gib=kind.number("memoryMb") / 1024,
            disk_gib=float(settings.disk_gib),
            capacity=capacity,
            kind="vm",
            availability=_availability(accelerator, gpus, capacity, quotas),
            interconnect="ethernet",
            fabric=f"{settings.subnetwork or settings.network} {zone}",
        )


def order(intent: Intent, options: GoogleCloudOptions, settings: GoogleCloudSettings, project: str) -> dict[str, Any]:
    """The body of the call that makes a node."""
    offer, zone = intent.offer, intent.offer.region
    disk = "hyperdisk-balanced" if offer.instance_type.startswith(_HYPERDISK_ONLY) else "pd-balanced"
    labels = {f"shunter-{name}": intent.tags[name].lower() for name in ("deployment", "job") if name in intent.tags}
    nic: dict[str, Any] = {"nicType": "GVNIC", "accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}]}
    if settings.subnetwork:
        nic["subnetwork"] = settings.subnetwork
    else:
        nic["network"] = settings.network
    body: dict[str, Any] = {
        "name": intent.token,
        "machineType": f"zones/{zone}/machineTypes/{offer.instance_type}",
        "labels": labels,
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": {
                    "sourceImage": options.image or settings.image or (_UBUNTU_WITH_DRIVER if offer.gpus else _UBUNTU),
                    "diskSizeGb": str(settings.disk_gib),
                    "diskType": f"zones/{zone}/diskTypes/{disk}",
                    "labels": labels,
                },
            }
        ],
        "networkInterfaces": [nic],
        "scheduling": _scheduling(intent),
        "metadata": {"items": [{"key": key, "value": value} for key, value in _metadata(intent, settings).items()]},
    }
    if options.placement_policy:
        policy = f"projects/{project}/regions/{region_of(zone)}/resourcePolicies/{options.placement_policy}"
        body["resourcePolicies"] = [policy]
    if options.reservation:
        body["reservationAffinity"] = {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": [options.reservation],
        }
    return body


def view_of(instance: Fields, zone: str, user: str) -> NodeView:
    """A node as its zone shows it."""
    name, status = instance.text("name"), instance.text("status")
    condition, reason = _CONDITIONS.get(status, (NodeCondition.UNKNOWN, status))
    nic = next(iter(instance.items("networkInterfaces") if "networkInterfaces" in instance else ()), None)
    access = next(iter(nic.items("accessConfigs") if nic is not None and "accessConfigs" in nic else ()), None)
    public = access.text("natIP", "-") if access is not None else "-"
    private = nic.text("networkIP", "-") if nic is not None else "-"
    addresses = {"public": public, "private": private}
    return NodeView(
        handle=f"{zone}/{name}",
        token=token_of(name),
        condition=condition,
        reason=reason,
        addresses={kind: address for kind, address in addresses.items() if address != "-"},
        ssh=SshEndpoint(public, 22, user) if public != "-" else None,
    )


def fate_of(operations: Sequence[Fields], visibility_delay_s: float) -> tuple[NodeCondition, str]:
    """What became of a node that its zone does not show, by the operations on it: it is not shown yet, could never be
    made, was taken away, or is gone."""
    made = [one for one in operations if one.text("operationType") == "insert"]
    if any(one.text("operationType") == _PREEMPTED for one in operations):
        return NodeCondition.GONE, "the vendor took it away (preempted)"
    if not made or len(made) < len(operations):
        return NodeCondition.GONE, "no such node"
    failure = failure_of(made[-1])
    if failure is not None:
        return NodeCondition.FAILED, failure.detail
    if made[-1].text("status") != "DONE":
        return NodeCondition.PENDING, "it is being made"
    ended_at = _seconds(made[-1].text("endTime", "-"))
    if ended_at is not None and time.time() - ended_at < visibility_delay_s:
        return NodeCondition.PENDING, "not shown yet"
    return NodeCondition.GONE, "no such node"


def _price(name: str, zone: str, capacity: str, settings: GoogleCloudSettings) -> Price | None:
    """The operator's own, else the catalogue's; the boot disk beside it."""
    region = region_of(zone)
    disk_usd = settings.disk_gib * settings.disk_usd_per_gib_month / _HOURS_A_MONTH
    own = settings.spot_prices if capacity == "spot" else settings.prices
    usd = own.get(f"{name}/{region}", own.get(name))
    if usd is not None:
        return Price(gpu_usd_per_hour=usd, disk_usd_per_hour=disk_usd, confidence="high")
    row = catalogue.find("gcp", name, region)
    price = row.price(capacity) if row is not None else None
    return replace(price, disk_usd_per_hour=disk_usd) if price is not None else None


def _availability(accelerator: str, gpus: int, capacity: str, quotas: Mapping[str, Fields]) -> Availability:
    """Google tells of no capacity beforehand, only of limits."""
    metric = ("PREEMPTIBLE_" if capacity == "spot" else "") + _QUOTAS.get(accelerator, "")
    quota = quotas.get(metric)
    if quota is None or quota.number("limit") - quota.number("usage", 0.0) >= gpus:
        return Availability.UNKNOWN
    return Availability.NO_QUOTA


def _scheduling(intent: Intent) -> dict[str, Any]:
    spot = intent.offer.capacity == "spot"
    found: dict[str, Any] = {"provisioningModel": "SPOT" if spot else "STANDARD", "automaticRestart": False}
    if spot or intent.offer.gpus:
        found["onHostMaintenance"] = "TERMINATE"
    if intent.expires_at is not None and math.isfinite(intent.expires_at):
        seconds = math.ceil(intent.expires_at - time.time())
        found["maxRunDuration"] = {"seconds": str(min(max(seconds, _SHORTEST_RUN_S), _LONGEST_RUN_S))}
    if spot or "maxRunDuration" in found:
        found["instanceTerminationAction"] = "DELETE"
    return found


def _metadata(intent: Intent, settings: GoogleCloudSettings) -> dict[str, str]:
    """Keys, for cloud-init and for Google's agent; the launch is more than a value may hold, and comes by SSH."""
    found = {"enable-oslogin": "FALSE", "block-project-ssh-keys": "TRUE"}
    user_data = cloud_init(replace(intent, launch=Launch((), {})), largest_bytes=_LARGEST_METADATA_BYTES)
    if user_data is not None:
        found["user-data"] = user_data
    if intent.public_key:
        found["ssh-keys"] = f"{settings.user}:{' '.join(intent.public_key.split())}"  # another line is another's key
    return found


def _seconds(text: str) -> float | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
