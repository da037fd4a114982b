"""Hosts in namespaces as the nodes of fake clouds: each is a machine of its own with the sshd that its order asks for.

    with real_nodes(folder) as nodes, AwsCloud(secret, boots=nodes) as cloud:
        ...

What `Boots` cannot do without: a port 22, users and a host key that are the node's own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

from shunter_providers.cloud_kit.boot import FOLDER
from shunter_providers.testing.booting import Boot
from support.hosts import Host, sshd
from support.hosts.bridge import Bridge
from support.hosts.gpus import set_gpus

_OWN: Final = "srv"
"""A folder that is the host's alone; `/opt` is this machine's."""
_FIRST_USER_ID: Final = 3000


class RealNodes:
    """Those of any number of clouds, on one network."""

    def __init__(self, folder: Path, bridge: Bridge) -> None:
        self._folder = folder
        self._bridge = bridge
        self._numbers = count()
        self._booting: dict[str, tuple[Host, Future[None]]] = {}
        self._programs: list[subprocess.Popen[bytes]] = []
        self._threads = ThreadPoolExecutor(2)
        """They last: a host dies with the thread that booted it."""

    def start(self, id_: str, boot: Boot) -> tuple[str, int]:
        """See `Runner`."""
        number = next(self._numbers)
        host = Host(self._folder / f"node{number}", self._bridge, number)
        self._booting[id_] = host, self._threads.submit(self._bring_up, host, boot)
        return host.address, 22

    def end(self, id_: str) -> None:
        """See `Runner`."""
        host, booting = self._booting.pop(id_)
        if not booting.cancel():
            with suppress(Exception):  # it is told when the test looks at the node
                booting.result()
        host.power_off()

    def end_all(self) -> None:
        """Nothing is left of any node."""
        for id_ in list(self._booting):
            self.end(id_)
        self._threads.shutdown()
        for program in self._programs:
            program.wait(10)

    def _bring_up(self, host: Host, boot: Boot) -> None:
        if boot.user != "root":
            host.add_user(boot.user, _FIRST_USER_ID)
        host.let_in(boot.user, boot.authorized_keys)
        if boot.host_key:
            host.key_file.write_text(boot.host_key)
            host.key_file.with_name(f"{sshd.HOST_KEY}.pub").unlink()
        if boot.gpus:
            set_gpus(host, len(boot.gpus), name=boot.gpus[0], under=_OWN)
        for name, content in boot.files.items():
            (host.folder / _OWN / name).write_bytes(content)
        sshd.write_configuration(host.folder / "etc/ssh", host.address, _environment())
        host.power_on(with_sshd=boot.starts_sshd)
        if boot.script:
            self._programs.append(_start(host, boot))


@contextmanager
def real_nodes(folder: Path) -> Iterator[RealNodes]:
    """Where hosts can be made (`needs.why_no_hosts`); none is left afterwards."""
    bridge = Bridge()
    nodes = RealNodes(folder, bridge)
    try:
        yield nodes
    finally:
        nodes.end_all()
        bridge.remove()


def _environment() -> Mapping[str, str]:
    """Of sessions; the node's `python3` may be ours."""
    here = Path(sys.executable).parent
    path = f"/{_OWN}/bin:/usr/local/bin:/usr/bin:/bin:{here}"
    return {"PATH": path, "LD_LIBRARY_PATH": f"/{_OWN}/lib"}


def _start(host: Host, boot: Boot) -> subprocess.Popen[bytes]:
    script = boot.script.replace(FOLDER, f"/{_OWN}")
    with (host.folder / "boot.log").open("wb") as log:
        started: subprocess.Popen[bytes] = host.start(
            ["sh", "-c", script], environment=boot.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    return started
