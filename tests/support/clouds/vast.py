"""Vast.ai as its API is on the wire: asks that are rented once, filters, pages, limits in plain text."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from shunter_providers.testing import CloudFault, Machine, Phase, Refusal, Reply, Request, Route, WireCloud
from shunter_providers.testing.booting import Boot

_BODIES: Final[Mapping[CloudFault, Reply]] = {
    CloudFault.AUTH: Reply(401, {"success": False, "error": "auth_error", "msg": "Invalid user key"}),
    CloudFault.PAYMENT: Reply(
        400, {"success": False, "error": "insufficient_credit", "msg": "error 400/3500: Insufficient credit"}
    ),
    CloudFault.NO_CAPACITY: Reply(
        410,
        {
            "success": False,
            "error": "no_such_ask",
            "msg": "error 410/3907: no_such_ask Instance type 1234567 is no longer available.",
            "ask_id": 1234567,
        },
    ),
    CloudFault.RATE_LIMITED_SILENT: Reply(
        429, "API requests too frequent: endpoint threshold=4.5", {"Content-Type": "text/plain"}
    ),
    CloudFault.SERVER_ERROR: Reply(502, "<html>502 Bad Gateway</html>", {"Content-Type": "text/html"}),
}
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "in": lambda value, wanted: value in wanted,
    "notin": lambda value, wanted: value not in wanted,
}
_DIRECT: Final = ("limit", "type", "order", "allocated_storage")
_COLUMNS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "verified": lambda ask: ask["verification"] == "verified",
    "datacenter": lambda ask: ask["hosting_type"] == 1,
    "geolocation": lambda ask: ask["geolocation"].rpartition(", ")[2],
}
_PAGE: Final = 2
"""The vendor's has 25."""


class _Rental(BaseModel):
    """The body that rents an ask, with the vendor's limits."""

    model_config = ConfigDict(extra="forbid", strict=True)

    image: str = Field(min_length=1, max_length=1024)
    label: str | None = Field(default=None, max_length=256)
    disk: float = Field(default=8.0, ge=8)
    runtype: Literal["ssh", "jupyter", "args", "ssh_proxy", "ssh_direct", "jupyter_proxy", "jupyter_direct"] = "ssh"
    target_state: Literal["running", "stopped"] = "running"
    price: float | None = Field(default=None, ge=0.001, le=128)
    env: dict[str, str] = {}
    cancel_unavail: bool = False
    vm: bool = False
    onstart: str | None = Field(default=None, max_length=4096)
    args: list[str] | None = None
    image_login: str | None = None
    user: str | None = None


def ask(id_: int, gpu_name: str, num_gpus: int, usd: float, place: str, **more: Any) -> dict[str, Any]:
    """An offer of a machine as a search shows it; the price is the machine's, without its disk."""
    return {
        "id": id_,
        "ask_contract_id": id_,
        "machine_id": 500 + id_,
        "host_id": 7,
        "gpu_name": gpu_name,
        "num_gpus": num_gpus,
        "gpu_arch": "nvidia",
        "gpu_ram": {"H100 SXM": 81559, "RTX 4090": 24564}.get(gpu_name, 49140),
        "cpu_cores": 128,
        "cpu_cores_effective": 16.0 * num_gpus,
        "cpu_ram": 1_031_000,
        "disk_space": 900.0,
        "dph_base": usd,
        "min_bid": round(0.4 * usd, 4),
        "storage_cost": 0.15,
        "geolocation": place,
        "hosting_type": 0,
        "verification": "verified",
        "rentable": True,
        "rented": False,
        "external": False,
        "reliability": 0.998,
        "reliability2": 0.998,
        "direct_port_count": 40,
        "duration": 2_000_000.0,
        "cuda_max_good": 12.8,
        "cluster_id": None,
        **more,
    }


