"""DigitalOcean as its API v2 is on the wire: strict bodies, counted pages, GPU droplets listed apart, names that make
twins, one code for every refusal."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from shunter_providers.testing import CloudFault, Machine, Phase, Refusal, Reply, Request, Route, WireCloud
from shunter_providers.testing.booting import Boot, from_cloud_init

_BODIES: Final[Mapping[CloudFault, tuple[int, str, str]]] = {
    CloudFault.AUTH: (401, "unauthorized", "Unable to authenticate you."),
    CloudFault.PAYMENT: (403, "forbidden", "Your account is locked for a billing issue: payment is past due."),
    CloudFault.NO_CAPACITY: (422, "unprocessable_entity", "Size is not available in this region."),
    CloudFault.QUOTA: (422, "unprocessable_entity", "creating this/these droplet(s) will exceed your droplet limit"),
    CloudFault.RATE_LIMITED: (429, "too_many_requests", "API rate limit exceeded."),
    CloudFault.RATE_LIMITED_SILENT: (429, "too_many_requests", "API rate limit exceeded."),
    CloudFault.SERVER_ERROR: (500, "server_error", "Unexpected server-side error"),
}
_STATUSES: Final = {
    Phase.PENDING: "new",
    Phase.RUNNING: "active",
    Phase.PREEMPTED: "off",
    Phase.ENDING: "active",
    Phase.GONE: "archive",
}
_PAGE: Final = 2
"""The vendor's has 200 at most."""


class _Droplet(BaseModel):
    """`droplet_single_create`; what the vendor does not know is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(max_length=255, pattern=r"^[a-zA-Z0-9]?[a-z0-9A-Z.\-]*[a-z0-9A-Z]$")
    size: str
    image: str | int
    region: str | None = None
    ssh_keys: list[int | str] = []
    tags: list[Annotated[str, Field(max_length=255, pattern=r"^[a-zA-Z0-9:_-]+$")]] = []
    user_data: str | None = Field(default=None, max_length=64 << 10)
    backups: bool = False
    ipv6: bool = False
    monitoring: bool = False
    with_droplet_agent: bool | None = None
    public_networking: bool = True
    volumes: list[str] = []
    vpc_uuid: str | None = None


def size(slug: str, usd: float, regions: Sequence[str], gpu: tuple[int, str, int] | None = None) -> dict[str, Any]:
    """A size of droplets. `gpu`: count, model, and the memory that the API tells."""
    shown: dict[str, Any] = {
        "slug": slug,
        "memory": 245_760 if gpu else 8192,
        "vcpus": 20 if gpu else 4,
        "disk": 720 if gpu else 50,
        "transfer": 15.0,
        "price_monthly": round(usd * 672, 2),
        "price_hourly": usd,
        "regions": list(regions),
        "available": bool(regions),
        "description": slug,
        "disk_info": [{"type": "local", "size": {"amount": 720 if gpu else 50, "unit": "gib"}}],
    }
    if gpu is not None:
        count, model, memory = gpu
        shown["gpu_info"] = {"count": count, "model": model, "vram": {"amount": memory, "unit": "gib"}}
    return shown


class DigitaloceanCloud(WireCloud):
    """One team."""

    def __init__(self, key: str, **more: Any) -> None:
        super().__init__(**more)
        self._key = key
        self._ids = itertools.count(448_543_001)
        self.sizes = [
            size("gpu-h100x1-80gb", 3.39, ("tor1", "ams3"), (1, "nvidia_h100", 80)),
            size("s-1vcpu-1gb", 0.00893, ("nyc1", "fra1")),
            size("gpu-h100x8-640gb", 23.92, ("nyc2",), (8, "nvidia_h100", 640)),
            size("gpu-mi300x1-192gb", 1.99, ("atl1",), (1, "amd_mi300x", 192)),
            size("gpu-4000adax1-20gb", 0.76, (), (1, "nvidia_rtx4000_ada", 20)),
            size("c-4", 0.125, ("fra1", "zzz1")),
        ]
        self.images: set[str | int] = {
            63663980,
            "gpu-h100x1-base",
            "gpu-h100x8-base",
            "gpu-amd-base",
            "ubuntu-24-04-x64",
        }
        self.account_status = "active"

    def boot_of(self, machine: Machine) -> Boot:
        """Root logs in."""
        return from_cloud_init(machine.order["user_data"] or "")

    def routes(self) -> Sequence[Route]:
        """The part of the API that a node needs."""
        v2 = r"/v2"
        one = rf"{v2}/droplets/(?P<id>\d+)"
        return [
            Route("GET", rf"{v2}/account", "whoami", self._account),
            Route("GET", rf"{v2}/sizes", "offers", lambda request: _page(request, "sizes", self.sizes)),
            Route("POST", rf"{v2}/droplets", "create", self._create),
            Route("GET", rf"{v2}/droplets", "list", self._list),
            Route("GET", one, "get", self._get),
            Route("GET", rf"{one}/actions", "other", self._actions),
            Route("DELETE", one, "terminate", self._delete),
        ]

    def authorize(self, request: Request) -> None:
        """A bearer token."""
        if request.headers.get("authorization") != f"Bearer {self._key}":
            raise _refused(*_BODIES[CloudFault.AUTH])

    def refusal(self, fault: CloudFault, delay_s: float) -> Reply:
        """In the vendor's words."""
        headers = {"retry-after": f"{delay_s:g}"} if fault is CloudFault.RATE_LIMITED else {}
        return _error(*_BODIES[fault])._replace(headers=headers)

    def no_route(self, request: Request) -> Reply:
        """404."""
        return _error(404, "not_found", "The resource you requested could not be found.")

    def _account(self, request: Request) -> Reply:
        team = {"uuid": "5df3e3004a17e242b7c20ca6c9fc25b701a47ece", "name": "My Team"}
        mine = {"droplet_limit": 25, "floating_ip_limit": 5, "email": "sammy@example.org", "uuid": "b6fr89dbf6d9156c"}
        status = {"email_verified": True, "status": self.account_status, "status_message": "verify your payment method"}
        return Reply(200, {"account": {**mine, **status, "team": team}})

    def _create(self, request: Request) -> Reply:
        try:
            order = _Droplet.model_validate_json(request.body)
        except ValidationError as exc:
            first = exc.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise _unprocessable(f"request payload validation failed: {where}: {first['msg']}") from None
        chosen = next((one for one in self.sizes if one["slug"] == order.size), None)
        if chosen is None:
            raise _unprocessable("You specified an invalid size for Droplet creation.")
        if order.image not in self.images:
            raise _unprocessable("You specified an invalid image for Droplet creation.")
        if order.region not in chosen["regions"]:
            raise _unprocessable("Size is not available in this region.")
        ordered = {**order.model_dump(), "chosen": chosen}
        machine = self.machines.make(order.name, ordered, chosen["price_hourly"], request.strike, str(next(self._ids)))
        actions = [{"id": int(machine.id) + 7, "rel": "create", "href": f"{self.url}/v2/actions/7"}]
        return Reply(202, {"droplet": _droplet(machine), "links": {"actions": actions}})

    def _list(self, request: Request) -> Reply:
        if "type" in request.query and "tag_name" in request.query:
            raise _refused(400, "bad_request", "tag_name cannot be combined with type")
        with_gpus = request.one("type", "droplets") == "gpus"
        shown = [one for one in self.machines.visible() if ("gpu_info" in one.order["chosen"]) is with_gpus]
        return _page(request, "droplets", [_droplet(machine) for machine in shown])

    def _get(self, request: Request) -> Reply:
        return Reply(200, {"droplet": _droplet(self._existing(request))})

    def _actions(self, request: Request) -> Reply:
        machine = self._existing(request)
        status = machine.extra.get("create", "completed" if machine.phase() is Phase.RUNNING else "in-progress")
        action = {"id": int(machine.id) + 7, "status": status, "type": "create", "resource_type": "droplet"}
        return _page(request, "actions", [action])

    def _delete(self, request: Request) -> Reply:
        self.machines.end(self._existing(request), request.strike)
        return Reply(204)

    def _existing(self, request: Request) -> Machine:
        machine = self.machines.find(request.parts["id"])
        if machine is None or machine.phase() is Phase.GONE:
            raise _refused(404, "not_found", "The resource you requested could not be found.")
        return machine


