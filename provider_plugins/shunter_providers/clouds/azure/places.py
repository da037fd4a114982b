"""Where nodes are put on Azure: group, network and security group of a region, made where the operator names none."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from shunter_providers.clouds.azure.arm import GROUPS, NETWORK, Arm
from shunter_providers.clouds.azure.settings import AzureSettings
from shunter_providers.contract import Fault, ProviderError, Scope

_NETWORK_PREFIX: Final = "10.64.0.0/16"
_WITHIN_S: Final = 25.0


class Place(NamedTuple):
    """Where a node is put: resource ids."""

    group: str
    subnet: str
    security_group: str


class Places:
    """Those of an instance, as far as they were looked at or made. For several threads: at worst two make the same."""

    def __init__(self, settings: AzureSettings) -> None:
        self._settings = settings
        self._known: dict[str, Place] = {}

    def __contains__(self, region: str) -> bool:
        """Whether it is known without a look."""
        return region in self._known

    def forget(self, region: str) -> None:
        """It is not there any more."""
        self._known.pop(region, None)

    def of(self, client: Arm, region: str) -> Place:
        """That of a region. What is made there is named `shunter-REGION`, costs nothing, and stays."""
        if region not in self._known:
            self._known[region] = self._looked_up(client, region)
        return self._known[region]

    def _looked_up(self, client: Arm, region: str) -> Place:
        settings, give_up_at = self._settings, time.monotonic() + _WITHIN_S
        group = (settings.resource_group or f"shunter-{region}").lower()
        in_group = f"/resourceGroups/{group}"
        if not settings.resource_group:
            _make_sure(client, in_group, GROUPS, {"location": region}, give_up_at)
        network = f"{in_group}/providers/Microsoft.Network"
        security_group, subnet = settings.security_groups.get(region), settings.subnets.get(region)
        if security_group is None:
            path = f"{network}/networkSecurityGroups/shunter-{region}"
            _make_sure(client, path, NETWORK, _rules(region, str(settings.ssh_from)), give_up_at)
            security_group = f"{client.root}{path}"
        if subnet is None:
            path = f"{network}/virtualNetworks/shunter-{region}"
            _make_sure(client, path, NETWORK, _network(region), give_up_at)
            subnet = f"{client.root}{path}/subnets/nodes"
        return Place(group, subnet, security_group)


def _make_sure(client: Arm, path: str, version: str, body: Mapping[str, Any], give_up_at: float) -> None:
    """That it is there and finished. It is made only where it is not there: what an operator changed in it stays."""
    pause_s = 0.05
    found = client.find(path, version)
    if found is None:
        found = client.ask("PUT", path, version, body=body)
    while (state := found.inside("properties").text("provisioningState", "Succeeded")) != "Succeeded":
        if state == "Failed":
            client.ask("PUT", path, version, body=body)
        if time.monotonic() > give_up_at:
            raise ProviderError(Fault.TRANSIENT, f"{path} is {state.lower()} still", scope=Scope.REGION)
        time.sleep(pause_s)
        pause_s = min(2.0, 2 * pause_s)
        found = client.ask("GET", path, version)


def _rules(region: str, ssh_from: str) -> dict[str, Any]:
    """SSH for whom the operator says; nodes of the network reach each other by Azure's own rules."""
    ssh = {
        "priority": 1000,
        "direction": "Inbound",
        "access": "Allow",
        "protocol": "Tcp",
        "sourceAddressPrefix": ssh_from,
        "sourcePortRange": "*",
        "destinationAddressPrefix": "*",
        "destinationPortRange": "22",
    }
    return {"location": region, "properties": {"securityRules": [{"name": "ssh", "properties": ssh}]}}


def _network(region: str) -> dict[str, Any]:
    subnet = {"name": "nodes", "properties": {"addressPrefix": _NETWORK_PREFIX}}
    space = {"addressSpace": {"addressPrefixes": [_NETWORK_PREFIX]}, "subnets": [subnet]}
    return {"location": region, "properties": space}
