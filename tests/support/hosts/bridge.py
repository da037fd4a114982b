"""The network that joins hosts: a bridge on this machine, on which the service has an address too."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from ipaddress import IPv4Network
from itertools import count
from typing import Any

_COUNTER = count()
_OURS = re.compile(r"shb(\d+)-\d+")


class Bridge:
    """Network `10.A.B.0/24`; this machine is `.1`. Its name tells whose it is, so that left-overs are known."""

    def __init__(self) -> None:
        sweep()
        self.name = f"shb{os.getpid()}-{next(_COUNTER)}"
        self.network = _free_network()
        run_ip("link", "add", self.name, "type", "bridge", "forward_delay", "0")
        run_ip("addr", "add", f"{self.service_address}/24", "dev", self.name)
        run_ip("link", "set", self.name, "up")

    @property
    def service_address(self) -> str:
        """Where hosts reach what listens on this machine."""
        return str(self.network[1])

    def address(self, number: int) -> str:
        """Of the host with this number, from 0."""
        return str(self.network[10 + number])

    def plug(self, first_pid: int, number: int) -> str:
        """Give the network namespace of this process an `eth0`; returns the name of the cable's end on this side."""
        cable = f"shv{os.getpid()}-{next(_COUNTER)}"
        card = ("name", "eth0", "address", self._hardware_address(number), "netns", str(first_pid))
        run_ip("link", "add", cable, "type", "veth", "peer", *card)
        run_ip("link", "set", cable, "master", self.name, "up")
        within(first_pid, "ip", "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
        within(first_pid, "ip", "link", "set", "eth0", "up")
        within(first_pid, "ip", "route", "add", "default", "via", self.service_address)
        return cable

    def _hardware_address(self, number: int) -> str:
        """The same at every boot, as a real card's: others remember it."""
        return ":".join(f"{byte:02x}" for byte in (0x02, 0x5A, *self.network[10 + number].packed))

    def remove(self) -> None:
        """Take it down; cables go with their hosts."""
        subprocess.run(["ip", "link", "del", self.name], check=False, capture_output=True)


def run_ip(*arguments: str) -> None:
    """Run `ip` on this machine; a failure is raised with what it said."""
    _checked(["ip", *arguments])


def within(first_pid: int, *argv: str) -> None:
    """Run a command in the network of that process."""
    _checked(["nsenter", "--target", str(first_pid), "--net", *argv])


def sweep() -> None:
    """Remove bridges of processes that are no more: a test run that was killed leaves its bridge and nothing else."""
    for link in _shown("link", "show", "type", "bridge"):
        found = _OURS.fullmatch(link.get("ifname", ""))
        if found and not os.path.exists(f"/proc/{found[1]}"):
            subprocess.run(["ip", "link", "del", link["ifname"]], check=False, capture_output=True)


def _free_network() -> IPv4Network:
    """One that no interface or route of this machine knows."""
    known = [IPv4Network(route["dst"]) for route in _shown("route", "show") if "/" in route.get("dst", "")]
    while True:
        candidate = IPv4Network(f"10.{random.randint(64, 127)}.{random.randint(0, 255)}.0/24")
        if not any(candidate.overlaps(network) for network in known):
            return candidate


def _shown(*arguments: str) -> list[dict[str, Any]]:
    answer = subprocess.run(["ip", "-json", *arguments], check=True, capture_output=True, text=True)
    found: list[dict[str, Any]] = json.loads(answer.stdout or "[]")
    return found


def _checked(argv: list[str]) -> None:
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr.strip()}"
