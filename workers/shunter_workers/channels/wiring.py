"""Hires what nodes over SSH need, where there are any: without such an instance nothing of it is imported."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from shunter_providers.contract import ProviderError
from shunter_providers.registry import Registry
from shunter_store.sql.database import Database

from shunter_workers.launching import Origin
from shunter_workers.singletons import Duty

if TYPE_CHECKING:
    from shunter_workers.channels.keys import JobKeys

_LACKING: Final = "nodes over SSH need the extra `ssh` of the package: pip install 'shunter[ssh]'"

_log = logging.getLogger(__name__)


def instances_over_ssh(registry: Registry) -> list[str]:
    """Instances whose nodes the core brings up over SSH."""
    return [name for name in registry.names if _is_over_ssh(registry, name)]


def keys_for(registry: Registry, database: Database, secret: bytes) -> JobKeys | None:
    """The keys of jobs; None: no node needs any."""
    if not instances_over_ssh(registry):
        return None
    try:
        from shunter_workers.channels.keys import JobKeys
    except ModuleNotFoundError:
        _log.exception(_LACKING)
        return None
    return JobKeys(database, secret)


def channel_duties(registry: Registry, database: Database, origin: Origin, objects_url: str) -> list[Duty]:
    """One duty for each shard of the jobs."""
    instances = instances_over_ssh(registry)
    if not instances:
        return []
    try:
        from shunter_workers.channels.duty import SHARDS, Channels, Room
        from shunter_workers.channels.keys import JobKeys
    except ModuleNotFoundError:
        _log.exception(_LACKING)
        return []
    keys = JobKeys(database, origin.secret)
    room = Room(database, registry, origin, objects_url, instances)
    shards = [Channels(room, keys, shard) for shard in range(SHARDS)]
    return [Duty(f"channels:{shard}", channels.work, channels.close) for shard, channels in enumerate(shards)]


def _is_over_ssh(registry: Registry, name: str) -> bool:
    try:
        return registry.get(name).capabilities.bootstrap == "ssh"
    except ProviderError:
        return False
