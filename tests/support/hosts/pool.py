"""Several hosts on one network, and the key that opens them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.hosts import sshd
from support.hosts.bridge import Bridge
from support.hosts.host import Host
from support.hosts.needs import skip_without_hosts


@dataclass(frozen=True, slots=True)
class Pool:
    """Hosts by number."""

    bridge: Bridge
    hosts: list[Host]
    client_key: Path
    """The private key that logs in as root and as `host.USER` everywhere."""

    @property
    def service_address(self) -> str:
        """Where hosts reach what listens on this machine."""
        return self.bridge.service_address

    def known_hosts(self, path: Path) -> Path:
        """A `known_hosts` file with every host's own key."""
        path.write_text("".join(f"{host.address} {host.host_key}\n" for host in self.hosts))
        return path

    def reset(self) -> None:
        """Every host on, its cable in, no firewall, room on its disk: for pools that several tests share."""
        for host in self.hosts:
            if not host.is_on:
                host.power_on()
            host.restore_link()
            host.firewall()
            host.free_disk()


@contextmanager
def make_pool(folder: Path, number: int, *, disk_mib: int | None = None) -> Iterator[Pool]:
    """Hosts that are up, each in a folder of its own below `folder`; skips where hosts cannot be made.

    Args:
        disk_mib: size of each host's `/srv`, where that shall be a small disk (`fill_disk`).
    """
    skip_without_hosts()
    folder.mkdir(parents=True, exist_ok=True)
    key = sshd.make_key(folder / "client_key", "the service")
    bridge = Bridge()
    hosts = [Host(folder / f"node{index}", bridge, index, disk_mib=disk_mib) for index in range(number)]
    try:
        for host in hosts:
            host.authorize(sshd.public_half(key))
            host.power_on()
        yield Pool(bridge, hosts, key)
    finally:
        for host in hosts:
            host.power_off()
        bridge.remove()
