"""Settings of the `ssh` plugin: the pool of hosts."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from shunter_providers.contract import Instance, SshEndpoint
from shunter_providers.plugin_settings import read_plugin_settings

HOST_STRIDE: Final = 1024
"""Slots of one host, so that those of all hosts have numbers of their own (`Offer.host_stride`)."""
_HOSTS: Final = 1 << 20


def _one_key(text: str) -> str:
    words = text.split()
    if len(words) < 2 or not re.fullmatch(r"(ssh|ecdsa|sk)-[a-z0-9@.-]+", words[0]):
        raise ValueError("not a public key such as `ssh-ed25519 AAAA…` (ssh-keyscan shows a host's; compare it there)")
    return " ".join(words[:2])


def _absolute(text: str) -> str:
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise ValueError("needs an absolute path, or one that begins with ~/")
    return str(path)


HostKey = Annotated[str, AfterValidator(_one_key)]
KeyFile = Annotated[str, AfterValidator(_absolute)]
Address = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:%-]*$")]
Name = Annotated[str, Field(max_length=40, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
User = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*\$?$")]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Login(_Part):
    """How a machine is reached."""

    address: Address
    port: int = Field(default=22, ge=1, le=65535)
    user: User | None = None
    """None: the pool's."""
    identity_file: KeyFile | None = None
    """None: the pool's."""
    host_keys: Sequence[HostKey] = Field(min_length=1)
    """Public keys of the machine, as `/etc/ssh/ssh_host_ed25519_key.pub` has them. Others are refused."""
    jump: str | None = None
    """Name of a jump host."""


class Host(Login):
    """One machine of the pool."""

    name: Name
    gpus: int | None = Field(default=None, ge=0, le=64)
    """How many of its GPUs jobs may use, from the first; None: all that it shows."""
    gpu_model: str | None = Field(default=None, min_length=1)
    """Checked against what it shows; None: whatever it shows."""
    cpu_slots: int | None = Field(default=None, ge=0, le=HOST_STRIDE)
    """CPU ranks that it takes; None: as many as it has cores where it has no GPU, else none."""
    memory_gib: float | None = Field(default=None, gt=0)
    """None: as it shows."""
    min_disk_gib: float = Field(default=5.0, ge=0)
    """With less free disk it takes no job."""
    exclusive: bool = False
    """One job at a time has the whole host; otherwise jobs share it by GPU or CPU slot."""
    labels: Mapping[str, str] = Field(default_factory=dict)
    region: str = Field(default="own", min_length=1)
    jurisdiction: str = ""
    """`EU`, `EEA` or an ISO country code. Empty: unknown, so that jobs which demand one do not run here."""
    usd_per_hour: float = Field(default=0.0, ge=0)
    """An internal rate of the whole host, for the reports; shares of it are not billed separately."""
    private_address: Address | None = None
    """Where the other hosts reach it; None: the address at which it took the service's connection."""
    interface: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]{1,15}$")
    """The one with that address; None: found on the host."""
    interconnect: Literal["any", "ethernet", "rdma"] = "ethernet"
    fabric: str | None = None
    """Hosts of the same fabric are joined."""
    network_gbps: float | None = Field(default=None, gt=0)
    """Of that network, in each direction, for one host: plans compute with it. None: what is usual."""
    python: str = Field(default="python3", min_length=1)
    """A Python, 3.8 or newer, whose packages (torch above all) jobs find."""
    base: str = Field(default="~/.shunter", min_length=1)
    """The folder there under which everything of ours lies."""
    authorized_keys: str = "~/.ssh/authorized_keys"
    """Where keys for `shunter ssh` go, for the time of the shell. Empty: nobody opens one."""

    @property
    def first_slot(self) -> int:
        """Number of its slot 0 among those of the pool: by its name, so that the order of the settings does not
        matter."""
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8]) % _HOSTS * HOST_STRIDE


class JumpHost(Login):
    """A machine through which others are reached. Nothing is installed there."""

    name: Name


class SshSettings(_Part):
    """A pool of hosts."""

    hosts: Sequence[Host] = Field(min_length=1, max_length=1000)
    jump_hosts: Sequence[JumpHost] = ()
    user: User = "root"
    identity_file: KeyFile = "~/.ssh/id_ed25519"
    """Private key without passphrase. It stays where the workers run."""
    connect_timeout_s: float = Field(default=8.0, gt=0, le=60)
    look_every_s: float = Field(default=30.0, gt=0)
    """A host is looked at anew after so long."""
    max_clock_skew_s: float = Field(default=30.0, gt=0)
    down_after_s: float = Field(default=600.0, gt=0)
    """A host that gave no answer for so long, while another one of the pool does, counts as failed."""
    lease_s: float | None = Field(default=None, gt=0)
    """Its nodes stop themselves when they have not heard from the service for so long. None: never."""
    keep_folders_s: float = Field(default=86_400.0, ge=0)
    """How long the folder of an ended node stays on its host for inspection."""
    keep_cache_s: float = Field(default=14 * 86_400.0, ge=0)
    """How long a file that nobody used stays in a host's cache."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for what, names in (
            ("hosts", [host.name for host in self.hosts]),
            ("jump_hosts", [jump.name for jump in self.jump_hosts]),
        ):
            twice = [name for name, times in Counter(names).items() if times > 1]
            if twice:
                raise ValueError(f"{what}: {', '.join(twice)} is there twice")
        slots = Counter(host.first_slot for host in self.hosts)
        clash = [host.name for host in self.hosts if slots[host.first_slot] > 1]
        if clash:
            raise ValueError(f"hosts: {', '.join(clash)} cannot be told apart by their slots: rename one of them")
        for login in (*self.hosts, *self.jump_hosts):
            self._check_way(login)
        return self

    def _check_way(self, login: Login) -> None:
        jumps = {jump.name: jump for jump in self.jump_hosts}
        passed: list[str] = []
        while login.jump is not None:
            if login.jump not in jumps:
                raise ValueError(
                    f"jump: there is no jump host {login.jump!r} (jump_hosts has {', '.join(jumps) or 'none'})"
                )
            if login.jump in passed:
                raise ValueError(f"jump: {' -> '.join([*passed, login.jump])} leads in a circle")
            passed.append(login.jump)
            login = jumps[login.jump]

    def endpoint(self, host: Host) -> SshEndpoint:
        """How the host is reached."""
        return SshEndpoint(
            host=host.address,
            port=host.port,
            user=host.user or self.user,
            host_keys=tuple(host.host_keys),
            identity_file=host.identity_file or self.identity_file,
            via=self._via(host.jump),
            python=host.python,
            base=host.base,
            authorized_keys=host.authorized_keys,
        )

    def _via(self, name: str | None) -> SshEndpoint | None:
        jump = next((jump for jump in self.jump_hosts if jump.name == name), None)
        if jump is None:
            return None
        return SshEndpoint(
            host=jump.address,
            port=jump.port,
            user=jump.user or self.user,
            host_keys=tuple(jump.host_keys),
            identity_file=jump.identity_file or self.identity_file,
            via=self._via(jump.jump),
        )


def read_settings(instance: Instance) -> SshSettings:
    """The instance's settings.

    Raises:
        ProviderError: `INVALID`, naming each setting that is wrong.
    """
    return read_plugin_settings(instance, SshSettings)
