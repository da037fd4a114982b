"""The provider contract: six verbs, frozen data in and out, one kind of error.

A plugin is a class that fulfils `Provider`, published as an entry point in the group `shunter.providers`. Each verb may
raise `ProviderError` and nothing else; none of them waits for a node to become ready; the core enforces time-outs.
Only the standard library is needed here, so that a plugin's tests need no more than this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

from shunter_providers.errors import Fault as Fault
from shunter_providers.errors import ProviderError as ProviderError
from shunter_providers.errors import Scope as Scope

CONTRACT_VERSION = 1

HANDLE_VARIABLE = "SHUNTER_NODE_HANDLE"
"""Set it in the agent's environment where the handle is known then: the service tells twins apart by it."""


class Availability(StrEnum):
    """What the provider says of an offer at the moment."""

    AVAILABLE = "available"
    UNKNOWN = "unknown"
    NO_QUOTA = "no_quota"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Price:
    """Parts of a price in USD. `billed` is false for one's own hardware, where every part is 0."""

    gpu_usd_per_hour: float = 0.0
    disk_usd_per_hour: float = 0.0
    setup_usd: float = 0.0
    billed: bool = True
    as_of: str | None = None
    """The day it was read, ISO 8601, where it is not of this moment."""
    live: bool = True
    """False: from the bundled catalogue."""
    currency: str = "USD"
    """What the provider bills in (ISO 4217)."""
    usd_per_unit: float = 1.0
    """The rate at which `currency` was made USD."""
    confidence: str = ""
    """Of catalogue prices: `high`, `medium`, `low`, `derived`, `average`, `stale`."""

    @property
    def usd_per_hour(self) -> float:
        """All that accrues by time."""
        return self.gpu_usd_per_hour + self.disk_usd_per_hour


@dataclass(frozen=True, slots=True)
class Offer:
    """One kind of node that can be had now."""

    instance_type: str
    region: str
    jurisdiction: str
    price: Price
    gpu_model: str | None = None
    gpus: int = 0
    gpu_memory_gib: float = 0.0
    cpus: int = 0
    memory_gib: float = 0.0
    disk_gib: float = 0.0
    capacity: str = "on_demand"
    kind: str = "vm"
    availability: Availability = Availability.UNKNOWN
    count: int | None = None
    """How many nodes of it can be had at once; None: unknown."""
    free: int | None = None
    """For shared hosts: GPUs (or CPU slots when `gpus` is 0) that are free at this moment."""
    cpu_slots: int = 0
    """CPU ranks that this node takes, for CPU jobs; 0: does not take any."""
    slot_indices: Sequence[int] = ()
    """For shared hosts: the GPUs (or CPU slots) that this offer is made of. Empty: 0 up to `gpus` (or `cpu_slots`)."""
    host_stride: int = 0
    """For an offer of several shared hosts: slot `i` is device `i % host_stride` of host `i // host_stride`, and the
    nodes of a gang lie on hosts of their own. 0: all slots are one host's."""
    exclusive: bool = False
    """With `host_stride`: a node takes every slot of its host, however few ranks it has."""
    free_on_hosts: Sequence[int] = ()
    """With `host_stride`: how many slots each host has free, where it is known."""
    host_names: Sequence[str] = ()
    """With `host_stride`: the hosts as `NodeView.addresses` names them (`machine`), in the order of their slots."""
    interconnect: str = "any"
    """`rdma`, `ethernet` (private, any port), `none` (only ports that the provider forwards), `any`: unknown."""
    fabric: str | None = None
    """Nodes of the same group can be joined; None: no group is known."""
    network_gbps: float | None = None
    """Between two of its nodes, in each direction, in Gbit/s of a whole node; None: not known, and a plan takes what is
    usual for the interconnect."""
    valid_until: float | None = None
    """Seconds since the epoch after which the offer is void; None: unknown."""


@dataclass(frozen=True, slots=True)
class OfferQuery:
    """What the planner looks for; a plugin may ignore any part, the planner filters again."""

    gpu_models: Sequence[str] = ()
    regions: Sequence[str] = ()
    capacity: str = "on_demand"


