"""The two objects that a node is made of: a pod, and the secret that brings its launch. Pure.

Both bear the node's token as their name, which the cluster takes once.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from shunter_providers.cloud_kit.boot import FOLDER
from shunter_providers.clouds.kubernetes.settings import KubernetesOptions, KubernetesSettings, Toleration
from shunter_providers.contract import HANDLE_VARIABLE, Fault, Intent, Launch, ProviderError, Scope

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
OURS: Final = "shunter"
SELECTOR: Final = f"{MANAGED_BY}={OURS}"
TOKEN: Final = "shunter/token"  # noqa: S105 - the key of a label
JOB: Final = "shunter/job"
NO_TYPE: Final = "node"
"""What nodes are called that have no label of their kind, and no GPU."""
NO_PRODUCT: Final = "GPU"
"""What they are called if they have one that nothing names."""
PRODUCT_LABELS: Final = (
    "nvidia.com/gpu.product",
    "gpu.nvidia.com/class",
    "cloud.google.com/gke-accelerator",
    "amd.com/gpu.product-name",
)
"""Where GPUs are named, by whoever labels nodes."""
_LARGEST_SECRET_BYTES: Final = 1 << 20
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
_GROUP_SIZE: Final = "kueue.x-k8s.io/pod-group-total-count"
_GROUP_TOPOLOGY: Final = "kueue.x-k8s.io/podset-required-topology"
_LAUNCH: Final = "launch"
_LONGEST_LIFE_S: Final = 2.0**31 - 1
"""What the API takes."""
_STAYS: Final[Mapping[str, str]] = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""No autoscaler shall empty a node to save money while a training runs on it."""


def secret_of(intent: Intent) -> dict[str, Any]:
    """What brings the launch.

    Raises:
        ProviderError: `INVALID`: it is larger than a secret may be.
    """
    size = sum(len(content) for content in intent.launch.files.values())
    if size > _LARGEST_SECRET_BYTES:
        detail = f"the launch has {size} bytes, a secret takes at most {_LARGEST_SECRET_BYTES}"
        raise ProviderError(Fault.INVALID, detail, scope=Scope.PROVIDER)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": intent.token, "labels": _labels(intent)},
        "type": "Opaque",
        "immutable": True,
        "data": {name: base64.b64encode(content).decode() for name, content in intent.launch.files.items()},
    }


def pod_of(intent: Intent, settings: KubernetesSettings, options: KubernetesOptions, now: float) -> dict[str, Any]:
    """The pod.

    Args:
        now: seconds since the epoch.
    """
    queue = options.queue or settings.queue
    topology = options.gang_topology or (settings.gang_topology if intent.offer.fabric is not None else "")
    in_gang = intent.gang_size > 1
    labels, annotations = {**settings.labels, **_labels(intent)}, {**_STAYS, **settings.annotations}
    if queue:
        labels[_QUEUE] = queue
        if in_gang:
            labels[_GROUP] = _gang(intent)
            annotations[_GROUP_SIZE] = str(intent.gang_size)
            if topology:
                annotations[_GROUP_TOPOLOGY] = topology
    spec = _spec(intent, settings, options)
    spec["affinity"] = _affinity(intent, settings, topology if in_gang and not queue else "")
    if intent.expires_at is not None:
        spec["activeDeadlineSeconds"] = max(60, int(min(intent.expires_at - now, _LONGEST_LIFE_S)))
    meta = {"name": intent.token, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _spec(intent: Intent, settings: KubernetesSettings, options: KubernetesOptions) -> dict[str, Any]:
    shared_gib = options.shared_memory_gib or settings.shared_memory_gib or intent.offer.memory_gib / 2
    shared: dict[str, Any] = {"medium": "Memory"}
    if shared_gib > 0:
        shared["sizeLimit"] = _mi(shared_gib)
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": settings.grace_s,
        "automountServiceAccountToken": settings.mounts_token,
        "enableServiceLinks": False,
        "shareProcessNamespace": True,  # something must reap what ranks leave behind
        "securityContext": _pod_security(settings),
        "containers": [_container(intent, settings, options)],
        "volumes": [
            {"name": "work", "emptyDir": {}},
            {"name": _LAUNCH, "secret": {"secretName": intent.token, "defaultMode": 0o440}},
            {"name": "shm", "emptyDir": shared},
        ],
        "tolerations": list(_tolerations(intent, settings, options)),
    }
    selector = {**settings.node_selector, **options.node_selector}
    pull = dict.fromkeys((*settings.image_pull_secrets, *options.image_pull_secrets))
    chosen = {
        "nodeSelector": selector,
        "imagePullSecrets": [{"name": name} for name in pull],
        "serviceAccountName": settings.service_account,
        "priorityClassName": options.priority_class or settings.priority_class,
        "schedulerName": settings.scheduler,
    }
    spec |= {name: value for name, value in chosen.items() if value}
    if settings.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return spec


def _container(intent: Intent, settings: KubernetesSettings, options: KubernetesOptions) -> dict[str, Any]:
    variables = {**settings.environment, **intent.launch.environment, HANDLE_VARIABLE: intent.token}
    if not intent.offer.gpus:  # images set it to `all`, and the container runtime would believe them
        variables["NVIDIA_VISIBLE_DEVICES"] = "void"
    return {
        "name": "node",
        "image": intent.image or options.image or settings.image,
        "command": ["sh", "-c", script_of(intent.launch)],
        "env": [{"name": name, "value": value} for name, value in sorted(variables.items())],
        "resources": _resources(intent, settings, options),
        "securityContext": _container_security(settings),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "work", "mountPath": FOLDER},
            {"name": _LAUNCH, "mountPath": f"{FOLDER}/{_LAUNCH}", "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the container's own
        ],
    }


