"""Interfaces, addresses and disks of nodes on Azure: where a node is reached, and what was left over of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from shunter_providers.cloud_kit.naming import token_of
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.clouds.azure.arm import DISKS, NETWORK, Arm
from shunter_providers.contract import Fault, NodeCondition, NodeView, ProviderError

TOKEN_TAG: Final = "shunter-token"  # noqa: S105 - the name of a tag
_INTERFACE: Final = "network interface"
_ADDRESS: Final = "public address"
# fmt: off
_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    _INTERFACE: ("/providers/Microsoft.Network/networkInterfaces", NETWORK),
    _ADDRESS:   ("/providers/Microsoft.Network/publicIPAddresses", NETWORK),
    "disk":     ("/providers/Microsoft.Compute/disks", DISKS),
}
# fmt: on
"""Path and version of the API, in the order in which they can be deleted."""


class Part(NamedTuple):
    """What was made with a node."""

    kind: str
    path: str
    """Below the subscription."""
    token: str
    """Of the node."""
    attached: bool

    @property
    def handle(self) -> str:
        """Of the node."""
        return f"{group_of(self.path)}/{self.token}"

    def delete(self, client: Arm) -> None:
        """Ask for its end."""
        client.delete(self.path, _KINDS[self.kind][1])


class Addresses(NamedTuple):
    """Of a network interface; empty where there is none yet."""

    private: str
    public: str


class Beside:
    """Everything of a subscription that is beside its machines, read once."""

    def __init__(self, client: Arm) -> None:
        self._root = client.root
        self._things = {kind: list(client.pages(path, version)) for kind, (path, version) in _KINDS.items()}

    def addresses(self) -> Mapping[str, Addresses]:
        """By the lower-case id of the interface."""
        return _addresses(self._things[_INTERFACE], self._things[_ADDRESS])

    def parts(self) -> Mapping[str, Sequence[Part]]:
        """What was made with nodes of ours, by their handles."""
        found: dict[str, list[Part]] = {}
        for kind, things in self._things.items():
            for part in _parts(kind, things, self._root):
                found.setdefault(part.handle, []).append(part)
        return found


def parts_of(client: Arm, handle: str) -> Sequence[Part]:
    """Those of one node, in the order in which they can be deleted."""
    group = handle.partition("/")[0]
    parts: list[Part] = []
    for kind, (path, version) in _KINDS.items():
        try:
            things = list(client.pages(f"/resourceGroups/{group}{path}", version))
        except ProviderError as exc:
            if exc.fault is not Fault.NOT_FOUND:
                raise
            return ()  # there is no such group
        parts += [part for part in _parts(kind, things, client.root) if part.handle == handle]
    return parts


def addresses_of(client: Arm, machine: Fields) -> Mapping[str, Addresses]:
    """Those of a machine's interfaces, as far as they are shown, by the lower-case id of the interface."""
    profile = machine.inside("properties").inside("networkProfile")
    ids = [one.text("id") for one in (profile.items("networkInterfaces") if "networkInterfaces" in profile else ())]
    interfaces = _found(client, ids)
    public = _found(client, [id_ for one in interfaces for _, id_ in _configured(one) if id_])
    return _addresses(interfaces, public)


def left_over(handle: str, parts: Sequence[Part]) -> NodeView:
    """A node of which there are only parts; they bill."""
    kinds = ", ".join(part.kind for part in parts)
    token = parts[0].token
    if any(part.attached for part in parts):
        return NodeView(handle, token, NodeCondition.UNKNOWN, f"its machine is not shown: {kinds}")
    return NodeView(handle, token, NodeCondition.STOPPED, f"only parts are left, which bill on: {kinds}")


def group_of(path: str) -> str:
    """The resource group in the path or id of a thing, in lower case: the API writes it as it likes."""
    found = re.search(r"/resourceGroups/([^/]+)/", path, re.IGNORECASE)
    return found[1].lower() if found is not None else ""


def _found(client: Arm, ids: Sequence[str]) -> list[Fields]:
    things = [client.find(id_[len(client.root) :], NETWORK) for id_ in ids]
    return [thing for thing in things if thing is not None]


def _addresses(interfaces: Sequence[Fields], public: Sequence[Fields]) -> dict[str, Addresses]:
    known = {one.text("id").lower(): one.inside("properties").text("ipAddress", "") for one in public}
    found = {}
    for interface in interfaces:
        private, id_ = next(iter(_configured(interface)), ("", ""))
        found[interface.text("id").lower()] = Addresses(private, known.get(id_.lower(), ""))
    return found


def _configured(interface: Fields) -> list[tuple[str, str]]:
    """Private address, and id of the public one, of each configuration; empty where there is none yet."""
    properties = interface.inside("properties")
    rows = properties.items("ipConfigurations") if "ipConfigurations" in properties else []
    inner = [row.inside("properties") for row in rows]
    return [(one.text("privateIPAddress", ""), one.inside("publicIPAddress").text("id", "")) for one in inner]


def _parts(kind: str, things: Iterable[Fields], root: str) -> list[Part]:
    """`root`: the path of the subscription."""
    parts = []
    for thing in things:
        token = token_of(thing.inside("tags").text(TOKEN_TAG, "")) or token_of(thing.text("name").lower())
        if token is None:
            continue
        properties = thing.inside("properties")
        attached = "managedBy" in thing or any(one in properties for one in ("virtualMachine", "ipConfiguration"))
        parts.append(Part(kind, thing.text("id")[len(root) :], token, attached))
    return parts