@dataclass(frozen=True, slots=True)
class Launch:
    """Starts the agent: files to put into one folder, and the command to run there.

    `argv[0]` may be `{python}`, which the plugin or node replaces by a Python (3.8 or newer) of the node.
    """

    argv: Sequence[str]
    files: Mapping[str, bytes]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Intent:
    """One node that shall exist. Its row in the ledger was committed before `create` is called."""

    token: str
    tags: Mapping[str, str]
    offer: Offer
    launch: Launch
    rank: int
    gang_size: int
    slots: int = 0
    """Ranks of the job on this node: GPUs, or CPU slots where the offer has no GPU."""
    slot_indices: Sequence[int] = ()
    """Which GPUs (or CPU slots) of a shared host were reserved for this node."""
    image: str | None = None
    public_key: str | None = None
    host_key: str | None = None
    user_data: str | None = None
    expires_at: float | None = None
    alone_s: float | None = None
    """A machine on which no agent runs so long after its first boot ends itself, where its plugin tells it so."""
    spared_boot_id: str = ""
    """Of the machine on which the worker runs: that one never ends itself, whoever's node it plays."""
    options: Mapping[str, Any] = field(default_factory=dict)
    avoid: Sequence[str] = ()
    """Machines (`NodeView.addresses["machine"]`) whose nodes this job refused: choose others, or say `NO_CAPACITY`."""


class NodeCondition(StrEnum):
    """What the provider says of a node."""

    QUEUED = "queued"  # it waits for capacity and bills nothing; its time to become ready has not begun
    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SshEndpoint:
    """Where and as whom the core reaches a node by SSH (`bootstrap: ssh`).

    Known late, and it may change while the node runs (the port of a container does).
    """

    host: str
    port: int = 22
    user: str = "root"
    host_keys: Sequence[str] = ()
    """Public keys of which the host has to show one (`ssh-ed25519 AAAA…`). Empty, like the next: the one that the
    intent injected."""
    host_key_fingerprints: Sequence[str] = ()
    """`SHA256:…` as the provider tells them; empty: it does not, and only the host key of the intent is trusted."""
    identity_file: str | None = None
    """Path of the private key to log in with. None: the job's own, whose public half the intent injected."""
    via: SshEndpoint | None = None
    """The jump host. It has keys and an identity of its own: nothing is injected there."""
    python: str = "python3"
    """A Python, 3.8 or newer, of the node."""
    base: str = "~/.shunter"
    """The folder on the node under which everything of ours lies."""
    authorized_keys: str = "~/.ssh/authorized_keys"
    """The file into which the keys of users go who open a shell. Empty: nobody opens one."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as its provider shows it."""

    handle: str
    token: str | None
    condition: NodeCondition
    reason: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """`public`, `private`, `interface`, as far as known; `machine`: which one it is, where the provider tells."""
    billed_usd_per_hour: float | None = None
    ssh: SshEndpoint | None = None
    """With `bootstrap: ssh`: how to reach it, once that is known; it may change."""
    fault: Fault | None = None
    """Of one that `FAILED`: the fault that a create call would have named, had it been known then; `reason` holds the
    provider's words. `INVALID`: no such node ever comes up (its image does not exist), and the job fails with it; where
    the scope is `ACCOUNT` or `PROVIDER`, the instance's own settings are wrong, not the job. None: it is not known."""
    scope: Scope = Scope.OFFER
    """How far the fault reaches."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the credentials are."""

    account: str
    limits: Mapping[str, Any] = field(default_factory=dict)


