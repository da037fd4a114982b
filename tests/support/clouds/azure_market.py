"""What the fake of Azure sells: types as its API has them, and prices as it tells them to anybody."""

from __future__ import annotations

from typing import Any


def sku(name: str, family: str, cpus: int, memory_gib: float, gpus: int = 0, **more: Any) -> dict[str, Any]:
    """A type in a region."""
    capabilities = {
        "vCPUs": cpus,
        "vCPUsAvailable": cpus,
        "MemoryGB": memory_gib,
        "CpuArchitectureType": "x64",
        "HyperVGenerations": "V1,V2",
        "LowPriorityCapable": True,
        **({"GPUs": gpus} if gpus else {}),
        **more.pop("capabilities", {}),
    }
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "tier": "Standard",
        "size": name.removeprefix("Standard_"),
        "family": family,
        "locations": ["eastus"],
        "capabilities": [{"name": key, "value": str(value)} for key, value in capabilities.items()],
        "restrictions": [],
        **more,
    }


def price(name: str, region: str, usd: float, kind: str = "", **more: Any) -> dict[str, Any]:
    """A row of the retail prices; `kind`: what stands behind the name of its meter, such as `Spot`."""
    size = name.removeprefix("Standard_").replace("_", " ")
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": usd,
        "unitPrice": usd,
        "armRegionName": region,
        "meterName": f"{size} {kind}".strip(),
        "productName": "Virtual Machines Series",
        "skuName": f"{size} {kind}".strip(),
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": name,
        **more,
    }


H100 = "Standard_NC40ads_H100_v5"
A100 = "Standard_ND96asr_v4"
CPU = "Standard_D4s_v5"


def skus() -> dict[str, list[dict[str, Any]]]:
    """By region."""
    h100 = sku(H100, "standardNCadsH100v5Family", 40, 320, 1)
    a100 = sku(A100, "standardNDASv4_A100Family", 96, 900, 8)
    cpu = sku(CPU, "standardDSv5Family", 4, 16)
    small = sku("Standard_D2s_v5", "standardDSv5Family", 2, 8)
    arm = sku("Standard_D4ps_v5", "standardDPSv5Family", 4, 16, capabilities={"CpuArchitectureType": "Arm64"})
    disk = {"resourceType": "disks", "name": "Premium_LRS", "capabilities": []}
    return {"eastus": [disk, h100, a100, cpu, small, arm], "westeurope": [h100, cpu]}


def prices() -> list[dict[str, Any]]:
    """Of all regions, with rows beside that must not be taken for a virtual machine's."""
    rows = []
    for region in ("eastus", "westeurope"):
        rows += [
            price(H100, region, 6.98),
            price(H100, region, 2.51, "Spot"),
            price(H100, region, 1.40, "Low Priority"),
            price(H100, region, 8.82, productName="Virtual Machines Series Windows"),
            price(CPU, region, 0.192),
            price(CPU, region, 0.0, "Spot"),
            price(CPU, region, 0.24, productName="Dsv5 Series Cloud Services"),
        ]
    return rows