class VastCloud(WireCloud):
    """One account, and a market."""

    lacks: ClassVar[Collection[CloudFault]] = (
        CloudFault.RATE_LIMITED,  # it names no wait
        CloudFault.QUOTA,  # it knows credit only
        CloudFault.TWIN,  # an ask is rented once
    )

    def __init__(self, key: str, **more: Any) -> None:
        super().__init__(**more)
        self._key = key
        self._ids = itertools.count(30_000_001)
        self.asks = [
            ask(101, "H100 SXM", 1, 2.00, "Bucharest, RO"),
            ask(102, "H100 SXM", 1, 2.05, "Cluj, RO"),
            ask(103, "H100 SXM", 1, 2.10, "Iasi, RO"),
            ask(104, "H100 SXM", 1, 2.15, ", RO"),
            ask(105, "H100 SXM", 1, 3.50, ", RO"),
            ask(201, "RTX 4090", 4, 1.40, "California, US", hosting_type=1),
            ask(301, "RTX 4090", 1, 0.30, "Hidden", cuda_max_good=11.8),
            ask(401, "RTX A6000", 2, 0.90, "London, UK", verification="unverified"),
        ]

    def boot_of(self, machine: Machine) -> Boot:
        """The vendor's sshd runs before the start script, with a host key of its own."""
        ask = machine.order["ask"]
        gpus = [f"NVIDIA {ask['gpu_name']}"] * ask["num_gpus"]
        return Boot(machine.order["onstart"] or "", {}, {}, gpus=gpus)

    def routes(self) -> Sequence[Route]:
        """The part of the API that a node needs; every path ends with a slash."""
        return [
            Route("GET", r"/api/v0/users/current/", "whoami", self._user),
            Route("POST", r"/api/v0/bundles/", "offers", self._search),
            Route("PUT", r"/api/v0/asks/(?P<id>\d+)/", "create", self._rent),
            Route("GET", r"/api/v1/instances/", "list", self._list),
            Route("GET", r"/api/v0/instances/(?P<id>\d+)/", "get", self._get),
            Route("DELETE", r"/api/v0/instances/(?P<id>\d+)/", "terminate", self._destroy),
        ]

    def authorize(self, request: Request) -> None:
        """A bearer token; searches answer a wrong one with 404."""
        if request.headers.get("authorization") != f"Bearer {self._key}":
            refused = _BODIES[CloudFault.AUTH]
            raise Refusal(404 if request.path == "/api/v0/bundles/" else 401, refused.body)

    def refusal(self, fault: CloudFault, delay_s: float) -> Reply:
        """In the vendor's words."""
        return _BODIES[fault]

    def no_route(self, request: Request) -> Reply:
        """404 as the web server has it."""
        return Reply(404, "<html>404 Not Found</html>", {"Content-Type": "text/html"})

    def _user(self, request: Request) -> Reply:
        return Reply(200, {"id": 4711, "key_id": 12, "email": "someone@example.org", "balance": -1.5, "sid": "x"})

    def _search(self, request: Request) -> Reply:
        body = request.json()
        if not isinstance(body, dict):
            raise _refused(400, "invalid_request", "Invalid json body")
        filters = {name: tests for name, tests in body.items() if name not in _DIRECT}
        bids = body.get("type", "ondemand") == "bid"
        found = [_shown(one, bids) for one in self._free() if all(_fits(one, *item) for item in filters.items())]
        for column, direction in reversed(body.get("order", [])):
            found.sort(key=operator.itemgetter(column), reverse=direction == "desc")
        return Reply(200, {"offers": found[: body.get("limit", 64)]})

    def _free(self) -> list[dict[str, Any]]:
        rented = {machine.extra.get("ask") for machine in self.machines.existing()}
        return [one for one in self.asks if one["id"] not in rented]

    def _rent(self, request: Request) -> Reply:
        try:
            order = _Rental.model_validate_json(request.body)
        except ValidationError as exc:
            first = exc.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise _refused(400, "invalid_args", f"error 400/3467: Invalid args: {where}: {first['msg']}") from None
        id_ = int(request.parts["id"])
        chosen = next((one for one in self._free() if one["id"] == id_), None)
        if chosen is None:
            said = f"error 404/3603: no_such_ask Instance type by id {id_} is not available."
            raise _refused(404, "invalid_args", said, ask_id=id_)
        too_low = order.price is not None and order.price < chosen["min_bid"]
        usd = order.price if order.price is not None else chosen["dph_base"]
        total = usd + order.disk * chosen["storage_cost"] / 730
        ordered = {**order.model_dump(), "ask": chosen}
        machine = self.machines.make(order.label or "", ordered, total, request.strike, str(next(self._ids)))
        machine.extra |= {"ask": id_, "stopped": too_low}
        if too_low:
            raise _refused(400, "invalid_price", "error 400/3510: bid is too low", new_contract=int(machine.id))
        return Reply(200, {"success": True, "new_contract": int(machine.id)})

    def _list(self, request: Request) -> Reply:
        unknown = set(request.query) - {"limit", "after_token", "order_by", "select_cols", "select_filters"}
        if unknown or not 0 < int(request.one("limit", "25")) <= 25:
            raise _refused(400, "invalid_request", f"Error in query parameters: {sorted(unknown)}")
        shown = [machine for machine in self.machines.visible() if machine.id > request.one("after_token")]
        page = shown[:_PAGE]
        more = page[-1].id if len(shown) > _PAGE else None
        body = {"success": True, "instances_found": len(page), "next_token": more}
        return Reply(200, {**body, "instances": [_instance(machine) for machine in page]})

    def _get(self, request: Request) -> Reply:
        machine = self._existing(request)
        return Reply(200, {"instances": None if machine is None else _instance(machine)})

    def _destroy(self, request: Request) -> Reply:
        machine = self._existing(request)
        if machine is None:
            raise _refused(404, "no_such_instance", f"Instance {request.parts['id']} not found.")
        self.machines.end(machine, request.strike)
        return Reply(200, {"success": True, "msg": "Instance destroyed successfully"})

    def _existing(self, request: Request) -> Machine | None:
        machine = self.machines.find(request.parts["id"])
        return machine if machine is not None and machine.phase() is not Phase.GONE else None


