"""A cluster as its API is on the wire: strict bodies, names that are taken once, `Status` for whatever goes wrong.

It has pages that grow old, a scheduler, rights, quotas, webhooks, and pods that take a while to go.
"""

from __future__ import annotations

import base64
import shlex
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ValidationError
from shunter_providers.testing import CloudFault, Machine, Phase, Refusal, Reply, Request, Route, WireCloud, new_hex_id
from shunter_providers.testing.booting import NOTHING, Boot
from support.clouds.kube_bodies import DeleteBody, PodBody, SecretBody
from support.clouds.kube_scheduler import node, place

USER: Final = "system:serviceaccount:training:shunter"
H100: Final = "NVIDIA-H100-80GB-HBM3"
GPU_TAINT: Final = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
_PAGE_AT_MOST: Final = 2
"""Small, so that tests see pages."""

Json = dict[str, Any]


def usual_nodes() -> list[Json]:
    """Two GPU nodes in one rack, one in another, and two without GPUs."""
    gpus = {"gpus": 8, "product": H100, "region": "eu-de-1", "taints": [GPU_TAINT]}
    return [
        node("cpu-1", "c4.large", 16, 64, region="eu-de-1"),
        node("cpu-2", "c4.large", 16, 64, region="eu-de-1"),
        node("gpu-1", "h100.8x", 128, 2048, labels={"rack": "a"}, **gpus),
        node("gpu-2", "h100.8x", 128, 2048, labels={"rack": "a"}, **gpus),
        node("gpu-3", "h100.8x", 128, 2048, labels={"rack": "b"}, **gpus),
    ]


