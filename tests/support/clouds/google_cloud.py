"""Google's Compute API v1 on the wire: signed sign-in, strict bodies and filters, operations that fail later, pages."""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import ValidationError
from shunter_providers.testing import CloudFault, Machine, Phase, Refusal, Reply, Request, Route, WireCloud, new_hex_id
from shunter_providers.testing.booting import Boot, from_cloud_init
from shunter_providers.testing.faults import Verb
from support.clouds.consoles import CONSOLE
from support.clouds.google_bodies import Order

PROJECT: Final = "a-project"
EMAIL: Final = f"trainer@{PROJECT}.iam.gserviceaccount.com"
_ANSWERS: Final[Mapping[CloudFault, tuple[int, str, str]]] = {
    CloudFault.AUTH: (401, "authError", "Request had invalid authentication credentials."),
    CloudFault.PAYMENT: (
        403,
        "BILLING_DISABLED",
        f"This API method requires billing to be enabled. Please enable billing on project #{PROJECT}.",
    ),
    CloudFault.RATE_LIMITED: (429, "rateLimitExceeded", "Quota exceeded for quota metric 'Queries' and limit 'Q/min'"),
    CloudFault.RATE_LIMITED_SILENT: (403, "rateLimitExceeded", "Rate Limit Exceeded"),
    CloudFault.SERVER_ERROR: (503, "backendError", "Backend Error"),
}
FAILURES: Final[Mapping[CloudFault, tuple[int, str, str]]] = {
    CloudFault.NO_CAPACITY: (
        503,
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "The zone 'projects/a-project/zones/z' does not have enough resources available to fulfill the request.",
    ),
    CloudFault.QUOTA: (403, "QUOTA_EXCEEDED", "Quota 'NVIDIA_H100_GPUS' exceeded.  Limit: 8.0 in region us-central1."),
}
"""Of operations: the call itself is accepted."""
_STATUSES: Final = {
    Phase.PENDING: "STAGING",
    Phase.RUNNING: "RUNNING",
    Phase.PREEMPTED: "TERMINATED",
    Phase.ENDING: "STOPPING",
}
_ZONE: Final = r"/compute/v1/projects/(?P<project>[^/]+)/zones/(?P<zone>[^/]+)"
_ALL: Final = r"/compute/v1/projects/(?P<project>[^/]+)"
_IMAGES: Final = re.compile(r"projects/(ubuntu-os-cloud|ubuntu-os-accelerator-images|a-project)/global/images/.+")
_PAGING: Final = {"maxResults", "pageToken", "filter"}


@dataclass(slots=True)
class Operation:
    """Something that is being done to a node. Times are seconds since the epoch."""

    name: str
    kind: str
    zone: str
    target: str
    done_at: float
    failure: tuple[int, str, str] | None = None

    def shown(self) -> dict[str, Any]:
        """As the API has it."""
        done = time.time() >= self.done_at
        shown: dict[str, Any] = {
            "kind": "compute#operation",
            "name": self.name,
            "operationType": self.kind,
            "status": "DONE" if done else "RUNNING",
            "targetLink": self.link,
            "insertTime": _when(self.done_at - 1),
        }
        if done:
            shown["endTime"] = _when(self.done_at)
        if done and self.failure is not None:
            status, code, message = self.failure
            shown["error"] = {"errors": [{"code": code, "message": message}]}
            shown |= {"httpErrorStatusCode": status, "httpErrorMessage": "FAILED"}
        return shown

    @property
    def link(self) -> str:
        """Of the node."""
        base = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}"
        return f"{base}/zones/{self.zone}/instances/{self.target}"


def machine_type(name: str, cpus: int, memory_gib: int, gpu: str = "", gpus: int = 0) -> dict[str, Any]:
    """A type, with its accelerators built in."""
    kind = {"kind": "compute#machineType", "name": name, "guestCpus": cpus, "memoryMb": memory_gib * 1024}
    return {**kind, "accelerators": [{"guestAcceleratorType": gpu, "guestAcceleratorCount": gpus}]} if gpus else kind


