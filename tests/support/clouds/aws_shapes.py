"""What the fake of EC2 has on its shelves: types and images as they are described, and filters over them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from support.clouds.aws_wire import Query, refused


def kind(name: str, gpus: int, model: str = "", mib: int = 0, cpus: int = 8, **more: Any) -> dict[str, Any]:
    """An instance type as it is described."""
    shown: dict[str, Any] = {
        "instanceType": name,
        "currentGeneration": True,
        "supportedUsageClasses": more.pop("sold_as", ["on-demand", "spot"]),
        "processorInfo": {"supportedArchitectures": [more.pop("architecture", "x86_64")]},
        "vCpuInfo": {"defaultVCpus": cpus},
        "memoryInfo": {"sizeInMiB": cpus * 4096},
        "networkInfo": {
            "efaSupported": gpus > 1,
            "networkCards": [
                {"networkCardIndex": index, "baselineBandwidthInGbps": 100.0, "peakBandwidthInGbps": 100.0}
                for index in range(gpus // 2)
            ],
        },
    }
    if model:
        one = {
            "name": model,
            "manufacturer": more.pop("maker", "NVIDIA"),
            "count": gpus,
            "memoryInfo": {"sizeInMiB": mib},
        }
        shown["gpuInfo"] = {"gpus": [one], "totalGpuMemoryInMiB": gpus * mib}
    return {**shown, **more}


def image(id_: str, day: str) -> dict[str, Any]:
    """One of the vendor's, made that day."""
    return {
        "imageId": id_,
        "imageState": "available",
        "imageOwnerAlias": "amazon",
        "architecture": "x86_64",
        "name": f"Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) {day}",
        "rootDeviceName": "/dev/sda1",
        "blockDeviceMapping": [{"deviceName": "/dev/sda1", "ebs": {"volumeSize": 75}}],
        "creationDate": f"{day[:4]}-{day[4:6]}-{day[6:]}T00:00:00.000Z",
    }


def listing(region: str, name: str, usd: str) -> str:
    """A row of the price list: JSON in a text."""
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": usd}, "description": f"${usd} per On Demand Linux {name}"}
    terms = {"OnDemand": {"SKU.T": {"effectiveDate": "2026-11-01", "priceDimensions": {"SKU.T.D": dimension}}}}
    attributes = {"instanceType": name, "regionCode": region, "instanceFamily": "GPU instance"}
    return json.dumps({"product": {"attributes": attributes, "sku": "SKU"}, "serviceCode": "AmazonEC2", "terms": terms})


def price_region(asked: Mapping[str, Any]) -> str:
    """Of which region the list is asked for; the filters are those of plain Linux, or it is too long."""
    filters = {one["Field"]: one["Value"] for one in asked["Filters"] if one["Type"] == "TERM_MATCH"}
    assert filters.items() >= {"operatingSystem": "Linux", "tenancy": "Shared", "capacitystatus": "Used"}.items()
    assert set(asked) <= {"ServiceCode", "Filters", "FormatVersion", "NextToken", "MaxResults"}
    return str(filters["regionCode"])


def chosen(
    query: Query, rows: Sequence[dict[str, Any]], facts: Callable[[dict[str, Any]], Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Those that every filter fits; a filter that is not known is refused, as EC2 does."""
    found = []
    for row in rows:
        known = facts(row)
        for name, values in query.filters().items():
            if name not in known and not name.startswith("tag:"):
                raise refused(400, "InvalidParameterValue", f"The filter '{name}' is invalid")
            if not any(fnmatchcase(known.get(name, ""), value) for value in values):
                break
        else:
            found.append(row)
    return found


def kind_facts(row: Mapping[str, Any]) -> Mapping[str, str]:
    """What a type or its price can be chosen by."""
    architectures = row.get("processorInfo", {}).get("supportedArchitectures", [""])
    return {"instance-type": row["instanceType"], "processor-info.supported-architecture": architectures[0]}


def reservation_facts(row: Mapping[str, Any]) -> Mapping[str, str]:
    """What a reservation can be chosen by."""
    return {"state": row["state"], "instance-type": row["instanceType"]}


def image_facts(row: Mapping[str, Any]) -> Mapping[str, str]:
    """What an image can be chosen by."""
    return {"name": row["name"], "state": row["imageState"], "architecture": row["architecture"]}


def group_facts(row: Mapping[str, Any]) -> Mapping[str, str]:
    """What a security group can be chosen by."""
    return {"group-name": row["groupName"], "vpc-id": row["vpcId"]}


def instance_facts(row: Mapping[str, Any]) -> Mapping[str, str]:
    """What an instance can be chosen by."""
    tags = {f"tag:{tag['key']}": tag["value"] for tag in row["tagSet"]}
    return {"instance-state-name": row["instanceState"]["name"], **tags}
