"""What an operator and a job may set for a cluster, and which cluster that is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from shunter_providers.cloud_kit.settings import CloudSettings
from shunter_providers.clouds.kubernetes import access
from shunter_providers.clouds.kubernetes.access import Access
from shunter_providers.contract import Fault, Instance, ProviderError
from shunter_providers.plugin_settings import Variables

Usd = Annotated[float, Field(gt=0, lt=1e6)]
Gib = Annotated[float, Field(gt=0, le=65536)]
Country = Annotated[str, Field(pattern=r"^(EEA|[A-Z]{2})$")]
LabelKey = Annotated[
    str, Field(pattern=r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$")
]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")]
NameOrNone = Annotated[str, Field(pattern=r"^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?)?$")]

_SPOT: Final[Mapping[str, str]] = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-spot": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
}


class Toleration(BaseModel):
    """A taint that pods may go past."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str = ""
    """Empty, with `operator: Exists`: every taint."""
    operator: Literal["Equal", "Exists"] = "Exists"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Empty: all."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.operator == "Equal" and not self.key:
            raise ValueError("a toleration with `Equal` needs a key")
        if self.operator == "Exists" and self.value:
            raise ValueError("a toleration with `Exists` takes no value")
        return self


class KubernetesSettings(CloudSettings):
    """Settings of the `kubernetes` plugin."""

    kubeconfig: Annotated[str, Variables("KUBECONFIG")] = ""
    """Path of a kubeconfig; several as `kubectl` takes them, separated by `:`. Where nothing says how to get in: the
    service account of the pod that the service runs in, else `~/.kube/config`."""
    kubeconfig_secret: SecretStr | None = None
    """The kubeconfig itself, instead of its path."""
    context: str = ""
    """Which of the kubeconfig's. Empty: the current one."""
    server: str = Field(default="", pattern=r"^(https?://.+)?$")
    """Address of the API, for use with `token` or `token_file`, instead of a kubeconfig."""
    token: SecretStr | None = None
    """A bearer token, best a service account's with the rights of `deploy/kubernetes/rights.yaml`."""
    token_file: str = ""
    """A file that somebody keeps fresh; it is read every minute."""
    ca_file: str = ""
    """Certificates of the authority that signed the server's. Empty: those that everybody trusts."""
    namespace: NameOrNone = ""
    """Where the pods stand; best one of their own. Empty: the context's, else `default`."""

    image: str = Field(default="pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime", min_length=1)
    """For jobs that name none. It needs `sh` and `python3`, 3.8 or newer."""
    image_pull_secrets: tuple[Name, ...] = ()
    """Secrets of the namespace that open private registries."""
    service_account: NameOrNone = ""
    """Empty: the namespace's default. Its token is not mounted unless `mounts_token` says so."""
    mounts_token: bool = False
    """Whether programs of jobs may act on the cluster as the service account."""
    run_as_user: int | None = Field(default=None, ge=1, le=2**31 - 1)
    """A user id that is not root, with no capability at all, as the Pod Security Standard `restricted` demands.
    None: the image's user."""
    capabilities: tuple[str, ...] = ()
    """Linux capabilities to add, such as `IPC_LOCK` where RDMA needs it. Not with `run_as_user`."""
    host_network: bool = False
    """Pods use their node's network, and no two of ours stand on one node."""
    environment: Mapping[str, str] = Field(default_factory=dict)
    """Variables of every container, such as NCCL's for the cluster's network."""
    node_selector: Mapping[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels of the only nodes that are used."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of nodes that are used all the same. That of GPU nodes (`nvidia.com/gpu`) is tolerated in any case."""
    labels: Mapping[LabelKey, LabelValue] = Field(default_factory=dict)
    """More labels of the pods."""
    annotations: Mapping[LabelKey, str] = Field(default_factory=dict)
    """More annotations of the pods."""
    priority_class: NameOrNone = ""
    """Empty: the cluster's default."""
    scheduler: NameOrNone = ""
    """Another scheduler than the cluster's own."""
    queue: NameOrNone = ""
    """A local queue of Kueue, which then lets the pods of a gang in together. A pod may wait there as long as its job's
    `limits.max_queue_s` allows."""
    grace_s: int = Field(default=60, ge=1, le=3600)
    """How long a pod that is evicted may take to save and go."""

    gpu_resource: str = Field(default="nvidia.com/gpu", min_length=1)
    """What nodes call their GPUs, such as `amd.com/gpu`."""
    rdma_resource: str = ""
    """What a pod of a whole node asks for to be on the fast network, such as `rdma/ib`; nodes that have it are joined
    by `rdma`."""
    shared_memory_gib: Gib | None = None
    """Size of `/dev/shm`, which counts as memory of the pod. None: half of that."""
    disk_gib: int = Field(default=0, ge=0, le=65536)
    """Disk of the node that a pod asks for. 0: it takes what there is."""
    share_of_node: float = Field(default=0.9, gt=0, le=1)
    """How much of its part of a node's processors and memory a pod asks for; the rest is left to the cluster's own
    pods."""
    limits: Literal["none", "memory", "all"] = "memory"
    """What a pod may not use more of than it asks for. `all` is for namespaces whose quota wants limits."""

    type_label: LabelKey = "node.kubernetes.io/instance-type"
    """The label that tells kinds of nodes apart; nodes without it go by the product of their GPU."""
    region_label: LabelKey = "topology.kubernetes.io/region"
    """The label of a node's region, which `placement.regions` names."""
    region: str = Field(default="cluster", min_length=1)
    """What the region of nodes without that label is called."""
    jurisdictions: Mapping[str, Country] = Field(default_factory=dict)
    """The country of each region: `{"eu-de-*": "DE", "cluster": "FR"}`. A region that is not named lies nowhere."""
    spot_labels: Mapping[LabelKey, LabelValue] = Field(default_factory=lambda: dict(_SPOT))
    """A node with one of these may be taken away."""
    gang_topology: Annotated[str, Field(pattern=r"^[-_./A-Za-z0-9]*$")] = ""
    """A label of nodes, such as a rack's: the pods of one job go where its value is the same. Empty: anywhere."""
    network_gbps: Mapping[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Gbit/s between two whole nodes, in each direction, by their kind (or the product of their GPU); `*`: any other.
    Plans of several nodes compute with it. A kind without: what is usual."""
    prices: Mapping[str, Usd] = Field(default_factory=dict)
    """USD an hour of a whole node, by its kind (or the product of its GPU); `*`: any other. Parts of nodes cost their
    part. Kinds without a price are not used then; without any price nothing is billed."""
    spot_prices: Mapping[str, Usd] = Field(default_factory=dict)
    """The same for nodes that may be taken away; where it names none, `prices` holds."""
    unschedulable_after_s: float = Field(default=60.0, ge=0, le=86400)
    """A pod that finds no node for so long has failed for want of room."""
    autoscales: bool = False
    """Nodes come while pods wait: what is full now may still be had, and `unschedulable_after_s` should be minutes."""

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        ways = [name for name in ("kubeconfig_secret", "server") if getattr(self, name)]
        if len(ways) > 1:
            raise ValueError(f"{' and '.join(ways)} are two ways into a cluster: set one")
        if self.server and not (self.token or self.token_file):
            raise ValueError("server needs token or token_file")
        if not self.server and (self.token or self.token_file or self.ca_file):
            raise ValueError("token, token_file and ca_file need server")
        if self.run_as_user is not None and self.capabilities:
            raise ValueError("capabilities are root's: they do not go with run_as_user")
        return self


class KubernetesOptions(BaseModel):
    """What a job may say in `placement.options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: Annotated[str, Field(pattern=r"^[a-z0-9][A-Za-z0-9._/:@-]{0,510}$")] | None = None
    node_selector: Mapping[LabelKey, LabelValue] = Field(default_factory=dict)
    """More labels that a node must have."""
    tolerations: tuple[Toleration, ...] = ()
    priority_class: Name | None = None
    queue: Name | None = None
    image_pull_secrets: tuple[Name, ...] = ()
    shared_memory_gib: Gib | None = None
    disk_gib: int | None = Field(default=None, ge=0, le=65536)
    gang_topology: LabelKey | None = None


def access_of(instance: Instance, settings: KubernetesSettings) -> Access:
    """The cluster that the settings name.

    Raises:
        ProviderError: `INVALID`: there is none, or it cannot be understood; nothing of the credentials is in it.
    """
    try:
        return _access(instance, settings)
    except (OSError, ValueError) as exc:
        detail = f"{exc.strerror}: {exc.filename}" if isinstance(exc, OSError) else str(exc)
        raise ProviderError(Fault.INVALID, f"providers.{instance.name}: {detail}") from None


def _access(instance: Instance, settings: KubernetesSettings) -> Access:
    if settings.server:
        source = access.TokenFile(_path(settings.token_file)) if settings.token_file else _token(settings)
        authority = _path(settings.ca_file).read_bytes() if settings.ca_file else None
        return access.at_address(settings.server, source, f"{settings.server} {settings.namespace}", authority)
    if settings.kubeconfig_secret is not None:
        text = settings.kubeconfig_secret.get_secret_value()
        return access.from_kubeconfig([text], settings.context, Path.home())
    found = None if settings.kubeconfig or settings.context else access.in_cluster(instance.environment)
    if found is not None:
        return found
    paths = [_path(one) for one in settings.kubeconfig.split(":") if one] or [_path("~/.kube/config")]
    there = [path for path in paths if path.exists()]
    if not there:
        listed = ", ".join(str(path) for path in paths)
        raise ValueError(f"there is no kubeconfig ({listed}): set kubeconfig, or server and token")
    return access.from_kubeconfig([path.read_text() for path in there], settings.context, there[0].parent)


def _token(settings: KubernetesSettings) -> access.TokenSource:
    return access.TokenSource(settings.token.get_secret_value() if settings.token is not None else "")


def _path(text: str) -> Path:
    return Path(re.sub(r"^file://", "", text)).expanduser()
