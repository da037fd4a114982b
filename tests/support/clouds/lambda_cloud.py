"""Lambda as its API 1.8 is on the wire: strict bodies, one registered key a launch, error codes with HTTP 400."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from shunter_providers.testing import CloudFault, Machine, Phase, Refusal, Reply, Request, Route, WireCloud, new_hex_id
from shunter_providers.testing.booting import Boot, from_cloud_init

_BODIES: Final[Mapping[CloudFault, tuple[int, str, str]]] = {
    CloudFault.AUTH: (401, "global/invalid-api-key", "API key was invalid, expired, or deleted."),
    CloudFault.PAYMENT: (403, "global/account-inactive", "Your account is inactive."),
    CloudFault.NO_CAPACITY: (
        400,
        "instance-operations/launch/insufficient-capacity",
        "Not enough capacity to fulfill launch request.",
    ),
    CloudFault.QUOTA: (400, "global/quota-exceeded", "Quota exceeded."),
    CloudFault.RATE_LIMITED: (429, "global/too-many-requests", "Too many requests."),
    CloudFault.RATE_LIMITED_SILENT: (429, "global/too-many-requests", "Too many requests."),
    CloudFault.SERVER_ERROR: (500, "global/internal-error", "An internal error occurred."),
}
_STATUSES: Final = {
    Phase.PENDING: "booting",
    Phase.RUNNING: "active",
    Phase.PREEMPTED: "preempted",
    Phase.ENDING: "terminating",
    Phase.GONE: "terminated",
}


_Read = TypeVar("_Read", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Tag(_Body):
    key: str = Field(max_length=55, pattern=r"^[a-z][a-z0-9-:]+$")
    value: str = Field(max_length=128)


class _Image(_Body):
    id: str | None = None
    family: str | None = None


class _Launch(_Body):
    """The launch body; what the vendor no longer knows (`quantity`) is refused."""

    region_name: str
    instance_type_name: str
    ssh_key_names: Annotated[list[str], Field(min_length=1, max_length=1)]
    file_system_names: list[str] = []
    file_system_mounts: list[dict[str, str]] = []
    name: str | None = Field(default=None, max_length=64)
    hostname: str | None = Field(default=None, pattern=r"^[a-z0-9][0-9a-z-]{0,62}$")
    image: _Image | None = None
    user_data: str | None = Field(default=None, max_length=1_000_000)
    tags: list[_Tag] = []
    firewall_rulesets: list[dict[str, str]] = []


class _Terminate(_Body):
    instance_ids: Annotated[list[str], Field(min_length=1)]


class _Key(_Body):
    name: str = Field(min_length=1, max_length=64)
    public_key: str | None = None


def kind(name: str, described: str, cents: int, gpus: int, regions: Sequence[str]) -> dict[str, Any]:
    """An instance type, free in some regions."""
    return {
        "instance_type": {
            "name": name,
            "description": f"{gpus}x {described}" if gpus else described,
            "gpu_description": described if gpus else "N/A",
            "price_cents_per_hour": cents,
            "specs": {"vcpus": 26 * gpus or 4, "memory_gib": 225 * gpus or 16, "storage_gib": 512, "gpus": gpus},
        },
        "regions_with_capacity_available": [{"name": region, "description": region} for region in regions],
    }


class LambdaCloud(WireCloud):
    """One account, which has a key of its owner."""

    def __init__(self, key: str, **more: Any) -> None:
        super().__init__(**more)
        self._key = key
        self.kinds = [
            kind("gpu_1x_h100_sxm5", "H100 (80 GB SXM5)", 429, 1, ("us-west-3", "europe-central-1")),
            kind("gpu_8x_a100_80gb_sxm4", "A100 (80 GB SXM4)", 2232, 8, ()),
            kind("gpu_1x_a10", "A10 (24 GB PCIe)", 129, 1, ("us-east-1", "asia-south-1")),
            kind("cpu_4x_general", "4x CPU General (16 GiB RAM)", 20, 0, ("europe-central-1",)),
        ]
        self.keys: dict[str, dict[str, str]] = {}
        self._add_key("owner", "ssh-ed25519 AAAAowner owner")

    def boot_of(self, machine: Machine) -> Boot:
        """What cloud-init makes of the user data; the key that the launch names is the first user's too."""
        boot = from_cloud_init(machine.order["user_data"] or "", user="ubuntu")
        named = [key["public_key"] for key in self.keys.values() if key["name"] in machine.order["ssh_key_names"]]
        return boot._replace(authorized_keys=[*named, *boot.authorized_keys])

    def routes(self) -> Sequence[Route]:
        """The part of the API that a node needs."""
        v1 = r"/api/v1"
        return [
            Route("GET", rf"{v1}/instance-types", "offers", self._types),
            Route("POST", rf"{v1}/instance-operations/launch", "create", self._launch),
            Route("GET", rf"{v1}/instances", "list", self._list),
            Route("GET", rf"{v1}/instances/(?P<id>[^/]+)", "get", self._get),
            Route("POST", rf"{v1}/instance-operations/terminate", "terminate", self._terminate),
            Route("GET", rf"{v1}/ssh-keys", "other", lambda request: Reply(200, {"data": list(self.keys.values())})),
            Route("POST", rf"{v1}/ssh-keys", "other", self._post_key),
            Route("DELETE", rf"{v1}/ssh-keys/(?P<id>[^/]+)", "other", self._delete_key),
        ]

    def authorize(self, request: Request) -> None:
        """A bearer token."""
        if request.headers.get("authorization") != f"Bearer {self._key}":
            raise _refused(*_BODIES[CloudFault.AUTH])

    def refusal(self, fault: CloudFault, delay_s: float) -> Reply:
        """In the vendor's words."""
        headers = {"Retry-After": f"{delay_s:g}"} if fault is CloudFault.RATE_LIMITED else {}
        return _error(*_BODIES[fault])._replace(headers=headers)

    def no_route(self, request: Request) -> Reply:
        """404."""
        return _error(404, "global/not-found", "Resource not found.")

    def _types(self, request: Request) -> Reply:
        return Reply(200, {"data": {one["instance_type"]["name"]: one for one in self.kinds}})

    def _launch(self, request: Request) -> Reply:
        order = _read(_Launch, request)
        known = {one["instance_type"]["name"]: one for one in self.kinds}
        if order.instance_type_name not in known:
            raise _refused(400, "global/object-does-not-exist", "Specified instance type does not exist.")
        if order.ssh_key_names[0] not in {key["name"] for key in self.keys.values()}:
            raise _refused(400, "global/object-does-not-exist", "Specified SSH key does not exist.")
        chosen = known[order.instance_type_name]
        free = [region["name"] for region in chosen["regions_with_capacity_available"]]
        if order.region_name not in free:
            raise _refused(*_BODIES[CloudFault.NO_CAPACITY])
        usd = chosen["instance_type"]["price_cents_per_hour"] / 100
        ordered = {**order.model_dump(), "type": chosen["instance_type"]}
        machine = self.machines.make(order.name or "", ordered, usd, request.strike, new_hex_id(32))
        return Reply(200, {"data": {"instance_ids": [machine.id]}})

    def _list(self, request: Request) -> Reply:
        return Reply(200, {"data": [_instance(machine) for machine in self.machines.visible()]})

    def _get(self, request: Request) -> Reply:
        return Reply(200, {"data": _instance(self._existing(request.parts["id"]))})

    def _terminate(self, request: Request) -> Reply:
        machines = [self._existing(id_) for id_ in _read(_Terminate, request).instance_ids]
        for machine in machines:
            self.machines.end(machine, request.strike)
        return Reply(200, {"data": {"terminated_instances": [_instance(machine) for machine in machines]}})

    def _existing(self, id_: str) -> Machine:
        machine = self.machines.find(id_) if re.fullmatch("[0-9a-f]{32}", id_) else None
        if machine is None or machine.phase() is Phase.GONE:
            raise _refused(404, "global/object-does-not-exist", "Specified instance does not exist.")
        return machine

    def _post_key(self, request: Request) -> Reply:
        key = _read(_Key, request)
        if key.name in {one["name"] for one in self.keys.values()}:
            raise _refused(400, "global/duplicate", "An SSH key with this name already exists.")
        return Reply(200, {"data": self._add_key(key.name, key.public_key or "")})

    def _add_key(self, name: str, public_key: str) -> dict[str, str]:
        id_ = new_hex_id(32)
        self.keys[id_] = {"id": id_, "name": name, "public_key": public_key}
        return self.keys[id_]

    def _delete_key(self, request: Request) -> Reply:
        if self.keys.pop(request.parts["id"], None) is None:
            raise _refused(404, "global/object-does-not-exist", "Specified SSH key does not exist.")
        return Reply(200, {})


def _read(model: type[_Read], request: Request) -> _Read:
    try:
        return model.model_validate_json(request.body)
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise _refused(400, "global/invalid-parameters", f"Invalid request data: {where}: {first['msg']}") from None


def _instance(machine: Machine) -> dict[str, Any]:
    order, phase = machine.order, machine.phase()
    shown = {
        "id": machine.id,
        "name": machine.name,
        "status": _STATUSES[phase],
        "ssh_key_names": order["ssh_key_names"],
        "file_system_names": order["file_system_names"],
        "region": {"name": order["region_name"], "description": order["region_name"]},
        "instance_type": {**order["type"], "price_cents_per_hour": round(100 * machine.usd_per_hour)},
        "hostname": order["hostname"],
        "tags": order["tags"],
        "is_reserved": False,
    }
    return {**shown, "ip": machine.address, "private_ip": "10.0.0.5"} if phase is Phase.RUNNING else shown


def _error(status: int, code: str, message: str) -> Reply:
    return Reply(status, {"error": {"code": code, "message": message, "suggestion": ""}})


def _refused(status: int, code: str, message: str) -> Refusal:
    return Refusal(*_error(status, code, message))