class SelfStop(StrEnum):
    """What happens to the bill when a node stops itself."""

    ENDS_BILLING = "ends_billing"
    STOPS_COMPUTE = "stops_compute"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `calls` in any `per_s` seconds, for one account."""

    calls: int
    per_s: float
    kind: str = "any"
    """`any`: every call; `create`: those that make a node."""

    @property
    def interval_s(self) -> float:
        """Between calls that come evenly."""
        return self.per_s / self.calls

    @property
    def tolerance_s(self) -> float:
        """How far calls may run ahead of that: all at once, then evenly."""
        return self.per_s - self.interval_s


@runtime_checkable
class Pacer(Protocol):
    """Shares out the calls of an account among everybody who makes them, in this process and in others."""

    async def take_turn(self, bucket: str, rate: Rate, at_most_s: float) -> float:
        """Reserve a call; how many seconds to wait before it.

        More than `at_most_s`: nothing was reserved, ask again after that time.
        """
        ...

    async def hold_off(self, bucket: str, rate: Rate, for_s: float) -> None:
        """Nobody calls for so long: the provider said so."""
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a plugin declares; the core asks, it never tries."""

    contract_version: int = CONTRACT_VERSION
    bootstrap: str = "launch"
    """Who starts the agent: `launch`, `user_data` (the plugin, with the intent's launch), `ssh`, `exec` (the core)."""
    idempotency: str = "search_only"
    """`token` and `unique_name`: a create call may be sent again. `search_only`: that makes a twin."""
    kinds: Sequence[str] = ("vm",)
    """What its nodes are: `vm`, `container`, `metal`, `batch`."""
    capacities: Sequence[str] = ("on_demand",)
    """`on_demand`, `spot`, `reserved`, as far as it can make them."""
    price_source: str = "live"
    """`live`: from the API; `catalogue`: bundled and dated; `mixed`; `none`: its nodes bill nothing."""
    fabric: str = "none"
    """What joins nodes: `none`, `ethernet`, `rdma`."""
    pacing: Sequence[Rate] = ()
    """What the provider allows an account."""
    options: Sequence[str] = ()
    """Names that a job may use in `placement.options.NAME`; the plugin checks their values."""
    spends_setup_fee: bool = False
    """A node costs money once before it does anything: only where a job names the instance."""
    self_stop: SelfStop = SelfStop.NONE
    """Other than `NONE`: a node whose service is gone for longer than its lease ends its own machine."""
    power_off: str = ""
    """How a node does that, as a shell command of its agent, where its system's own does not do it; `{handle}` stands
    for the node's handle (only where the core starts agents: a plugin's `launch` is made before there is one)."""
    visibility_delay_s: float = 0.0
    verifies: bool = True
    """What nodes report of themselves is held against their offer; not where machines are made up (`simulated`)."""
    readiness_deadline_s: float = 600.0
    scan_interval_s: float = 15.0
    create_timeout_s: float = 60.0
    bills: bool = True
    shares_file_system: bool = False
    """Nodes see the service's data directory (`local`)."""
    shared_hosts: bool = False
    """Several jobs may sit on one host: the core reserves slots (unique rows) before `create`."""
    console: bool = False
    """It is a `ShowsConsole`."""
    runs_images: bool = False
    """Its nodes run the container image that an intent names. Else no job that names one is placed here."""
    runs_images_by_docker: bool = False
    """With `runs_images`: its nodes are machines that boot a system of their own; their agent runs the image there."""
    lease_s: float | None = 7200.0
    """Default dead-man lease of its nodes; None: no expiry (nodes that bill nothing)."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A configured instance of a plugin: `[providers.NAME] plugin = "…"`."""

    name: str
    plugin: str
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    data_dir: str = ""
    """A folder that the instance may use for its own state."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables in which credentials may stand (`plugin_settings`)."""
    pacer: Pacer | None = field(default=None, repr=False, compare=False)
    """Shared with every process that uses the account; None: the plugin keeps its own pace."""
    deployment: str = ""
    """The deployment that uses it; empty where nobody said."""


@runtime_checkable
class Provider(Protocol):
    """What a plugin fulfils. One object per configured instance, made once per process.

    The class takes an `Instance`, checks its settings without I/O, and raises `INVALID`, naming the setting.
    """

    capabilities: ClassVar[Capabilities]

    async def whoami(self) -> Identity:
        """Prove the credentials and name the account they belong to."""
        ...

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """Everything that can be had now and that the query does not exclude."""
        ...

    async def create(self, intent: Intent) -> str:
        """Begin to make the node and return its handle; never wait for it to be ready."""
        ...

    async def get(self, handle: str) -> NodeView:
        """The node as it is now; a handle that does not exist is `GONE`, not an error."""
        ...

    async def list_owned(self, deployment: str) -> Sequence[NodeView]:
        """Everything of this deployment that exists or can bill, complete, or an error."""
        ...

    async def terminate(self, handle: str) -> bool:
        """Get rid of the node and what is left of it. True: the provider says it is gone; False: not yet.

        A handle that does not exist is True. Safe to repeat.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


@runtime_checkable
class ShowsConsole(Protocol):
    """A provider that tells what its nodes wrote while they booted (`Capabilities.console`)."""

    async def console(self, handle: str) -> str:
        """The last of it, for people; empty: there is nothing yet, or no such node."""
        ...