def _fits(one: Mapping[str, Any], column: str, tests: Any) -> bool:
    if column not in one and column not in _COLUMNS:
        raise _refused(400, "invalid_request", f"Error in query parameters: {column} is not a valid search key")
    if not isinstance(tests, dict) or not set(tests) <= set(_OPERATORS):
        raise _refused(400, "invalid_request", f"Error in query parameters: {column}: bad operator")
    value = _COLUMNS.get(column, operator.itemgetter(column))(one)
    return all(_OPERATORS[name](value, wanted) for name, wanted in tests.items())


def _shown(one: Mapping[str, Any], bids: bool) -> dict[str, Any]:
    base = one["min_bid"] if bids else one["dph_base"]
    total = one["dph_total"] if "dph_total" in one else base + 8 * one["storage_cost"] / 730
    return {**one, "dph_base": base, "dph_total": total, "is_bid": bids}


def _instance(machine: Machine) -> dict[str, Any]:
    order, phase = machine.order, machine.phase()
    runs = phase in (Phase.RUNNING, Phase.ENDING)
    stopped = phase is Phase.PREEMPTED or machine.extra["stopped"]
    state = "stopped" if stopped else "running"
    status = "exited" if stopped else "running" if runs else "loading"
    port = {"HostIp": "0.0.0.0", "HostPort": str(machine.port or 40_022)}
    return {
        "id": int(machine.id),
        "label": machine.name,
        "actual_status": machine.extra.get("actual_status", status),
        "cur_state": state if runs or stopped else "loading",
        "next_state": state,
        "intended_status": state,
        "status_msg": machine.extra.get("status_msg") or (None if machine.has_image else _no_image(order["image"])),
        "is_bid": order["price"] is not None,
        "machine_id": order["ask"]["machine_id"],
        "image_uuid": order["image"],
        "gpu_name": order["ask"]["gpu_name"],
        "num_gpus": order["ask"]["num_gpus"],
        "geolocation": order["ask"]["geolocation"],
        "public_ipaddr": f"{machine.address} \n",
        "ssh_host": "ssh4.vast.ai",
        "ssh_port": 10600,
        "ports": {"22/tcp": [port, port]} if runs and not stopped else None,
        "dph_total": machine.usd_per_hour,
    }


def _no_image(image: str) -> str:
    repository, _, tag = image.rpartition(":")
    said = f"manifest for {repository}:{tag} not found: manifest unknown: manifest unknown"
    return f"Error response from daemon: {said}"


def _refused(status: int, error: str, msg: str, **more: Any) -> Refusal:
    return Refusal(status, {"success": False, "error": error, "msg": msg, **more})
