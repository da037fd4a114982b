"""How the fake of Azure shows a machine, its states, and what was made with it."""

from __future__ import annotations

import json
from typing import Any, Final

from shunter_providers.testing import Machine, Phase
from support.clouds.azure_words import ROOT

_POWER: Final = {Phase.RUNNING: "running", Phase.PREEMPTED: "deallocated", Phase.ENDING: "stopping"}
INTERFACES: Final = "Microsoft.Network/networkInterfaces"
ADDRESSES: Final = "Microsoft.Network/publicIPAddresses"
DISKS: Final = "Microsoft.Compute/disks"


def machine_of(machine: Machine) -> dict[str, Any]:
    """Without its instance view."""
    order, path = machine.order, f"{ROOT}/resourceGroups/{machine.id.split('/')[0]}/providers"
    properties = json.loads(json.dumps({name: value for name, value in order["properties"].items() if value}))
    interfaces = [{"id": one["id"]} for one in parts_of(machine, INTERFACES)]
    properties["networkProfile"] = {"networkInterfaces": interfaces}
    properties["osProfile"].pop("customData", None)
    properties["provisioningState"] = _state(machine)
    id_ = f"{path}/Microsoft.Compute/virtualMachines/{machine.name}"
    return {
        "id": id_,
        "name": machine.name,
        "location": order["location"],
        "tags": order["tags"],
        "properties": properties,
    }


def statuses_of(machine: Machine) -> list[dict[str, Any]]:
    """Of its instance view: what was made of its order, and its power."""
    if failure := machine.extra.get("failure"):
        return [{"code": f"ProvisioningState/failed/{failure[0]}", "level": "Error", "message": failure[1]}]
    found = [{"code": f"ProvisioningState/{_state(machine).lower()}", "level": "Info"}]
    power = machine.extra.get("power") or _POWER.get(machine.phase())
    return [*found, {"code": f"PowerState/{power}", "level": "Info"}] if power else found


def parts_of(machine: Machine, kind: str) -> list[dict[str, Any]]:
    """Those that are there: all while the machine is, and what it left behind."""
    gone = machine.phase() is Phase.GONE
    if not machine.is_visible() or (gone and kind not in machine.extra["left"]):
        return []
    group = machine.id.split("/")[0]
    path = f"{ROOT}/resourceGroups/{group}/providers"
    disk = kind.endswith("disks")
    name = machine.name if disk else f"{machine.name}-{machine.extra['suffix']}"
    owner = {} if gone else {"id": f"{path}/Microsoft.Compute/virtualMachines/{machine.name}"}
    public = f"{ROOT}/resourceGroups/{group.upper()}/providers/{ADDRESSES}/{name}"
    inner = {"privateIPAddress": "10.64.0.4", "publicIPAddress": {"id": public}}
    properties: Any = {
        INTERFACES: {
            "ipConfigurations": [{"name": "address", "properties": inner}],
            **({"virtualMachine": owner} if owner else {}),
        },
        ADDRESSES: {
            "ipAddress": machine.address,
            **({"ipConfiguration": {"id": f"{path}/ipConfigurations/address"}} if owner else {}),
        },
        DISKS: {"diskState": "Attached" if owner else "Unattached"},
    }[kind]
    part: dict[str, Any] = {"id": f"{path}/{kind}/{name}", "name": name, "properties": properties}
    if not disk:
        return [{**part, "tags": machine.order["tags"]}]
    return [{**part, **({"managedBy": owner["id"]} if owner else {})}]


def _state(machine: Machine) -> str:
    if machine.phase() is Phase.ENDING:
        return "Deleting"
    if machine.extra.get("failure"):
        return "Failed"
    return "Creating" if machine.phase() is Phase.PENDING else "Succeeded"