class GoogleCloud(WireCloud):
    """One project with one service account."""

    lacks: ClassVar[Collection[CloudFault]] = (CloudFault.TWIN, CloudFault.DEARER)
    """A name is taken once; the API tells no prices."""
    shows_rate: ClassVar[bool] = False

    def __init__(self, token: str, **more: Any) -> None:
        super().__init__(**more)
        self._token = token
        h200 = machine_type("a3-ultragpu-8g", 224, 2952, "nvidia-h200-141gb", 8)
        h100 = machine_type("a3-highgpu-8g", 208, 1872, "nvidia-h100-80gb", 8)
        one = machine_type("a3-highgpu-1g", 26, 234, "nvidia-h100-80gb", 1)
        cpu = machine_type("e2-standard-4", 4, 16)
        self.types = {
            "us-central1-a": [h200, h100, one, cpu],
            "us-central1-b": [h100],
            "europe-west1-b": [h200, cpu],
            "europe-west3-a": [],
        }
        self.quotas: dict[str, list[dict[str, Any]]] = {}
        self.operations: dict[str, Operation] = {}
        self.operation_s = 0.02
        self.page = 2
        self.unreachable: list[str] = []

    def strike(self, fault: CloudFault, *, on: Verb | None = None, times: int = 1, delay_s: float = 0.3) -> None:
        """Late is twice as late here: a create call waits for its operation before it answers."""
        super().strike(fault, on=on, times=times, delay_s=2 * delay_s if fault is CloudFault.LATE else delay_s)

    def preempt(self, handle: str) -> None:
        """A spot node that shall be deleted vanishes; others are stopped."""
        super().preempt(handle)
        machine = self.machines.find(handle)
        assert machine is not None
        if machine.order["scheduling"]["instanceTerminationAction"] == "DELETE":
            machine.preempted = False
            self.machines.end(machine, None)
            zone, name = handle.split("/")
            self._operate("compute.instances.preempted", zone, name)

    def boot_of(self, machine: Machine) -> Boot:
        """The image's first user."""
        items = {item["key"]: item["value"] for item in machine.order["metadata"]["items"]}
        return from_cloud_init(items.get("user-data", ""), user="ubuntu")

    def routes(self) -> Sequence[Route]:
        """The part of the API that a node needs."""
        return [
            Route("POST", r"/o/oauth2/token", "other", self._sign_in),
            Route("GET", _ALL, "whoami", self._project),
            Route("GET", rf"{_ALL}/regions", "offers", self._regions),
            Route("GET", rf"{_ALL}/aggregated/machineTypes", "offers", self._types),
            Route("GET", rf"{_ALL}/aggregated/instances", "list", self._list),
            Route("POST", rf"{_ZONE}/instances", "create", self._insert),
            Route("GET", rf"{_ZONE}/instances/(?P<name>[^/]+)", "get", self._get),
            Route("DELETE", rf"{_ZONE}/instances/(?P<name>[^/]+)", "terminate", self._delete),
            Route("GET", rf"{_ZONE}/instances/(?P<name>[^/]+)/serialPort", "other", self._serial_port),
            Route("GET", rf"{_ZONE}/operations/(?P<name>[^/]+)", "other", self._operation),
            Route("GET", rf"{_ZONE}/operations", "other", self._operations),
        ]

    def authorize(self, request: Request) -> None:
        """A token that a sign-in gave, in the project of the account."""
        if request.path == "/o/oauth2/token":
            return
        if request.headers.get("authorization") != f"Bearer {self._token}":
            raise _refused(*_ANSWERS[CloudFault.AUTH])
        if request.parts["project"] != PROJECT:
            raise _refused(403, "forbidden", "Required 'compute.projects.get' permission for this project")

    def refusal(self, fault: CloudFault, delay_s: float) -> Reply:
        """In the vendor's words; some are told by an operation only."""
        request = self.calls[-1]
        if fault in FAILURES:
            operation = self._operate("insert", request.parts["zone"], self._read(request).name, FAILURES[fault])
            return Reply(200, operation.shown())
        if request.path == "/o/oauth2/token" and fault is CloudFault.AUTH:
            return Reply(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
        headers = {"Retry-After": f"{delay_s:g}"} if fault is CloudFault.RATE_LIMITED else {}
        return _error(*_ANSWERS[fault])._replace(headers=headers)

    def no_route(self, request: Request) -> Reply:
        """Google's page."""
        return Reply(404, "<html><title>Error 404 (Not Found)!!1</title></html>", {"Content-Type": "text/html"})

    def _sign_in(self, request: Request) -> Reply:
        head, _, signature = parse_qs(request.body.decode())["assertion"][0].rpartition(".")
        claims = json.loads(_decoded(head.split(".")[1]))
        try:
            key().public_key().verify(_decoded(signature), head.encode(), padding.PKCS1v15(), SHA256())
        except InvalidSignature:
            refused = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
            raise Refusal(400, refused) from None
        assert claims["iss"] == EMAIL
        assert claims["scope"] == "https://www.googleapis.com/auth/compute"
        return Reply(200, {"access_token": self._token, "expires_in": 3599, "token_type": "Bearer"})

    def _project(self, request: Request) -> Reply:
        quotas = [{"metric": "GPUS_ALL_REGIONS", "limit": 16.0, "usage": 0.0}]
        return Reply(200, {"kind": "compute#project", "name": PROJECT, "quotas": quotas})

    def _regions(self, request: Request) -> Reply:
        _know(request, _PAGING)
        names = sorted({zone.rpartition("-")[0] for zone in self.types})
        regions = [{"name": name, "status": "UP", "quotas": self.quotas.get(name, [])} for name in names]
        return Reply(200, {"kind": "compute#regionList", "items": regions})

    def _types(self, request: Request) -> Reply:
        _know(request, _PAGING)
        wanted = re.findall(r'\(name = "([^"]+)"\)', request.one("filter"))
        found = [
            (zone, kind) for zone, kinds in self.types.items() for kind in kinds if not wanted or kind["name"] in wanted
        ]
        return self._aggregated("machineTypes", request, found)

    def _list(self, request: Request) -> Reply:
        _know(request, _PAGING)
        fits = _filter(request, "name")
        found = [
            (machine.id.split("/")[0], _instance(machine)) for machine in self.machines.visible() if fits(machine.name)
        ]
        return self._aggregated("instances", request, found)

    def _aggregated(self, kind: str, request: Request, found: Sequence[tuple[str, Any]]) -> Reply:
        at = int(request.one("pageToken", "0"))
        shown = found[at : at + min(self.page, int(request.one("maxResults", "500")))]
        none = {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results for scope on this page."}}
        items = {f"zones/{zone}": {kind: held} if (held := _in(zone, shown)) else none for zone in self.types}
        page: dict[str, Any] = {"kind": f"compute#{kind}AggregatedList", "items": items}
        if at + len(shown) < len(found):
            page["nextPageToken"] = str(at + len(shown))
        if self.unreachable:
            page["unreachables"] = self.unreachable
        return Reply(200, page)

    def _insert(self, request: Request) -> Reply:
        _know(request, {"requestId"})
        request_id, zone = str(uuid.UUID(request.one("requestId"))), request.parts["zone"]
        if known := self.operations.get(request_id):
            return Reply(200, known.shown())
        order = self._read(request)
        self._check(order, zone)
        if self.machines.named(order.name):
            message = f"The resource 'projects/{PROJECT}/zones/{zone}/instances/{order.name}' already exists"
            raise _refused(409, "alreadyExists", message)
        self.machines.make(order.name, order.model_dump(), 1.0, request.strike, f"{zone}/{order.name}")
        operation = self._operate("insert", zone, order.name)
        self.operations[request_id] = operation
        return Reply(200, operation.shown())

    def _read(self, request: Request) -> Order:
        try:
            return Order.model_validate_json(request.body)
        except ValidationError as exc:
            first = exc.errors()[0]
            where = ".".join(map(str, first["loc"]))
            if first["type"] == "extra_forbidden":
                unknown = first["loc"][-1]
                told = f"Invalid JSON payload received. Unknown name \"{unknown}\" at '{where}': Cannot find field."
                raise _refused(400, "badRequest", told) from None
            raise _refused(400, "invalid", f"Invalid value for field 'resource.{where}': {first['msg']}") from None

    def _check(self, order: Order, zone: str) -> None:
        name = order.machineType.removeprefix(f"zones/{zone}/machineTypes/")
        kind = next((one for one in self.types.get(zone, ()) if one["name"] == name), None)
        if kind is None:
            raise _refused(400, "invalid", f"Machine type with name '{name}' does not exist in zone '{zone}'.")
        boot = order.disks[0].initializeParams
        if boot is None or not _IMAGES.fullmatch(boot.sourceImage):
            where = "resource.disks[0].initializeParams.sourceImage"
            raise _refused(400, "invalid", f"Invalid value for field '{where}': The referenced image cannot be found.")
        if "accelerators" in kind and order.scheduling.onHostMaintenance != "TERMINATE":
            raise _refused(400, "invalid", "Instances with guest accelerators do not support live migration.")
        disk = boot.diskType.rpartition("/")[2]
        if (disk == "hyperdisk-balanced") != name.startswith("a3-ultragpu"):
            raise _refused(400, "invalid", f"[{disk}] features are not compatible for creating instance.")

    def _get(self, request: Request) -> Reply:
        return Reply(200, _instance(self._existing(request)))

    def _serial_port(self, request: Request) -> Reply:
        _know(request, {"port", "start"})
        self._existing(request)
        return Reply(200, {"kind": "compute#serialPortOutput", "contents": CONSOLE, "start": "0", "next": "36"})

    def _delete(self, request: Request) -> Reply:
        self.machines.end(self._existing(request), request.strike)
        return Reply(200, self._operate("delete", request.parts["zone"], request.parts["name"]).shown())

    def _existing(self, request: Request) -> Machine:
        zone, name = request.parts["zone"], request.parts["name"]
        machine = self.machines.find(f"{zone}/{name}")
        if machine is None or machine.phase() is Phase.GONE:
            message = f"The resource 'projects/{PROJECT}/zones/{zone}/instances/{name}' was not found"
            raise _refused(404, "notFound", message)
        return machine

    def _operate(self, kind: str, zone: str, target: str, failure: tuple[int, str, str] | None = None) -> Operation:
        operation = Operation(
            f"operation-{new_hex_id(12)}", kind, zone, target, time.time() + self.operation_s, failure
        )
        self.operations[operation.name] = operation
        return operation

    def _operation(self, request: Request) -> Reply:
        operation = self.operations.get(request.parts["name"])
        if operation is None:
            raise _refused(404, "notFound", "The resource was not found")
        return Reply(200, operation.shown())

    def _operations(self, request: Request) -> Reply:
        _know(request, _PAGING)
        if request.parts["zone"] not in self.types:
            raise _refused(404, "notFound", "The zone was not found")
        fits = _filter(request, "targetLink")
        distinct = {one.name: one for one in self.operations.values()}.values()
        found = [one.shown() for one in distinct if one.zone == request.parts["zone"] and fits(one.link)]
        return Reply(200, {"kind": "compute#operationList", **({"items": found} if found else {})})


@cache
def key() -> rsa.RSAPrivateKey:
    """The service account's, for all tests; short, for reading one takes a while."""
    return rsa.generate_private_key(public_exponent=65537, key_size=1024)


def key_file(private_key: rsa.RSAPrivateKey | None = None) -> str:
    """As Google hands it out."""
    pem = (private_key or key()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return json.dumps({"type": "service_account", "project_id": PROJECT, "client_email": EMAIL, "private_key": pem})


def _filter(request: Request, field: str) -> Any:
    """`FIELD eq "PATTERN"`, which must fit the whole value; nothing else."""
    text = request.one("filter")
    found = re.fullmatch(rf'{field} eq "([^"]+)"', text)
    if text and found is None:
        raise _refused(400, "invalid", f"Invalid value for field 'filter': '{text}'. Invalid list filter expression.")
    return (lambda value: re.fullmatch(found[1], value) is not None) if found else (lambda value: True)


def _know(request: Request, names: Collection[str]) -> None:
    if unknown := set(request.query) - set(names):
        raise _refused(400, "badRequest", f'Invalid JSON payload received. Unknown name "{unknown.pop()}"')


def _in(zone: str, shown: Sequence[tuple[str, Any]]) -> list[Any]:
    return [one for place, one in shown if place == zone]


def _instance(machine: Machine) -> dict[str, Any]:
    order, phase = machine.order, machine.phase()
    nic: dict[str, Any] = {"name": "nic0", "networkIP": "10.128.0.7"}
    if phase is Phase.RUNNING:
        nic["accessConfigs"] = [{"type": "ONE_TO_ONE_NAT", "name": "External NAT", "natIP": machine.address}]
    return {
        "kind": "compute#instance",
        "name": machine.name,
        "status": _STATUSES[phase],
        "zone": f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{machine.id.split('/')[0]}",
        "scheduling": {name: value for name, value in order["scheduling"].items() if value is not None},
        "labels": order["labels"],
        "networkInterfaces": [nic],
    }


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part)


def _error(status: int, reason: str, message: str) -> Reply:
    errors = [{"message": message, "domain": "global", "reason": reason}]
    return Reply(status, {"error": {"code": status, "message": message, "errors": errors}})


def _refused(status: int, reason: str, message: str) -> Refusal:
    return Refusal(*_error(status, reason, message))