class KubernetesCluster(WireCloud):
    """One cluster, of which one namespace is the tenant's."""

    lacks: ClassVar[Collection[CloudFault]] = (
        CloudFault.PAYMENT,
        CloudFault.NO_CAPACITY,  # the scheduler says it of a pod that was made
        CloudFault.TWIN,
        CloudFault.LATE,
        CloudFault.DEARER,
    )
    shows_rate: ClassVar[bool] = False

    def __init__(self, token: str, *, namespace: str = "training", **more: Any) -> None:
        super().__init__(**{"list_lag_s": 0.0, **more})  # what the API answers is never older than what it did
        self.token = token
        self.namespace = namespace
        self.cluster_nodes = usual_nodes()
        self.other_pods: list[Json] = []
        """Of other namespaces."""
        self.secrets: dict[str, Json] = {}
        self.forbidden: set[tuple[str, str]] = set()
        """Verb and resource; `cluster-` before one that is asked for in all namespaces."""
        self.used: set[tuple[str, str, str]] = set()
        """Rights that calls needed: the kind of role that gives it, verb, resource."""
        self.denied: Reply | None = None
        """What a webhook says of every pod."""
        self.old_pages = 0
        """So many times the next page is refused because the listing has grown old."""
        self.states: dict[str, Json] = {}
        """By pod: status fields that it shows instead."""
        self._version = 1000

    def boot_of(self, machine: Machine) -> Boot:
        """The container's program, with its secret in place."""
        spec = machine.order["spec"]
        if "nodeName" not in spec or machine.name not in self.secrets:
            return NOTHING
        files = {name: base64.b64decode(data) for name, data in self.secrets[machine.name]["data"].items()}
        (container,) = spec["containers"]
        prepare = f"mkdir launch && mv {shlex.join(sorted(files))} launch/\n"
        variables = {one["name"]: one["value"] for one in container["env"]}
        return Boot(prepare + container["command"][2], files, variables)

    def routes(self) -> Sequence[Route]:
        """What a node needs."""
        mine = f"/api/v1/namespaces/{self.namespace}"
        return [
            Route("GET", r"/api/v1/nodes", "offers", self._nodes),
            Route("GET", r"/api/v1/pods", "offers", self._every_pod),
            Route("GET", r"/api/v1/namespaces/(?P<name>[^/]+)", "whoami", self._namespace),
            Route("POST", r"/apis/authentication\.k8s\.io/v1/selfsubjectreviews", "whoami", _review),
            Route("POST", f"{mine}/secrets", "other", self._create_secret),
            Route("GET", f"{mine}/secrets", "list", self._list_secrets),
            Route("DELETE", rf"{mine}/secrets/(?P<name>[^/]+)", "other", self._delete_secret),
            Route("POST", f"{mine}/pods", "create", self._create_pod),
            Route("GET", f"{mine}/pods", "list", self._list_pods),
            Route("GET", rf"{mine}/pods/(?P<name>[^/]+)", "get", self._get_pod),
            Route("DELETE", rf"{mine}/pods/(?P<name>[^/]+)", "terminate", self._delete_pod),
        ]

    def authorize(self, request: Request) -> None:
        """A bearer token."""
        if request.headers.get("authorization") != f"Bearer {self.token}":
            raise refused(401, "Unauthorized", "Unauthorized")

    def refusal(self, fault: CloudFault, delay_s: float) -> Reply:
        """In the API server's words."""
        asked = "requests.nvidia.com/gpu=8"
        words = {
            CloudFault.AUTH: (401, "Unauthorized", "Unauthorized"),
            CloudFault.QUOTA: (
                403,
                "Forbidden",
                f'pods "x" is forbidden: exceeded quota: gpus, requested: {asked}, used: {asked}, limited: {asked}',
            ),
            CloudFault.RATE_LIMITED: (429, "TooManyRequests", "The server has received too many requests"),
            CloudFault.RATE_LIMITED_SILENT: (429, "TooManyRequests", "too many requests, please try again later."),
            CloudFault.SERVER_ERROR: (500, "InternalError", "Internal error occurred: etcdserver: request timed out"),
        }
        headers = {"Retry-After": f"{delay_s:g}"} if fault is CloudFault.RATE_LIMITED else {}
        return status(*words[fault], headers=headers)

    def no_route(self, request: Request) -> Reply:
        """As for an API group that the cluster does not have; listings of a strange namespace are empty."""
        if request.method == "GET" and request.path.endswith(("/pods", "/secrets")):
            return self._page(request, [], "List")
        if "/namespaces/" in request.path:
            name = request.path.split("/")[4]
            return status(404, "NotFound", f'namespaces "{name}" not found')
        return status(404, "NotFound", "the server could not find the requested resource")

    # Reading.

    def _nodes(self, request: Request) -> Reply:
        self._allow("list", "nodes", cluster=True)
        return self._page(request, self.cluster_nodes, "NodeList")

    def _every_pod(self, request: Request) -> Reply:
        self._allow("list", "pods", cluster=True)
        ended = ("Succeeded", "Failed") if "status.phase!=" in request.one("fieldSelector") else ()
        mine = [one for one in self._shown() if one["status"]["phase"] not in ended]
        return self._page(request, [*self.other_pods, *mine], "PodList")

    def _namespace(self, request: Request) -> Reply:
        name = request.parts["name"]
        self._allow("get", "namespaces")
        if name != self.namespace:
            raise refused(404, "NotFound", f'namespaces "{name}" not found')
        return Reply(200, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "uid": "ns-uid"}})

    def _list_pods(self, request: Request) -> Reply:
        self._allow("list", "pods")
        return self._page(request, self._shown(), "PodList")

    def _list_secrets(self, request: Request) -> Reply:
        self._allow("list", "secrets")
        shown = list(self.secrets.values())
        if "as=PartialObjectMetadataList" in request.headers.get("accept", ""):
            return self._page(request, [{"metadata": one["metadata"]} for one in shown], "PartialObjectMetadataList")
        return self._page(request, shown, "SecretList")

    def _get_pod(self, request: Request) -> Reply:
        self._allow("get", "pods")
        return Reply(200, self._pod(self._existing(request)))

    def _page(self, request: Request, items: Sequence[Json], kind: str) -> Reply:
        """Sorted by name as in etcd, filtered by labels, a page at a time."""
        wanted = dict(part.split("=", 1) for part in request.one("labelSelector").split(",") if part)
        fitting = [
            one
            for one in sorted(items, key=lambda one: one["metadata"]["name"])
            if all(one["metadata"].get("labels", {}).get(key) == value for key, value in wanted.items())
        ]
        start = int(request.one("continue", "0"))
        if start and self.old_pages:
            self.old_pages -= 1
            raise refused(410, "Expired", "The provided continue parameter is too old to display a consistent list")
        size = min(int(request.one("limit", "100000")), _PAGE_AT_MOST)
        more = {"continue": str(start + size)} if start + size < len(fitting) else {}
        meta = {"resourceVersion": str(self._version), **more}
        return Reply(200, {"apiVersion": "v1", "kind": kind, "metadata": meta, "items": fitting[start : start + size]})

    # Making.

    def _create_secret(self, request: Request) -> Reply:
        self._allow("create", "secrets")
        body = self._read(request, SecretBody, "Secret")
        name = body["metadata"]["name"]
        if name in self.secrets:
            raise refused(409, "AlreadyExists", f'secrets "{name}" already exists')
        self.secrets[name] = {**body, "metadata": self._made(body["metadata"])}
        return Reply(201, self.secrets[name])

    def _create_pod(self, request: Request) -> Reply:
        self._allow("create", "pods")
        if self.denied is not None:
            raise Refusal(*self.denied)
        body = self._read(request, PodBody, "Pod")
        name = body["metadata"]["name"]
        if any(one.name == name for one in self.machines.existing()):
            raise refused(409, "AlreadyExists", f'pods "{name}" already exists')
        body["metadata"] = self._made(body["metadata"])
        self._schedule(body)
        machine = self.machines.make(name, body, 0.0, request.strike, name)
        return Reply(201, self._pod(machine))

    def _schedule(self, body: Json) -> None:
        standing = [*self.other_pods, *(one.order for one in self.machines.existing())]
        chosen, said = place(body, self.cluster_nodes, standing)
        if chosen is not None:
            body["spec"]["nodeName"] = chosen
        body["said"] = said

    def _made(self, meta: Json) -> Json:
        self._version += 1
        made = {"namespace": self.namespace, "uid": new_hex_id(32), "resourceVersion": str(self._version)}
        return {**meta, **made, "creationTimestamp": moment(time.time())}

    def _read(self, request: Request, model: type[BaseModel], kind: str) -> Json:
        if request.one("fieldValidation") != "Strict":
            raise refused(400, "BadRequest", "this fake wants fieldValidation=Strict")
        try:
            return model.model_validate_json(request.body).model_dump(exclude_none=True)
        except ValidationError as exc:
            faults = [(".".join(map(str, one["loc"])), one["type"], one["msg"]) for one in exc.errors()]
        unknown = [place for place, kind_of_fault, _ in faults if kind_of_fault == "extra_forbidden"]
        if unknown:
            listed = ", ".join(f'unknown field "{place}"' for place in unknown)
            raise refused(
                400, "BadRequest", f'{kind} in version "v1" cannot be handled: strict decoding error: {listed}'
            )
        listed = ", ".join(f"{place}: Invalid value: {said}" for place, _, said in faults)
        raise refused(422, "Invalid", f'{kind} "" is invalid: {listed}')

    # Ending.

    def _delete_pod(self, request: Request) -> Reply:
        self._allow("delete", "pods")
        machine = self._existing(request)
        if request.body:
            DeleteBody.model_validate_json(request.body)
        self.machines.end(machine, request.strike)
        return Reply(200, self._pod(machine))

    def _delete_secret(self, request: Request) -> Reply:
        self._allow("delete", "secrets")
        name = request.parts["name"]
        if self.secrets.pop(name, None) is None:
            raise refused(404, "NotFound", f'secrets "{name}" not found')
        return status(200, "", "", kind="Success")

    # What pods show.

    def _existing(self, request: Request) -> Machine:
        name = request.parts["name"]
        machine = self.machines.find(name)
        if machine is None or machine.phase() is Phase.GONE:
            raise refused(404, "NotFound", f'pods "{name}" not found')
        return machine

    def _shown(self) -> list[Json]:
        return [self._pod(machine) for machine in self.machines.visible()]

    def _pod(self, machine: Machine) -> Json:
        order, phase = machine.order, machine.phase()
        meta = dict(order["metadata"])
        if phase is Phase.ENDING:
            meta |= {"deletionTimestamp": moment(time.time()), "deletionGracePeriodSeconds": 15}
        shown = self.states.get(machine.name) or _STATUSES[phase](machine)
        if "nodeName" not in order["spec"] and phase is Phase.RUNNING and machine.name not in self.states:
            shown = _pending(machine)
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": order["spec"], "status": shown}

    def _allow(self, verb: str, resource: str, *, cluster: bool = False) -> None:
        self.used.add(("ClusterRole" if cluster else "Role", verb, resource))
        kind = f"cluster-{resource}" if cluster and (verb, f"cluster-{resource}") in self.forbidden else resource
        if (verb, kind) not in self.forbidden:
            return
        where = "at the cluster scope" if cluster else f'in the namespace "{self.namespace}"'
        said = f'{resource} is forbidden: User "{USER}" cannot {verb} resource "{resource}" in API group "" {where}'
        raise refused(403, "Forbidden", said)


