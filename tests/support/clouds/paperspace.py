"""Paperspace as its API v1 is on the wire: strict bodies, pages by cursor, start scripts, events of machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from shunter_providers.testing import CloudFault, Machine, Phase, Refusal, Reply, Request, Route, WireCloud, new_hex_id
from shunter_providers.testing.booting import Boot

_BODIES: Final[Mapping[CloudFault, tuple[int, str, str]]] = {
    CloudFault.AUTH: (401, "UNAUTHORIZED", "No session found"),
    CloudFault.PAYMENT: (403, "FORBIDDEN", "Your account has a billing issue. Please update your payment method."),
    CloudFault.NO_CAPACITY: (
        400,
        "BAD_REQUEST",
        "We are currently out of capacity for the selected VM type. "
        "Try again in a few minutes, or select a different instance.",
    ),
    CloudFault.QUOTA: (403, "FORBIDDEN", "You have reached your machine limit for this type."),
    CloudFault.RATE_LIMITED: (429, "TOO_MANY_REQUESTS", "Too many requests"),
    CloudFault.RATE_LIMITED_SILENT: (429, "TOO_MANY_REQUESTS", "Too many requests"),
    CloudFault.SERVER_ERROR: (500, "INTERNAL_SERVER_ERROR", "Internal server error"),
}
_STATES: Final = {
    Phase.PENDING: "provisioning",
    Phase.RUNNING: "ready",
    Phase.PREEMPTED: "off",
    Phase.ENDING: "ready",
    Phase.GONE: "off",
}
_PAGE: Final = 2
"""The vendor's has 120 at most."""
_Read = TypeVar("_Read", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Machine(_Body):
    """`machines-create`."""

    name: str = Field(min_length=1)
    machineType: str
    templateId: str
    diskSize: Literal[50, 100, 250, 500, 1000, 2000]
    region: Literal["ny2", "ca1", "ams1"]
    networkId: str | None = None
    publicIpType: Literal["static", "dynamic", "none"] = "none"
    autoSnapshotEnabled: bool = False
    autoShutdownEnabled: bool = False
    autoShutdownTimeout: int | None = None
    takeInitialSnapshot: bool = False
    startupScriptId: str | None = None
    emailPassword: bool = True
    startOnCreate: bool = True
    enableNvlink: bool = False
    accessorIds: list[str] = []


class _Script(_Body):
    name: str = Field(min_length=1)
    script: str
    isRunOnce: bool = False


def template(id_: str, name: str, types: Sequence[str]) -> dict[str, Any]:
    """An OS template that is available for some machine types."""
    return {
        "id": id_,
        "name": name,
        "agentType": "LinuxHeadless",
        "operatingSystemLabel": "Ubuntu 22.04 Server",
        "defaultSizeGb": 50,
        "availableMachineTypes": [{"machineTypeLabel": one, "isAvailable": True} for one in types],
        "dtCreated": "2024-01-01T00:00:00.000Z",
    }


class PaperspaceCloud(WireCloud):
    """One team."""

    def __init__(self, key: str, **more: Any) -> None:
        super().__init__(**more)
        self._key = key
        self.usd = {"H100": 5.95, "H100x8": 47.6, "A100-80G": 3.18, "A100": 3.09, "V100-32G": 2.3}
        self.free = {("H100", "ny2"), ("H100x8", "ny2"), ("V100-32G", "ny2")}
        self.templates = [
            template("t0000win", "Windows", ("P4000",)),
            template("tubuntu1", "Ubuntu 22.04", ("H100", "H100x8", "A100")),
            template("tmlinabx", "ML-in-a-Box", ("H100", "V100-32G")),
        ]
        self.scripts: dict[str, dict[str, Any]] = {}
        self.session_is_there = True

    def boot_of(self, machine: Machine) -> Boot:
        """The image's sshd runs before the start script, which is root's."""
        script = self.scripts.get(machine.order["startupScriptId"] or "", {"script": ""})["script"]
        return Boot(script, {}, {}, user="paperspace", gpus=[f"NVIDIA {machine.order['machineType']}"])

    def routes(self) -> Sequence[Route]:
        """The part of the API that a node needs."""
        v1 = r"/v1"
        one = r"(?P<id>[^/]+)"
        return [
            Route("GET", rf"{v1}/auth/session", "whoami", self._session),
            Route("GET", rf"{v1}/machine-availability", "offers", self._availability),
            Route("GET", rf"{v1}/os-templates", "other", lambda request: _page(request, self.templates)),
            Route("POST", rf"{v1}/machines", "create", self._create),
            Route("GET", rf"{v1}/machines", "list", self._list),
            Route("GET", rf"{v1}/machines/{one}", "get", self._get),
            Route("DELETE", rf"{v1}/machines/{one}", "terminate", self._delete),
            Route("GET", rf"{v1}/machine-events", "other", self._events),
            Route("GET", rf"{v1}/startup-scripts", "other", self._list_scripts),
            Route("POST", rf"{v1}/startup-scripts", "other", self._post_script),
            Route("DELETE", rf"{v1}/startup-scripts/{one}", "other", self._delete_script),
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
        return _error(404, "NOT_FOUND", "Not found")

    def _session(self, request: Request) -> Reply:
        if not self.session_is_there:
            return Reply(200, "null")
        team = {"namespace": "tshunter", "isPrivate": True, "maxMachines": 20, "id": "t7sw1bmzqm", "analyticsId": 7}
        return Reply(200, {"user": {"id": "u1", "email": "someone@example.org"}, "team": team})

    def _availability(self, request: Request) -> Reply:
        type_, region = request.one("machineType"), request.one("region")
        if not type_ or region not in ("ny2", "ca1", "ams1"):
            raise _refused(400, "BAD_REQUEST", "Input validation failed")
        return Reply(200, {"available": (type_, region) in self.free})

    def _create(self, request: Request) -> Reply:
        order = _read(_Machine, request)
        if order.machineType not in self.usd:
            raise _refused(400, "BAD_REQUEST", f"Invalid machine type {order.machineType}")
        chosen = next((one for one in self.templates if one["id"] == order.templateId), None)
        if chosen is None:
            raise _refused(404, "NOT_FOUND", "Template not found")
        if order.startupScriptId is not None and order.startupScriptId not in self.scripts:
            raise _refused(404, "NOT_FOUND", "Startup script not found")
        if (order.machineType, order.region) not in self.free:
            raise _refused(*_BODIES[CloudFault.NO_CAPACITY])
        usd = self.usd[order.machineType]
        id_ = f"ps{new_hex_id(10)}"
        machine = self.machines.make(order.name, order.model_dump(), usd, request.strike, id_)
        return Reply(200, {"event": _event(machine), "data": _machine(machine)})

    def _list(self, request: Request) -> Reply:
        return _page(request, [_machine(machine) for machine in self.machines.visible()])

    def _get(self, request: Request) -> Reply:
        return Reply(200, _machine(self._existing(request.parts["id"])))

    def _delete(self, request: Request) -> Reply:
        machine = self._existing(request.parts["id"])
        if machine.ended_at is not None:
            raise _refused(409, "CONFLICT", "The machine is already being deleted")
        self.machines.end(machine, request.strike)
        return Reply(200, {"event": {**_event(machine), "name": "deactivate"}, "data": _machine(machine)})

    def _events(self, request: Request) -> Reply:
        return _page(request, [_event(self._existing(request.one("machineId")))])

    def _existing(self, id_: str) -> Machine:
        machine = self.machines.find(id_)
        if machine is None or machine.phase() is Phase.GONE:
            raise _refused(404, "NOT_FOUND", "Machine not found")
        return machine

    def _list_scripts(self, request: Request) -> Reply:
        name = request.one("name")
        return _page(request, [script for script in self.scripts.values() if name in script["name"]])

    def _post_script(self, request: Request) -> Reply:
        order = _read(_Script, request)
        id_ = f"ss{new_hex_id(8)}"
        self.scripts[id_] = {"id": id_, **order.model_dump(), "isEnabled": True, "assignedMachineIds": []}
        return Reply(200, {name: value for name, value in self.scripts[id_].items() if name != "script"})

    def _delete_script(self, request: Request) -> Reply:
        if self.scripts.pop(request.parts["id"], None) is None:
            raise _refused(404, "NOT_FOUND", "Startup script not found")
        return Reply(200, {"id": request.parts["id"]})


def _read(model: type[_Read], request: Request) -> _Read:
    try:
        return model.model_validate_json(request.body)
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise _refused(400, "BAD_REQUEST", f"Input validation failed: {where}: {first['msg']}") from None


def _page(request: Request, items: Sequence[Mapping[str, Any]]) -> Reply:
    if not 1 <= int(request.one("limit", "20")) <= 120:
        raise _refused(400, "BAD_REQUEST", "Input validation failed: limit")
    ids = [one["id"] for one in items]
    first = ids.index(request.one("after")) + 1 if request.one("after") in ids else 0
    shown = list(items[first : first + _PAGE])
    more = first + _PAGE < len(items)
    return Reply(200, {"hasMore": more, "nextPage": shown[-1]["id"] if more else None, "items": shown})


def _event(machine: Machine) -> dict[str, Any]:
    done = machine.phase() is not Phase.PENDING
    event = {
        "id": f"e{machine.id}",
        "name": "create",
        "state": "done" if done else "in progress",
        "machineId": machine.id,
        "dtCreated": "2026-11-30T12:00:00.000Z",
        "dtStarted": "2026-11-30T12:00:01.000Z",
        "dtFinished": "2026-11-30T12:01:00.000Z" if done else None,
        "error": None,
    }
    return {**event, **machine.extra.get("event", {})}


def _machine(machine: Machine) -> dict[str, Any]:
    order, phase = machine.order, machine.phase()
    up = phase in (Phase.RUNNING, Phase.ENDING)
    return {
        "id": machine.id,
        "name": machine.name,
        "state": machine.extra.get("state", _STATES[phase]),
        "os": "Ubuntu 22.04 Server",
        "machineType": order["machineType"],
        "agentType": "LinuxHeadless",
        "cpus": 20,
        "ram": "268435456000",
        "storageTotal": "107374182400",
        "storageUsed": "0",
        "accelerators": [{"name": "NVIDIA H100", "memory": "85899345920", "count": 1}],
        "region": "East Coast (NY2)",
        "privateIp": "10.64.13.4",
        "networkId": "n1",
        "publicIp": machine.address if up else None,
        "publicIpType": order["publicIpType"],
        "usageRate": machine.usd_per_hour,
        "storageRate": 0.01,
        "dtCreated": "2026-11-30T12:00:00.000Z",
        "dtModified": "2026-11-30T12:00:00.000Z",
        "dtDeleted": None,
        "reservation": None,
    }


def _error(status: int, code: str, message: str) -> Reply:
    return Reply(status, {"code": code, "message": message})


def _refused(status: int, code: str, message: str) -> Refusal:
    return Refusal(*_error(status, code, message))
