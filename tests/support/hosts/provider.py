"""A provider whose nodes are agents on hosts of a pool, started there as a person with a console would start them.

Whole hosts only: a file in the host's folder says which node has it. What the provider knows of a host it sees from
outside, as a cloud sees its machines: whether the power is on, whether the agent lives.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from shunter_providers.contract import (
    HANDLE_VARIABLE,
    Availability,
    Capabilities,
    Fault,
    Identity,
    Instance,
    Intent,
    NodeCondition,
    NodeView,
    Offer,
    OfferQuery,
    Price,
    ProviderError,
    Scope,
    SelfStop,
)
from support import proc
from support.clocks import set_clock
from support.hosts.needs import SBIN

_TAKEN = "taken.json"
_NODES = "/srv/nodes"
_STARTS_WITHIN_S = 10.0


class HostsProvider:
    """Settings: `hosts` (`name`, `folder`, `address`, `environment`), `offer` (fields of `Offer`), `lease_s`, …"""

    capabilities = Capabilities(
        idempotency="unique_name",
        self_stop=SelfStop.STOPS_COMPUTE,
        readiness_deadline_s=60.0,
        scan_interval_s=1.0,
        create_timeout_s=25.0,
        lease_s=600.0,
    )

    def __init__(self, instance: Instance) -> None:
        self._settings = dict(instance.settings)
        self._name = instance.name
        self.capabilities = replace(type(self).capabilities, lease_s=self._settings.get("lease_s", 600.0))

    async def whoami(self) -> Identity:
        return Identity(account="the pool")

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        free = [host for host in self._hosts() if self._is_on(host) and not _taken(host)]
        price = Price(gpu_usd_per_hour=1.0)
        offer = Offer("host", "here", "DE", price, kind="metal", availability=Availability.AVAILABLE, count=len(free))
        return [replace(offer, **self._settings["offer"])]

    async def create(self, intent: Intent) -> str:
        """The first free host that may be taken; a token that has one already keeps it."""
        host = self._host_of(intent.token) or self._take(intent)
        folder = self._seen(host, f"{_NODES}/{intent.token}")
        if not (folder / "agent.json").exists():
            await asyncio.to_thread(self._launch, host, folder, intent)
        return intent.token

    async def get(self, handle: str) -> NodeView:
        host = self._host_of(handle)
        return NodeView(handle, handle, NodeCondition.GONE) if host is None else self._view(host, handle)

    async def list_owned(self, deployment: str) -> Sequence[NodeView]:
        held = [(host, _taken(host)) for host in self._hosts()]
        return [
            self._view(host, taken["token"])
            for host, taken in held
            if taken and taken["instance"] == self._name and taken["deployment"] == deployment
        ]

    async def terminate(self, handle: str) -> bool:
        """End everything of the node and give the host back."""
        host = self._host_of(handle)
        if host is None:
            return True
        if self._is_on(host):
            await asyncio.to_thread(_kill_all, host, handle)
        (Path(host["folder"]) / _TAKEN).unlink(missing_ok=True)
        return True

    async def close(self) -> None:
        """Nothing is held open."""

    def _hosts(self) -> list[dict[str, Any]]:
        return list(self._settings["hosts"])

    def _host_of(self, token: str) -> dict[str, Any] | None:
        return next((host for host in self._hosts() if (_taken(host) or {}).get("token") == token), None)

    def _take(self, intent: Intent) -> dict[str, Any]:
        said = {
            "token": intent.token,
            "instance": self._name,
            "deployment": intent.tags["deployment"],
            "at": time.time(),
        }
        for host in self._hosts():
            if host["name"] in intent.avoid or not self._is_on(host):
                continue
            with suppress(FileExistsError), (Path(host["folder"]) / _TAKEN).open("x") as file:
                file.write(json.dumps({**said, "boot": _boot_id(host)}))
                return host
        raise ProviderError(
            Fault.NO_CAPACITY, f"no host is free (passed over: {list(intent.avoid)})", scope=Scope.OFFER
        )

    def _launch(self, host: dict[str, Any], folder: Path, intent: Intent) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in intent.launch.files.items():
            (folder / name).write_bytes(content)
        if "ahead_s" in host:
            set_clock(folder, host["ahead_s"])
        environment = {
            "PATH": f"/root/bin:/usr/bin:/bin:{SBIN}",
            "HOME": "/root",
            HANDLE_VARIABLE: intent.token,
            **intent.launch.environment,
            **self._settings.get("environment", {}),
            **host.get("environment", {}),
        }
        every = ("--net", "--mount", "--pid", "--uts", "--ipc", "--", "env", f"--chdir={_NODES}/{intent.token}")
        argv = [part.replace("{python}", sys.executable) for part in intent.launch.argv]
        started = subprocess.run(
            ["nsenter", "--target", str(_first_pid(host)), *every, *argv],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        if started.returncode != 0:
            (Path(host["folder"]) / _TAKEN).unlink(missing_ok=True)
            raise ProviderError(Fault.TRANSIENT, f"{host['name']}: {started.stderr.strip()}")

    def _view(self, host: dict[str, Any], token: str) -> NodeView:
        condition, reason = self._condition(host, token)
        addresses = {"private": host["address"], "machine": host["name"]}
        return NodeView(token, token, condition, reason, addresses)

    def _condition(self, host: dict[str, Any], token: str) -> tuple[NodeCondition, str]:
        taken = _taken(host) or {}
        if not self._is_on(host) or taken.get("boot") != _boot_id(host):
            return NodeCondition.STOPPED, f"{host['name']} lost its power"
        folder = self._seen(host, f"{_NODES}/{token}")
        try:
            pid = json.loads((folder / "agent.json").read_text())["pid"]
        except (OSError, ValueError):
            young = time.time() - float(taken.get("at", 0)) < _STARTS_WITHIN_S
            return (NodeCondition.PENDING, "starts") if young else (NodeCondition.FAILED, "its agent never came up")
        if self._seen(host, f"/proc/{pid}/stat").exists():
            return NodeCondition.RUNNING, ""
        return NodeCondition.FAILED, "its agent has ended"

    def _is_on(self, host: dict[str, Any]) -> bool:
        with suppress(OSError, ValueError):
            return proc.lives(_first_pid(host))
        return False

    def _seen(self, host: dict[str, Any], path: str) -> Path:
        return Path(f"/proc/{_first_pid(host)}/root{path}")


def _first_pid(host: dict[str, Any]) -> int:
    return int((Path(host["folder"]) / "first-pid").read_text())


def _boot_id(host: dict[str, Any]) -> str:
    return (Path(host["folder"]) / "boot-id").read_text().strip()


def _taken(host: dict[str, Any]) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((Path(host["folder"]) / _TAKEN).read_text())
    except (OSError, ValueError):
        return None
    return found


def _kill_all(host: dict[str, Any], token: str) -> None:
    """The agent and every process that carries its handle or its folder, until none is left."""
    namespace = os.readlink(f"/proc/{_first_pid(host)}/ns/pid")
    marks = (f"{HANDLE_VARIABLE}={token}", f"SHUNTER_AGENT_DIR={_NODES}/{token}")
    give_up_at = time.monotonic() + 10
    while time.monotonic() < give_up_at:
        left = [pid for pid in _in_namespace(namespace) if _carries(pid, marks) and proc.lives(pid)]
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _in_namespace(namespace: str) -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        with suppress(OSError):
            if path.name.isdecimal() and os.readlink(path / "ns/pid") == namespace:
                found.append(int(path.name))
    return found


def _carries(pid: int, marks: Sequence[str]) -> bool:
    carried = proc.environ(pid)
    return any(carried.get(mark.split("=", 1)[0]) == mark.split("=", 1)[1] for mark in marks)