def status(code: int, reason: str, message: str, *, headers: Mapping[str, str] | None = None, kind: str = "") -> Reply:
    """The object that ends every call that has no other answer."""
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": kind or "Failure", "code": code}
    return Reply(code, {**body, "message": message, "reason": reason}, headers or {})


def refused(code: int, reason: str, message: str) -> Refusal:
    """The same, to raise."""
    return Refusal(*status(code, reason, message))


def moment(at: float) -> str:
    """A time as the API writes it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(reason: str, message: str) -> Json:
    """The status of a pod whose container does not start."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [{"name": "node", "ready": False, "state": state}],
    }


def unschedulable(since: float, message: str, reason: str = "Unschedulable") -> Json:
    """The status of a pod without a node."""
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"phase": "Pending", "conditions": [{**condition, "lastTransitionTime": moment(since)}]}


def _review(request: Request) -> Reply:
    info = {"userInfo": {"username": USER, "groups": ["system:serviceaccounts"]}}
    return Reply(201, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "status": info})


def _pending(machine: Machine) -> Json:
    if "nodeName" not in machine.order["spec"]:
        return unschedulable(time.time() - (time.monotonic() - machine.made_at), machine.order["said"])
    if not machine.has_image:
        image = machine.order["spec"]["containers"][0]["image"]
        said = f'rpc error: code = NotFound desc = failed to pull and unpack image "{image}": {image}: not found'
        return waiting("ErrImagePull", said)
    return waiting("ContainerCreating", "")


def _running(machine: Machine) -> Json:
    state = {"running": {"startedAt": moment(time.time())}}
    return {
        "phase": "Running",
        "podIP": "10.244.1.7",
        "hostIP": "10.0.0.7",
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "node", "ready": True, "state": state}],
    }


def _preempted(machine: Machine) -> Json:
    said = "default-scheduler: preempting to accommodate a higher priority pod"
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": said}
    state = {"terminated": {"exitCode": 143, "reason": "Error"}}
    statuses = [{"name": "node", "ready": False, "state": state}]
    return {"phase": "Failed", "conditions": [condition], "containerStatuses": statuses}


_STATUSES: Final[Mapping[Phase, Callable[[Machine], Json]]] = {
    Phase.PENDING: _pending,
    Phase.RUNNING: _running,
    Phase.PREEMPTED: _preempted,
    Phase.ENDING: _running,
    Phase.GONE: _running,
}
