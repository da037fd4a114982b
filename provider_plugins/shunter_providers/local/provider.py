"""The `local` plugin: a node is an agent process on this machine.

The agent is started in a session of its own and outlives whoever asked for it: stopping the service stops no training.
Its folder (`folders`) and `/proc` (`processes`) are all the state there is, so any worker sees the same nodes.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

from shunter_providers.contract import (
    Capabilities,
    Fault,
    Identity,
    Instance,
    Intent,
    NodeCondition,
    NodeView,
    Offer,
    OfferQuery,
    ProviderError,
    Scope,
)
from shunter_providers.local.devices import Machine, look_at_machine, make_offers
from shunter_providers.local.settings import read_settings
from shunter_providers.machine import folders, running

_T = TypeVar("_T")
_MACHINE_GOOD_FOR_S = 60.0
_TIDY_EVERY_S = 3600.0


class LocalProvider:
    """Nodes on this machine."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        bootstrap="launch",
        idempotency="unique_name",
        visibility_delay_s=0.0,
        readiness_deadline_s=60.0,
        scan_interval_s=1.0,
        create_timeout_s=25.0,
        kinds=("metal",),
        price_source="none",
        bills=False,
        shares_file_system=True,
        shared_hosts=True,
        lease_s=None,
    )

    def __init__(self, instance: Instance) -> None:
        self._settings = read_settings(instance)
        self._name = instance.name
        self._root = Path(instance.data_dir) / "nodes"
        self._machine: tuple[float, Machine] | None = None
        self._tidied_at = 0.0

    async def whoami(self) -> Identity:
        """The machine's own id: there are no credentials."""
        return Identity(account=await _in_thread(_machine_id), limits={"cpu_slots": self._settings.cpu_slots})

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """CPU ranks, and the GPUs of this machine."""
        return make_offers(await _in_thread(self._look), self._settings)

    async def create(self, intent: Intent) -> str:
        """Make the node's folder and start its agent there, unless both are there already."""
        folder = await _in_thread(lambda: folders.make(self._root, self._name, intent))
        if folder.is_released() or folder.view().condition is NodeCondition.RUNNING:
            return folder.token
        await running.start(folder, intent.launch)
        return folder.token

    async def get(self, handle: str) -> NodeView:
        """The node by its folder and its agent's process."""
        return await _in_thread(folders.find(self._root, handle).view)

    async def list_owned(self, deployment: str) -> Sequence[NodeView]:
        """Nodes whose agent lives or is being started."""
        return await _in_thread(lambda: self._list(deployment))

    async def terminate(self, handle: str) -> bool:
        """End the agent and everything that it started; the folder stays for a while."""
        folder = folders.find(self._root, handle)
        return await _in_thread(lambda: running.end(folder))

    async def close(self) -> None:
        """Nothing is held open."""

    def _list(self, deployment: str) -> list[NodeView]:
        if time.monotonic() - self._tidied_at > _TIDY_EVERY_S:
            self._tidied_at = time.monotonic()
            folders.tidy(self._root, self._settings.keep_folders_s)
        views = (folder.view() for folder in folders.owned(self._root, self._name, deployment))
        return [view for view in views if view.condition is not NodeCondition.GONE]

    def _look(self) -> Machine:
        if self._machine is None or time.monotonic() - self._machine[0] > _MACHINE_GOOD_FOR_S:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._machine = (time.monotonic(), look_at_machine(str(self._root)))
        return self._machine[1]


def _machine_id() -> str:
    for path in (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id")):
        if path.is_file() and (text := path.read_text().strip()):
            return text
    return os.uname().nodename


async def _in_thread(work: Callable[[], _T]) -> _T:
    """Blocking file and process work, with the operating system's refusals in the contract's words."""
    try:
        return await asyncio.to_thread(work)
    except OSError as exc:
        raise ProviderError(Fault.TRANSIENT, str(exc), scope=Scope.ACCOUNT) from exc