def script_of(launch: Launch) -> str:
    """For `sh`: the agent in the foreground, so that the pod ends with it and gives back what it holds."""
    argv = ["python3" if part == "{python}" else part for part in launch.argv]
    if argv[1:3] == ["agent.pyz", "start"]:
        argv[2] = "run"
    return "\n".join(
        (
            f"cd {FOLDER} || exit 1",
            "umask 077",
            f'for file in {_LAUNCH}/*; do cp -L "$file" . || exit 1; done',
            f"exec {shlex.join(argv)}",
        )
    )


def _resources(intent: Intent, settings: KubernetesSettings, options: KubernetesOptions) -> dict[str, Any]:
    offer = intent.offer
    memory = {"memory": _mi(offer.memory_gib)} if offer.memory_gib else {}
    disk_gib = settings.disk_gib if options.disk_gib is None else options.disk_gib
    disk = {"ephemeral-storage": f"{disk_gib}Gi"} if disk_gib else {}
    devices = {settings.gpu_resource: str(offer.gpus)} if offer.gpus else {}
    if settings.rdma_resource and offer.interconnect == "rdma":
        devices[settings.rdma_resource] = "1"
    wanted = {"cpu": str(offer.cpus), **memory, **disk}
    limits: Mapping[str, Mapping[str, str]] = {"none": {}, "memory": memory, "all": wanted}
    return {"requests": {**wanted, **devices}, "limits": {**limits[settings.limits], **devices}}


def _affinity(intent: Intent, settings: KubernetesSettings, topology: str) -> dict[str, Any]:
    choices = product(_kinds(intent, settings), _places(intent, settings), _capacities(intent, settings))
    terms = [{"matchExpressions": [*kind, *place, *rest], **_avoiding(intent.avoid)} for kind, place, rest in choices]
    node: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    affinity = {"nodeAffinity": node}
    if topology:
        if intent.offer.fabric is not None and topology == settings.gang_topology:  # it had room for all of them
            roomy = {"matchExpressions": [_is_one_of(topology, [intent.offer.fabric])]}
            node["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": 100, "preference": roomy}]
        near = {"labelSelector": {"matchLabels": {JOB: _gang(intent)}}, "topologyKey": topology}
        affinity["podAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [near]}
    if settings.host_network:  # two agents would meet on the same ports
        alone = {"labelSelector": {"matchLabels": {MANAGED_BY: OURS}}, "topologyKey": "kubernetes.io/hostname"}
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [alone]}
    return affinity


def _kinds(intent: Intent, settings: KubernetesSettings) -> list[list[dict[str, Any]]]:
    """By the label of their kind, or by a product where they have none."""
    kind, label = intent.offer.instance_type.partition("x ")[2], settings.type_label
    unlabelled = {"key": label, "operator": "DoesNotExist"}
    if kind in (NO_TYPE, NO_PRODUCT):
        return [[unlabelled, *({"key": one, "operator": "DoesNotExist"} for one in PRODUCT_LABELS)]]
    return [[_is_one_of(label, [kind])], *([unlabelled, _is_one_of(one, [kind])] for one in PRODUCT_LABELS)]


def _places(intent: Intent, settings: KubernetesSettings) -> list[list[dict[str, Any]]]:
    label, region = settings.region_label, intent.offer.region
    unlabelled = [[{"key": label, "operator": "DoesNotExist"}]] if region == settings.region else []
    return [*unlabelled, [_is_one_of(label, [region])]]


def _capacities(intent: Intent, settings: KubernetesSettings) -> list[list[dict[str, Any]]]:
    if intent.offer.capacity == "spot":
        return [[_is_one_of(key, [value])] for key, value in settings.spot_labels.items()]
    return [[{"key": key, "operator": "NotIn", "values": [value]} for key, value in settings.spot_labels.items()]]


def _avoiding(machines: Sequence[str]) -> dict[str, Any]:
    if not machines:
        return {}
    return {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in machines]}


def _tolerations(intent: Intent, settings: KubernetesSettings, options: KubernetesOptions) -> Iterator[dict[str, str]]:
    if intent.offer.gpus:
        yield {"key": settings.gpu_resource, "operator": "Exists", "effect": "NoSchedule"}
    if intent.offer.capacity == "spot":
        for key, value in settings.spot_labels.items():
            yield {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
    for one in (*settings.tolerations, *options.tolerations):
        yield _toleration(one)


def _toleration(one: Toleration) -> dict[str, str]:
    return {name: value for name, value in one.model_dump().items() if value}


def _pod_security(settings: KubernetesSettings) -> dict[str, Any]:
    default = {"seccompProfile": {"type": "RuntimeDefault"}}
    user = settings.run_as_user
    return default if user is None else {**default, "runAsNonRoot": True, "runAsUser": user, "fsGroup": user}


def _container_security(settings: KubernetesSettings) -> dict[str, Any]:
    if settings.run_as_user is not None:
        return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    adds = {"capabilities": {"add": list(settings.capabilities)}} if settings.capabilities else {}
    return {"allowPrivilegeEscalation": False, **adds}


def _labels(intent: Intent) -> dict[str, str]:
    return {MANAGED_BY: OURS, "app.kubernetes.io/name": "shunter-node", TOKEN: intent.token, JOB: _gang(intent)}


def _gang(intent: Intent) -> str:
    """The job, in letters that a label and a name may have."""
    return intent.tags.get("job", intent.token).lower().replace("_", "-")[:63].strip("-.")


def _is_one_of(key: str, values: Sequence[str]) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def _mi(gib: float) -> str:
    return f"{max(1, int(gib * 1024))}Mi"
