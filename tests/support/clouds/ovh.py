"""OVHcloud on the wire: Keystone v3, nova, glance and neutron of two regions, and the public price list.

Its nova answers as a real one did (`nova_words`, and `tests/clouds/test_ovh_words.py` holds it to that).
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from shunter_providers.testing import CloudFault, Machine, Phase, Refusal, Reply, Request, Route, WireCloud, new_hex_id
from shunter_providers.testing.booting import Boot, from_cloud_init
from support.clouds.consoles import CONSOLE
from support.clouds.nova_words import CONSOLE as CONSOLE_OF
from support.clouds.nova_words import ORDER, check, error, is_uuid, refused

PROJECT: Final = "0123456789abcdef0123456789abcdef"
USER: Final = "user-of-ours"
REGIONS: Final = ("DE1", "GRA11")
_BODIES: Final[Mapping[CloudFault, tuple[int, str, str]]] = {
    CloudFault.AUTH: (401, "error", "The request you have made requires authentication."),
    CloudFault.QUOTA: (
        403,
        "forbidden",
        "Quota exceeded for cores: Requested 30, but already used 18 of 20 cores",
    ),
    CloudFault.RATE_LIMITED: (429, "overLimit", "This request was rate-limited."),
    CloudFault.RATE_LIMITED_SILENT: (413, "overLimit", "This request was rate-limited."),
    CloudFault.SERVER_ERROR: (503, "serviceUnavailable", "Service is unavailable at this time."),
}
_STATUSES: Final = {
    Phase.PENDING: "BUILD",
    Phase.RUNNING: "ACTIVE",
    Phase.PREEMPTED: "SHUTOFF",
    Phase.ENDING: "ACTIVE",
}
_NOVA: Final = r"/nova/(?P<region>[^/]+)/v2\.1"
_MOST_METADATA: Final = 128

_Read = TypeVar("_Read", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Name(_Body):
    name: str


class _UserOfPassword(_Body):
    domain: _Name
    name: str
    password: str


class _Password(_Body):
    user: _UserOfPassword


class _Methods(_Body):
    methods: list[str]
    password: _Password


class _ProjectId(_Body):
    id: str


class _Scope(_Body):
    project: _ProjectId


class _Auth(_Body):
    identity: _Methods
    scope: _Scope


class _SignIn(_Body):
    auth: _Auth


def flavor(name: str, cpus: int, memory_gib: int, disk_gib: int) -> dict[str, Any]:
    """Without a word of GPUs or prices, as nova has it."""
    return {"id": _uuid(), "name": name, "vcpus": cpus, "ram": memory_gib * 1024, "disk": disk_gib, "links": []}


class OvhCloud(WireCloud):
    """One project with one user."""

    lacks: ClassVar[Collection[CloudFault]] = (CloudFault.PAYMENT, CloudFault.NO_CAPACITY)
    """A project without money is closed, which looks like a wrong password; no room shows at the node."""
    shows_rate: ClassVar[bool] = False

    def __init__(self, password: str, **more: Any) -> None:
        super().__init__(**more)
        self._password = password
        self._tokens: set[str] = set()
        self.flavors = {
            "DE1": [flavor("b3-8", 2, 8, 50), flavor("l4-90", 22, 90, 400)],
            "GRA11": [flavor("h100-380", 30, 380, 200), flavor("new-gpu-1", 8, 64, 100), flavor("b3-8", 2, 8, 50)],
        }
        self.images = {name: _uuid() for name in ("Ubuntu 24.04", "NVIDIA GPU Cloud (NGC)", "Ours")}
        self.networks = {name: _uuid() for name in ("Ext-Net", "private")}
        self.quotas = {"cores": 1000, "ram": -1, "instances": 500}
        """What a region of the project may have: cores, memory in MiB, servers; -1: as much as it likes."""
        self.used = {"cores": 4, "ram": 8192, "instances": 1}
        """What is used of that by servers that are nobody's business here."""
        self.prices: dict[str, Any] = {
            "b3-8": 10_120_000,
            "l4-90": 75_000_000,
            "h100-380": 280_000_000,
            "new-gpu-1": 1_000_000,
        }
        self.currency = "EUR"
        self.regions = REGIONS
        self.page = 2
        self.full: set[str] = set()
        """Regions without a host for anything."""
        self.down: set[str] = set()

    def boot_of(self, machine: Machine) -> Boot:
        """The image's first user."""
        return from_cloud_init(base64.b64decode(machine.order["user_data"] or "").decode(), user="ubuntu")

    def routes(self) -> Sequence[Route]:
        """The part of the APIs that a node needs."""
        return [
            Route("POST", "/v3/auth/tokens", "other", self._sign_in),
            Route("GET", rf"{_NOVA}/limits", "whoami", self._limits),
            Route("GET", rf"{_NOVA}/flavors/detail", "offers", self._flavors),
            Route("POST", rf"{_NOVA}/servers", "create", self._create),
            Route("GET", rf"{_NOVA}/servers/detail", "list", self._list),
            Route("GET", rf"{_NOVA}/servers/(?P<id>[^/]+)", "get", self._get),
            Route("DELETE", rf"{_NOVA}/servers/(?P<id>[^/]+)", "terminate", self._delete),
            Route("POST", rf"{_NOVA}/servers/(?P<id>[^/]+)/action", "other", self._act),
            Route("GET", r"/glance/(?P<region>[^/]+)/v2/images", "other", self._images),
            Route("GET", r"/neutron/(?P<region>[^/]+)/v2\.0/networks", "other", self._networks),
            Route("GET", r"/1\.0/order/catalog/public/cloud", "other", self._price_list),
        ]

    def authorize(self, request: Request) -> None:
        """A token that a sign-in gave."""
        if request.path in ("/v3/auth/tokens", "/1.0/order/catalog/public/cloud"):
            return
        if request.headers.get("x-auth-token") not in self._tokens:
            raise Refusal(*error(*_BODIES[CloudFault.AUTH]))
        if request.parts["region"] in self.down:
            raise Refusal(*error(*_BODIES[CloudFault.SERVER_ERROR]))

    def refusal(self, fault: CloudFault, delay_s: float) -> Reply:
        """In the vendor's words."""
        headers = {"Retry-After": f"{delay_s:g}"} if fault is CloudFault.RATE_LIMITED else {}
        return error(*_BODIES[fault])._replace(headers=headers)

    def no_route(self, request: Request) -> Reply:
        """404."""
        return error(404, "itemNotFound", "The resource could not be found.")

    def revoke(self) -> None:
        """No token that was given out is good any longer."""
        self._tokens.clear()

    def _sign_in(self, request: Request) -> Reply:
        wanted = _read(_SignIn, request).auth
        user = wanted.identity.password.user
        if (user.name, user.password, user.domain.name) != (USER, self._password, "Default"):
            raise Refusal(*error(*_BODIES[CloudFault.AUTH]))
        if wanted.scope.project.id != PROJECT:
            raise Refusal(*error(*_BODIES[CloudFault.AUTH]))
        token = new_hex_id(32)
        self._tokens.add(token)
        paths = {"compute": "nova/{}/v2.1", "image": "glance/{}", "network": "neutron/{}", "object-store": "swift/{}"}
        catalog = [
            {"type": kind, "name": kind, "endpoints": [e for region in self.regions for e in self._ends(path, region)]}
            for kind, path in paths.items()
        ]
        body = {"token": {"project": {"id": PROJECT}, "catalog": catalog, "expires_at": "2100-01-01T00:00:00.000000Z"}}
        return Reply(201, body, {"X-Subject-Token": token})

    def _ends(self, path: str, region: str) -> Sequence[dict[str, str]]:
        url = f"{self.url}/{path.format(region)}"
        return [
            {"interface": "public", "region": region, "url": url},
            {"interface": "admin", "region": region, "url": "https://nowhere.invalid"},
        ]

    def _limits(self, request: Request) -> Reply:
        used, quotas = self._used(request.parts["region"]), self.quotas
        absolute = {
            "maxTotalCores": quotas["cores"],
            "totalCoresUsed": used["cores"],
            "maxTotalRAMSize": quotas["ram"],
            "totalRAMUsed": used["ram"],
            "maxTotalInstances": quotas["instances"],
            "totalInstancesUsed": used["instances"],
            "maxServerMeta": _MOST_METADATA,
        }
        return Reply(200, {"limits": {"rate": [], "absolute": absolute}})

    def _flavors(self, request: Request) -> Reply:
        return self._page(request, "flavors", self.flavors[request.parts["region"]])

    def _images(self, request: Request) -> Reply:
        return Reply(200, {"images": _named(self.images, request)})

    def _networks(self, request: Request) -> Reply:
        return Reply(200, {"networks": _named(self.networks, request)})

    def _price_list(self, request: Request) -> Reply:
        assert request.one("ovhSubsidiary"), "the price list is a subsidiary's"
        addons = [
            {"planCode": f"{name}.{kind}", "pricings": [{"capacities": ["installation"], "price": 1}, hourly]}
            for name, price in self.prices.items()
            for kind in ("monthly.postpaid", "consumption")
            for hourly in [{"capacities": ["consumption"], "price": price}]
        ]
        return Reply(200, {"locale": {"currencyCode": self.currency}, "addons": addons, "plans": []})

    def _create(self, request: Request) -> Reply:
        order, region = self._order(request), request.parts["region"]
        flavor = next((one for one in self.flavors[region] if one["id"] == str(order["flavorRef"])), None)
        if flavor is None:
            raise refused(400, f"Flavor {order['flavorRef']} could not be found.")
        if order["imageRef"] not in self.images.values():
            raise refused(400, "Can not find requested image")
        for network in order["networks"]:
            if network["uuid"] not in self.networks.values():
                raise refused(400, f"Network {network['uuid']} could not be found.")
        if "key_name" in order:  # the project has none
            raise refused(400, "Invalid key_name provided.")
        if len(order["metadata"]) > _MOST_METADATA:
            raise refused(403, f"Maximum number of metadata items exceeds {_MOST_METADATA}")
        self._keep_quotas(region, flavor)
        ordered = {**order, "region": region, "full": region in self.full, "flavor": flavor}
        machine = self.machines.make(order["name"], ordered, 1.0, request.strike, _uuid())
        return Reply(202, {"server": {"id": machine.id, "links": [], "OS-DCF:diskConfig": "MANUAL"}})

    def _order(self, request: Request) -> dict[str, Any]:
        """The server that is wanted, as far as it can be read without knowing the cloud."""
        if request.body and request.json() is None:
            raise refused(400, "Malformed request body")
        body = request.json()
        check(ORDER, body)
        order = {"networks": [], "metadata": {}, "user_data": "", **body["server"]}
        for network in order["networks"]:
            if not is_uuid(network["uuid"]):
                said = f"Bad networks format: network uuid is not in proper format ({network['uuid']})"
                raise refused(400, said)
        if not order.get("imageRef"):
            raise refused(400, "Missing imageRef attribute")
        return order

    def _used(self, region: str) -> dict[str, int]:
        there = [one.order["flavor"] for one in self.machines.existing() if one.order["region"] == region]
        return {
            "cores": self.used["cores"] + sum(flavor["vcpus"] for flavor in there),
            "ram": self.used["ram"] + sum(flavor["ram"] for flavor in there),
            "instances": self.used["instances"] + len(there),
        }

    def _keep_quotas(self, region: str, flavor: Mapping[str, Any]) -> None:
        wanted, used = {"cores": flavor["vcpus"], "ram": flavor["ram"], "instances": 1}, self._used(region)
        overs = sorted(one for one, most in self.quotas.items() if 0 <= most < used[one] + wanted[one])
        if overs:
            names, asked, has, most = (
                ", ".join(str(kind[one]) for one in overs)
                for kind in ({one: one for one in overs}, wanted, used, self.quotas)
            )
            said = f"Quota exceeded for {names}: Requested {asked}, but already used {has} of {most} {names}"
            raise refused(403, said)

    def _list(self, request: Request) -> Reply:
        fits = re.compile(request.one("name"))
        there = [one for one in self.machines.visible() if one.order["region"] == request.parts["region"]]
        found = [one for one in reversed(there) if fits.search(one.name)]
        return self._page(request, "servers", [self._shown(one) for one in found])

    def _page(self, request: Request, kind: str, found: Sequence[Mapping[str, Any]]) -> Reply:
        """Some of them, and that more may follow wherever a page is full.

        A server that is being taken up counts twice: nova has it in two places, and leaves one out when it has counted.
        """
        size, marker = min(self.page, _size(request)), request.one("marker")
        ids = [one["id"] for one in found]
        if marker and marker not in ids:
            raise refused(400, f"marker [{marker}] not found")
        at = ids.index(marker) + 1 if marker else 0
        shown = found[at : at + size]
        twice = sum(one.get("status") == "BUILD" for one in shown)
        shown = shown[: max(1, size - twice)]
        page: dict[str, Any] = {kind: shown}
        if shown and len(shown) == size:
            page[f"{kind}_links"] = [{"rel": "next", "href": f"{self.url}/…?marker={shown[-1]['id']}"}]
        return Reply(200, page)

    def _get(self, request: Request) -> Reply:
        return Reply(200, {"server": self._shown(self._existing(request))})

    def _act(self, request: Request) -> Reply:
        body = request.json()
        if not isinstance(body, dict) or len(body) != 1:
            raise refused(400, "Malformed request body")
        if "os-getConsoleOutput" not in body:
            raise refused(400, f"There is no such action: {next(iter(body))}")
        check(CONSOLE_OF, body)
        machine = self._existing(request)
        if machine.phase() is Phase.PENDING:
            raise refused(409, f"Instance {machine.id} is not ready")
        return Reply(200, {"output": CONSOLE[-(body["os-getConsoleOutput"].get("length") or len(CONSOLE)) :]})

    def _delete(self, request: Request) -> Reply:
        self.machines.end(self._existing(request), request.strike)
        return Reply(204)

    def _existing(self, request: Request) -> Machine:
        machine = self.machines.find(request.parts["id"])
        if machine is None or machine.phase() is Phase.GONE or machine.order["region"] != request.parts["region"]:
            raise refused(404, f"Instance {request.parts['id']} could not be found.")
        return machine

    def _shown(self, machine: Machine) -> dict[str, Any]:
        phase, order = machine.phase(), machine.order
        shown: dict[str, Any] = {
            "id": machine.id,
            "name": machine.name,
            "status": _STATUSES[phase],
            "metadata": order["metadata"],
            "flavor": {"id": order["flavor"]["id"], "links": []},
            "image": {"id": order["imageRef"], "links": []},
            "addresses": {},
            "OS-EXT-STS:task_state": "deleting" if phase is Phase.ENDING else None,
        }
        if order["full"] and phase is Phase.RUNNING:
            fault = {"code": 500, "created": "2026-11-30T00:00:00Z", "message": "No valid host was found. "}
            return {**shown, "status": "ERROR", "fault": fault}
        if phase is Phase.RUNNING:
            names = {id_: name for name, id_ in self.networks.items()}
            addresses = [names[network["uuid"]] for network in order["networks"]]
            shown["addresses"] = {
                name: _addresses(machine.address if name == "Ext-Net" else "10.1.0.4") for name in addresses
            }
        return shown

    def preempt(self, handle: str) -> None:
        """By the handle's second half."""
        super().preempt(handle.partition("/")[2])


def _addresses(address: str) -> list[dict[str, Any]]:
    return [{"addr": "2001:db8::7", "version": 6}, {"addr": address, "version": 4}]


def _named(things: Mapping[str, str], request: Request) -> list[dict[str, str]]:
    return [{"id": id_, "name": name} for name, id_ in things.items() if request.one("name", name) == name]


def _size(request: Request) -> int:
    """Of a page."""
    limit = request.one("limit", "1000")
    if not re.fullmatch("[0-9]*", limit):
        said = f"Invalid input for query parameters limit. Value: {limit}. {limit!r} does not match '^[0-9]*$'"
        raise refused(400, said)
    return int(limit)


def _uuid() -> str:
    return str(uuid.uuid4())


def _read(model: type[_Read], request: Request) -> _Read:
    try:
        return model.model_validate_json(request.body)
    except ValidationError as exc:
        first = exc.errors()[0]
        where = "/".join(map(str, first["loc"]))
        raise Refusal(*error(400, "error", f"{where}: {first['msg']}")) from None
