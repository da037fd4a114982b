"""The `ssh` plugin over hosts of `support.hosts`: its settings, and a provider."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shunter_providers.contract import Instance
from shunter_providers.ssh.provider import SshProvider
from support.hosts import Host, Pool

INSTANCE = "pool"


def host_settings(host: Host, **settings: Any) -> dict[str, Any]:
    """One host as an operator writes it down."""
    found = {"name": host.name, "address": host.address, "host_keys": [host.host_key], "python": sys.executable}
    return {**found, "cpu_slots": 2, **settings}


def pool_settings(pool: Pool, hosts: Sequence[dict[str, Any]] | None = None, **settings: Any) -> dict[str, Any]:
    """The plugin's settings for these hosts (default: all of the pool)."""
    written = list(hosts) if hosts is not None else [host_settings(host) for host in pool.hosts]
    return {"hosts": written, "identity_file": str(pool.client_key), "connect_timeout_s": 5, **settings}


def make_provider(data_dir: Path, settings: dict[str, Any], deployment: str = "") -> SshProvider:
    """A provider as a worker makes it."""
    return SshProvider(Instance(INSTANCE, "ssh", settings, str(data_dir), deployment=deployment))


def as_variable(settings: dict[str, Any]) -> dict[str, str]:
    """The environment of a control plane whose only provider is the pool."""
    return {"SHUNTER_PROVIDERS": json.dumps({INSTANCE: {"plugin": "ssh", "settings": settings}})}
