"""A whole control plane whose nodes are hosts of a pool."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import proc
from support.agents import QUICK
from support.clocks import settable_clock
from support.control_plane import ControlPlane, control_plane
from support.hosts.gpus import ENVIRONMENT, H100
from support.hosts.host import Host
from support.hosts.pool import Pool

_TESTS = Path(__file__).parents[2]
_ENTRY_POINT = "[shunter.providers]\ntest-hosts = support.hosts.provider:HostsProvider\n"


def instance(hosts: list[Host], gpus: int = 1, **settings: Any) -> dict[str, Any]:
    """Settings of a provider instance over these hosts.

    Args:
        gpus: how many of them it says that each has.
        settings: others of the provider's; `ahead_s` by host sets the clocks of theirs.
    """
    ahead_s = settings.pop("ahead_s", {})
    told = [
        {
            "name": host.name,
            "folder": str(host.folder),
            "address": host.address,
            **({"environment": _clock(host), "ahead_s": ahead_s[host.name]} if host.name in ahead_s else {}),
        }
        for host in hosts
    ]
    offer = {"gpus": gpus, "cpus": gpus, **H100}
    environment = {**QUICK, **ENVIRONMENT}
    return {
        "plugin": "test-hosts",
        "settings": {"hosts": told, "offer": offer, "environment": environment, **settings},
    }


@contextmanager
def plane_on(
    pool: Pool, folder: Path, instances: Mapping[str, Mapping[str, Any]], **settings: str
) -> Iterator[ControlPlane]:
    """Everything up, with these provider instances; `settings` are variables of the environment."""
    plugin = folder / "plugin" / "shunter_test_hosts-1.0.dist-info"
    plugin.mkdir(parents=True)
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: shunter-test-hosts\nVersion: 1.0\n")
    (plugin / "entry_points.txt").write_text(_ENTRY_POINT)
    environment = {
        "SHUNTER_PROVIDERS": json.dumps({name: dict(one) for name, one in instances.items()}),
        "PYTHONPATH": os.pathsep.join([str(plugin.parent), str(_TESTS), *_inherited_path()]),
        **settings,
    }
    with control_plane(folder / "data", pool.service_address, **environment) as plane:
        yield plane


def ranks_on(host: Host) -> list[int]:
    """Pids, on this machine, of the living ranks of a host and of what they started."""
    return [pid for pid in host.processes() if "SHUNTER_GENERATION" in proc.environ(pid) and proc.lives(pid)]


def agents_on(host: Host) -> list[int]:
    """Pids, on this machine, of the living agents of a host."""
    return [pid for pid in host.processes() if "agent.pyz" in _command(pid) and proc.lives(pid)]


def _inherited_path() -> list[str]:
    path = os.environ.get("PYTHONPATH")
    return [path] if path else []


def _clock(host: Host) -> dict[str, str]:
    """What makes the agent's wall clock one that can be set, with the library where the host sees it."""
    library = host.folder / "root/lib/wall_clock.so"
    library.parent.mkdir(exist_ok=True)
    shutil.copy(settable_clock()["LD_PRELOAD"], library)
    return {"LD_PRELOAD": "/root/lib/wall_clock.so"}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
