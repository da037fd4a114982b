"""What one node's agent is told at its birth."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shunter_providers.contract import Capabilities, SelfStop
from shunter_providers.machine.processes import current_boot_id
from shunter_schemas.node_sync import Container, LaunchFile, Lease
from shunter_store.installation import signing
from shunter_store.node.ledger import NodeRow

SERVICE_URL_FILE: Final = "service-url"
"""On nodes that the core reaches by SSH: beside `launch.json`, rewritten whenever the way to the service changes."""
_NOT_UP_YET: Final = "http://127.0.0.1"


@dataclass(frozen=True, slots=True)
class Origin:
    """What every node is told of where it comes from."""

    deployment: str
    secret: bytes
    service_url: str
    """For nodes that do not share the service's file system; empty: there is no such address."""
    service_url_file: Path

    def service_now(self) -> str:
        """The service's address as this machine reaches it at this moment."""
        url = read_url(self.service_url_file)
        return url if url != _NOT_UP_YET or not self.service_url else self.service_url


def launch_file(
    origin: Origin, node: NodeRow, capabilities: Capabilities, *, image: str | None = None, over_ssh: bool = False
) -> LaunchFile:
    """The node's `launch.json`.

    Args:
        image: the job's own.
        over_ssh: the core writes the service's address beside the file.
    """
    near = capabilities.shares_file_system
    url_file = str(origin.service_url_file) if near else (SERVICE_URL_FILE if over_ssh else None)
    url = read_url(origin.service_url_file) if near else origin.service_url
    return LaunchFile(
        node=node.token,
        sync_token=signing.node_sync_token(origin.secret, node.token),
        service_url=url or (_NOT_UP_YET if over_ssh else ""),
        service_url_file=url_file,
        lease=Lease(expires_in_s=node.lease_s),
        ends_machine=capabilities.self_stop is not SelfStop.NONE,
        power_off=capabilities.power_off.replace("{handle}", shlex.quote(node.handle or "")),
        home_boot_id=home_boot_id(),
        labels={"job": node.job_id, "rank": str(node.rank)},
        container=_container(node, capabilities, image),
    )


def _container(node: NodeRow, capabilities: Capabilities, image: str | None) -> Container | None:
    """What the machine has to run by itself; None: nothing, or its provider has booted it."""
    if image is None or not capabilities.runs_images_by_docker:
        return None
    gpus = bool(node.offer.get("gpus")) and node.slot_kind != "cpu"
    return Container(image=image, gpus=gpus, may_install=not capabilities.shared_hosts)


def alone_s(node: NodeRow, capabilities: Capabilities) -> float | None:
    """After how long without an agent the machine ends itself; None: never, for that would save nothing."""
    if capabilities.self_stop is SelfStop.NONE or node.lease_s is None:
        return None
    return node.lease_s + capabilities.readiness_deadline_s


def home_boot_id() -> str:
    """Of this machine; empty where the kernel does not tell, and then no node ends its machine."""
    with suppress(OSError):
        return current_boot_id()
    return ""


def read_url(file: Path) -> str:
    """The service's address as it is now, if it is up; a node that shares the file reads it again at each try."""
    with suppress(OSError):
        return file.read_text().strip() or _NOT_UP_YET
    return _NOT_UP_YET
