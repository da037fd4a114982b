"""RunPod as its API v2 is on the wire: strict bodies, names that make twins, errors as RFC 9457 has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from shunter_providers.testing import CloudFault, Machine, Phase, Refusal, Reply, Request, Route, WireCloud, new_hex_id
from shunter_providers.testing.booting import Boot, from_container

_BODIES: Final[Mapping[CloudFault, tuple[int, str, str]]] = {
    CloudFault.AUTH: (401, "Unauthorized", "invalid bearer token"),
    CloudFault.PAYMENT: (402, "Payment Required", "insufficient balance to deploy this pod"),
    CloudFault.NO_CAPACITY: (
        400,
        "Bad Request",
        "There are no longer any instances available with the requested specifications. Please refresh and try again.",
    ),
    CloudFault.QUOTA: (403, "Forbidden", "your account cannot access the requested GPU pool"),
    CloudFault.RATE_LIMITED: (429, "Too Many Requests", "rate limit exceeded for the minute window"),
    CloudFault.RATE_LIMITED_SILENT: (429, "Too Many Requests", "rate limit exceeded for the minute window"),
    CloudFault.SERVER_ERROR: (503, "Service Unavailable", "upstream is not available"),
}
_STATUSES: Final = {
    Phase.PENDING: "PROVISIONING",
    Phase.RUNNING: "RUNNING",
    Phase.PREEMPTED: "EXITED",
    Phase.ENDING: "TERMINATED",
}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Gpu(_Body):
    id: str
    count: int = Field(default=1, ge=1)
    allowedCudaVersions: list[str] | None = None
    minCudaVersion: str | None = Field(default=None, pattern=r"^\d+\.\d+$")


class _Cpu(_Body):
    id: str = Field(min_length=1)
    vcpuCount: int = Field(ge=2)


class _PodOrder(_Body):
    """`CreatePodRequest`, which takes no other field."""

    name: str = Field(min_length=1)
    image: str | None = None
    templateId: str | None = Field(default=None, min_length=1)
    args: str | None = None
    disk: int | None = Field(default=None, ge=1)
    env: dict[str, str] = {}
    ports: list[str] = []
    registry: str | None = None
    cloud: Literal["SECURE", "COMMUNITY"] = "SECURE"
    cpu: _Cpu | None = None
    gpu: _Gpu | None = None
    dataCenterIds: list[str] = []
    globalNetworking: bool = False
    mounts: dict[str, Any] | None = None
    startJupyter: bool = False
    startSsh: bool = False

    @model_validator(mode="after")
    def _needs_an_image(self) -> _PodOrder:
        if self.image is None and self.templateId is None:
            raise ValueError("image is required unless templateId is set")
        return self


def gpu(id_: str, memory: int, usd: float, availability: str = "HIGH", centers: Sequence[str] = ()) -> dict[str, Any]:
    """An entry of the catalogue, available at some data centers."""
    return {
        "id": id_,
        "name": id_.removeprefix("NVIDIA "),
        "pool": None,
        "manufacturer": "NVIDIA",
        "memory": memory,
        "secure": True,
        "community": True,
        "price": {"secure": usd, "community": round(0.7 * usd, 2)},
        "maxCount": {"secure": 8, "community": 4},
        "availability": availability,
        "dataCenters": [{"id": one, "name": one, "availability": availability} for one in centers],
    }


def cpu(id_: str, usd: float, centers: Sequence[str]) -> dict[str, Any]:
    """A CPU flavour; the price is for one vCPU."""
    return {
        "id": id_,
        "name": "Compute-Optimized",
        "group": "Gen 3",
        "vcpu": {"min": 2, "max": 8},
        "ramGbPerVcpu": 2.0,
        "price": {"securePerVcpu": usd, "serverlessPerVcpu": usd},
        "availability": "HIGH",
        "dataCenters": [{"id": one, "name": one, "availability": "HIGH"} for one in centers],
    }


class RunpodCloud(WireCloud):
    """One account."""

    lacks: ClassVar[Collection[CloudFault]] = (CloudFault.NO_IMAGE,)  # it does not say why a pod does not come up

    def __init__(self, key: str, **more: Any) -> None:
        super().__init__(**more)
        self._key = key
        self.gpus = [
            gpu("NVIDIA H100 80GB HBM3", 80, 2.99, centers=("EU-RO-1", "US-TX-3")),
            gpu("NVIDIA GeForce RTX 4090", 24, 0.44, centers=("EUR-IS-1", "CA-MTL-1")),
            gpu("NVIDIA B200", 180, 5.99, "NONE"),
        ]
        self.cpus = [cpu("cpu3c", 0.03, ("EU-RO-1", "US-TX-3"))]
        self.cluster_pods: list[Mapping[str, Any]] = []

    def boot_of(self, machine: Machine) -> Boot:
        """The container's own program, which knows its pod's id."""
        return from_container({**machine.order["env"], "RUNPOD_POD_ID": machine.id})

    def routes(self) -> Sequence[Route]:
        """The part of the API that a node needs."""
        return [
            Route("GET", r"/v2/catalog/gpus", "offers", self._gpus),
            Route("GET", r"/v2/catalog/cpus", "offers", lambda request: Reply(200, {"cpus": self.cpus})),
            Route("POST", r"/v2/pods", "create", self._create),
            Route("GET", r"/v2/pods", "list", self._list),
            Route("GET", r"/v2/pods/(?P<id>[^/]+)", "get", self._get),
            Route("DELETE", r"/v2/pods/(?P<id>[^/]+)", "terminate", self._delete),
        ]

    def authorize(self, request: Request) -> None:
        """A bearer token."""
        if request.headers.get("authorization") != f"Bearer {self._key}":
            raise _refused(401, "Unauthorized", "missing bearer token")

    def refusal(self, fault: CloudFault, delay_s: float) -> Reply:
        """In the vendor's words."""
        status, title, detail = _BODIES[fault]
        headers = {"Retry-After": f"{delay_s:g}"} if fault is CloudFault.RATE_LIMITED else {}
        return _problem(status, title, detail, headers=headers)

    def no_route(self, request: Request) -> Reply:
        """404."""
        return _problem(404, "Not Found", "resource not found")

    def _gpus(self, request: Request) -> Reply:
        count, tier = int(request.one("count", "1")), request.one("cloud", "SECURE").lower()
        shown = [one for one in self.gpus if one["maxCount"][tier] >= count]
        if request.one("include") != "AVAILABILITY":
            hidden = ("availability", "dataCenters")
            shown = [{name: value for name, value in one.items() if name not in hidden} for one in shown]
        return Reply(200, {"gpus": shown})

    def _create(self, request: Request) -> Reply:
        try:
            order = _PodOrder.model_validate_json(request.body)
        except ValidationError as exc:
            errors = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in exc.errors()]
            raise _refused(422, "Unprocessable Entity", "Request validation failed.", errors) from None
        if (order.gpu is None) == (order.cpu is None):
            raise _refused(400, "Bad Request", "exactly one of gpu or cpu has to be given")
        usd = self._usd_per_hour(order)
        machine = self.machines.make(order.name, order.model_dump(), usd, request.strike, new_hex_id(14))
        return Reply(201, _pod(machine))

    def _usd_per_hour(self, order: _PodOrder) -> float:
        known = {one["id"]: one for one in (*self.gpus, *self.cpus)}
        chosen = order.gpu or order.cpu
        assert chosen is not None
        if chosen.id not in known:
            raise _refused(400, "Bad Request", f"unknown compute type {chosen.id}")
        kind = known[chosen.id]
        centers = [one["id"] for one in kind["dataCenters"]]
        if order.dataCenterIds and not set(order.dataCenterIds) & set(centers):
            raise Refusal(*self.refusal(CloudFault.NO_CAPACITY, 0)[:2])
        if order.gpu is not None:
            return float(order.gpu.count * kind["price"][order.cloud.lower()])
        return float(order.cpu.vcpuCount * kind["price"]["securePerVcpu"]) if order.cpu is not None else 0.0

    def _list(self, request: Request) -> Reply:
        pods = [_pod(machine) for machine in self.machines.visible()]
        more = self.cluster_pods if request.one("includeClusterPods") == "true" else []
        return Reply(200, {"pods": [*pods, *more]})

    def _get(self, request: Request) -> Reply:
        return Reply(200, _pod(self._existing(request)))

    def _delete(self, request: Request) -> Reply:
        self.machines.end(self._existing(request), request.strike)
        return Reply(204)

    def _existing(self, request: Request) -> Machine:
        machine = self.machines.find(request.parts["id"])
        if machine is None or machine.phase() is Phase.GONE:
            raise _refused(404, "Not Found", "resource not found")
        return machine


