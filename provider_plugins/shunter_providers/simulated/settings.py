"""Settings of the `simulated` plugin: what its cloud has, and how it behaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from shunter_providers.contract import Fault, Instance, ProviderError
from shunter_providers.plugin_settings import read_plugin_settings
from shunter_providers.simulated.faults import Rule


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeType(_Part):
    """One kind of node."""

    name: str = Field(min_length=1)
    usd_per_hour: float = Field(gt=0)
    spot_usd_per_hour: float | None = Field(default=None, gt=0)
    """None: not to be had as spot."""
    gpu_model: str | None = None
    gpus: int = Field(default=0, ge=0)
    gpu_memory_gib: float = Field(default=0.0, ge=0)
    cpu_slots: int = Field(default=0, ge=0)
    """CPU ranks that it takes; only for types without GPUs."""
    cpus: int = Field(default=8, ge=1)
    memory_gib: float = Field(default=64.0, gt=0)
    disk_gib: float = Field(default=500.0, gt=0)
    nodes_per_region: int = Field(default=1000, ge=0)
    interconnect: Literal["any", "ethernet", "rdma"] = "ethernet"
    network_gbps: float | None = Field(default=None, gt=0)


class Region(_Part):
    """One place."""

    name: str = Field(min_length=1)
    jurisdiction: str = ""


_TYPES = (
    NodeType(name="cpu-2", usd_per_hour=0.10, spot_usd_per_hour=0.04, cpu_slots=2, cpus=2, memory_gib=8),
    NodeType(name="cpu-4", usd_per_hour=0.20, spot_usd_per_hour=0.08, cpu_slots=4, cpus=4, memory_gib=16),
    NodeType(
        name="h100-8",
        usd_per_hour=24.0,
        spot_usd_per_hour=12.0,
        gpu_model="H100",
        gpus=8,
        gpu_memory_gib=80,
        cpus=192,
        memory_gib=2048,
        interconnect="rdma",
    ),
    NodeType(name="a100-1", usd_per_hour=1.6, spot_usd_per_hour=0.7, gpu_model="A100", gpus=1, gpu_memory_gib=80),
)


class FleetSettings(_Part):
    """How the agents of a fleet behave. Times in seconds; shares between 0 and 1."""

    prepare_s: float = Field(default=0.5, ge=0)
    """From the order to run until the ranks are up."""
    run_s: float | None = Field(default=None, gt=0)
    """How long a training runs; None: until it is stopped. The document's variable `SIMULATED_RUN_S` comes first."""
    run_jitter: float = Field(default=0.0, ge=0)
    """Trainings run longer by up to this share."""
    stop_s: float = Field(default=0.5, ge=0)
    """From the order to stop until the ranks are down."""
    step_s: float = Field(default=1.0, gt=0)
    """One step of a training. Each is one metric point."""
    log_every_s: float | None = Field(default=60.0, gt=0)
    """Log chunks go up this often, and at the end; None: at the end only."""
    checkpoint_every_s: float | None = Field(default=None, gt=0)
    """None: only when stopped, done, or asked for one."""
    failing: float = Field(default=0.0, ge=0, le=1)
    """This share of the nodes' programs fails at its end."""
    lost: float = Field(default=0.0, ge=0, lt=1)
    """This share of the exchanges reaches the service, and the answer is lost."""
    duplicated: float = Field(default=0.0, ge=0, lt=1)
    """This share is sent twice."""
    late: float = Field(default=0.0, ge=0, lt=1)
    """This share is `late_s` under way."""
    late_s: float = Field(default=5.0, ge=0)
    connections: int = Field(default=64, ge=1, le=4096)
    """Kept by all agents together, as behind a proxy: so many exchanges may be under way."""
    ears: bool = True
    """Agents listen beside their exchanges, as real ones do: one connection more for each."""
    timeout_s: float = Field(default=10.0, gt=0)
    idle_exit_s: float = Field(default=30.0, gt=0)
    """A fleet without any node to play ends after this; the next create starts it again."""


class SimulatedSettings(_Part):
    """Times in seconds."""

    cloud: str = Field(default="", pattern=r"^[a-z0-9-]{0,40}$")
    """Instances with the same name share one cloud; empty: the instance's own."""
    account: str = Field(default="simulated", min_length=1)
    types: Sequence[NodeType] = _TYPES
    regions: Sequence[Region] = (
        Region(name="eu-sim", jurisdiction="DE"),
        Region(name="us-sim", jurisdiction="US"),
    )
    nodes: Literal["agents", "fleet", "bare"] = "agents"
    """`agents`: real agent processes on this machine. `fleet`: one process that plays the agents of all nodes, for
    thousands of them. `bare`: entries in the ledger only."""
    fleet: FleetSettings = FleetSettings()
    """How the fleet's agents behave."""
    quota_gpus: int | None = Field(default=None, ge=0)
    runs_images: bool = False
    """Jobs may name a container image. Nothing runs it: the nodes are made up."""
    boot_s: float = Field(default=1.0, ge=0)
    boot_jitter_s: float = Field(default=0.0, ge=0)
    terminate_s: float = Field(default=0.0, ge=0)
    """How long a node still exists, and bills, after its end was asked for."""
    price_drift: float = Field(default=0.0, ge=0, lt=1)
    """Prices move by up to this share, once a period."""
    capacity_swing: float = Field(default=0.0, ge=0, le=1)
    """Up to this share of the capacity is other people's, anew each period."""
    period_s: float = Field(default=60.0, gt=0)
    spot_mean_life_s: float = Field(default=3600.0, gt=0)
    spot_notice_s: float = Field(default=30.0, ge=0)
    seed: int = 0
    faults: Sequence[Rule] = ()
    """The fault script. A file `<cloud>.faults.json` beside the ledger replaces it while the cloud is in use."""


def read_settings(instance: Instance) -> SimulatedSettings:
    """The instance's settings.

    Raises:
        ProviderError: `INVALID`, naming each setting that is wrong.
    """
    settings = read_plugin_settings(instance, SimulatedSettings)
    mixed = [kind.name for kind in settings.types if (kind.gpus > 0) == (kind.cpu_slots > 0)]
    if mixed:
        detail = f"types {', '.join(mixed)}: give either gpus or cpu_slots"
        raise ProviderError(Fault.INVALID, f"providers.{instance.name}: {detail}")
    return settings
