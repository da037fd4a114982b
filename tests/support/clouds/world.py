"""A whole control plane whose provider instances are accounts of fake clouds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from shunter_providers.testing import CloudFault, Request, WireCloud
from shunter_providers.testing.booting import Boots, Runner
from shunter_providers.testing.faults import Verb
from support.clouds.accounts import FAKES
from support.control_plane import ControlPlane, control_plane

FOR_EVER: Final = 100_000
REACHABLE: Final = "127.0.0.2"
"""Nodes of clouds are told an address; the plane's own loopback address is only for nodes that share its files."""
_QUICK: Final = {"timeout_s": 10, "visibility_delay_s": 0.5}


class Account(NamedTuple):
    """A configured instance."""

    plugin: str
    trouble: CloudFault | None = None
    on: Verb | None = None
    """Calls that go wrong; None: those that the trouble is about."""
    key_is_good: bool = True
    settings: Mapping[str, Any] = {}


class World(NamedTuple):
    """A control plane, and the clouds that its instances are configured with."""

    plane: ControlPlane
    clouds: Mapping[str, WireCloud]

    def is_empty(self, *names: str) -> bool:
        """None of these clouds (default: of all) has a node."""
        return all(self.clouds[name].nodes() == [] for name in names or self.clouds)

    def creates(self, *names: str) -> list[Request]:
        """Calls that make a node, of clouds that make one by a POST."""
        calls = [call for name in names for call in self.clouds[name].calls if call.method == "POST"]
        return [call for call in calls if call.path.endswith(("/pods", "/launch"))]


@contextmanager
def world_of(folder: Path, accounts: Mapping[str, Account], machines: Runner | None) -> Iterator[World]:
    """Everything up. `machines` are the nodes of accounts that are reached by SSH; None: such nodes do nothing."""
    with ExitStack() as stack:
        clouds = {
            name: stack.enter_context(_running(name, account, _nodes_of(folder / name, account, machines, stack)))
            for name, account in accounts.items()
        }
        providers = {name: _configured(name, clouds[name], account) for name, account in accounts.items()}
        variables = {"SHUNTER_PROVIDERS": json.dumps(providers)}
        plane = stack.enter_context(control_plane(folder / "data", REACHABLE, **variables))
        yield World(plane, clouds)


def _nodes_of(folder: Path, account: Account, machines: Runner | None, stack: ExitStack) -> Runner | None:
    if account.settings.get("start_by") != "provider":
        return machines
    boots = Boots(folder)
    stack.callback(boots.end_all)
    return boots


def _running(name: str, account: Account, nodes: Runner | None) -> WireCloud:
    cloud = FAKES[account.plugin].cloud(_key_of(name), boots=nodes)
    if account.trouble is not None:
        cloud.strike(account.trouble, on=account.on, times=FOR_EVER)
    return cloud


def _key_of(name: str) -> str:
    """Each account has its own, or they would share their pace."""
    return f"the-key-of-the-account-{name}"


def _configured(name: str, cloud: WireCloud, account: Account) -> dict[str, Any]:
    key = _key_of(name) if account.key_is_good else "a-key-that-nobody-knows"
    settings = {**FAKES[account.plugin].settings(cloud.url, key), **_QUICK, **account.settings}
    return {"plugin": account.plugin, "settings": settings}