def _page(request: Request, what: str, items: Sequence[Mapping[str, Any]]) -> Reply:
    per_page, page = int(request.one("per_page", "20")), int(request.one("page", "1"))
    if not 1 <= per_page <= 200 or page < 1:
        raise _refused(400, "bad_request", "invalid page")
    shown = min(per_page, _PAGE)
    first = (page - 1) * shown
    more = first + shown < len(items)
    pages = {"next": f"https://api.digitalocean.com/v2/{what}?page={page + 1}"} if more else {}
    links = {"pages": pages} if len(items) > shown else {}
    return Reply(200, {what: list(items[first : first + shown]), "links": links, "meta": {"total": len(items)}})


def _droplet(machine: Machine) -> dict[str, Any]:
    order, phase = machine.order, machine.phase()
    chosen = {**order["chosen"], "price_hourly": machine.usd_per_hour}
    addresses = [
        {"ip_address": "10.128.192.124", "netmask": "255.255.0.0", "gateway": "nil", "type": "private"},
        {"ip_address": machine.address, "netmask": "255.255.255.0", "gateway": "127.0.0.1", "type": "public"},
    ]
    shown = {
        "id": int(machine.id),
        "name": machine.name,
        "memory": chosen["memory"],
        "vcpus": chosen["vcpus"],
        "disk": chosen["disk"],
        "locked": phase is Phase.PENDING,
        "status": _STATUSES[phase],
        "kernel": None,
        "created_at": "2026-11-30T12:00:00Z",
        "features": ["private_networking"],
        "backup_ids": [],
        "next_backup_window": None,
        "snapshot_ids": [],
        "image": {"slug": order["image"]},
        "volume_ids": [],
        "size": chosen,
        "size_slug": order["size"],
        "networks": {"v4": [] if phase is Phase.PENDING else addresses, "v6": []},
        "region": {"slug": order["region"]},
        "tags": order["tags"],
        "vpc_uuid": "e2fdd15c-6ae6-4c11-8c5d-72dae2ba1ad1",
    }
    return {**shown, "gpu_info": chosen["gpu_info"]} if "gpu_info" in chosen else shown


def _error(status: int, id_: str, message: str) -> Reply:
    return Reply(status, {"id": id_, "message": message, "request_id": "4851a473-1621-42ea-b2f9-5071c0ea8414"})


def _refused(status: int, id_: str, message: str) -> Refusal:
    return Refusal(*_error(status, id_, message))


def _unprocessable(message: str) -> Refusal:
    return _refused(422, "unprocessable_entity", message)