def _pod(machine: Machine) -> dict[str, Any]:
    order, phase = machine.order, machine.phase()
    stuck = phase is Phase.ENDING
    runs = phase is Phase.RUNNING
    direct = {"host": machine.address, "port": machine.port or 10_022, "username": "root", "command": "ssh"}
    pod: dict[str, Any] = {
        "id": machine.id,
        "name": machine.name,
        "status": "RUNNING" if stuck else _STATUSES[phase],
        "actions": ["stop", "restart", "terminate"],
        "image": order.get("image"),
        "args": order.get("args") or "",
        "disk": order.get("disk") or 50,
        "mounts": {},
        "ports": order.get("ports"),
        "env": order.get("env"),
        "registry": None,
        "cloud": order.get("cloud"),
        "dataCenterId": next(iter(order.get("dataCenterIds") or ()), None),
        "cudaVersion": None,
        "ssh": {"proxy": None, "direct": direct if runs else None},
        "template": None,
        "cost": machine.usd_per_hour,
        "locked": False,
        "globalNetworking": {"enabled": False},
        "runtime": {"uptime": 1, "ports": []} if runs or stuck else None,
        "createdAt": "2026-11-30T12:00:00Z",
        "startedAt": None,
    }
    return {**pod, "gpu": order["gpu"]} if order.get("gpu") else {**pod, "cpu": order.get("cpu")}


def _problem(
    status: int, title: str, detail: str, errors: Sequence[str] = (), headers: Mapping[str, str] | None = None
) -> Reply:
    body: dict[str, Any] = {"title": title, "status": status, "detail": detail}
    if errors:
        body["errors"] = list(errors)
    return Reply(status, body, {"Content-Type": "application/problem+json", **(headers or {})})


def _refused(status: int, title: str, detail: str, errors: Sequence[str] = ()) -> Refusal:
    return Refusal(*_problem(status, title, detail, errors))
