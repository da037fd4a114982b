"""OVHcloud on the wire: Keystone v3, nova, glance and neutron of two regions, and the public price list."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from shunter_providers.testing import CloudFault, Machine, Phase, Refusal, Reply, Request, Route, WireCloud, new_hex_id
from shunter_providers.testing.booting import Boot, from_cloud_init
from support.clouds.consoles import CONSOLE

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
_ID: Final = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"

_Read = TypeVar("_Read", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Network(_Body):
    uuid: str = Field(pattern=_ID)
    port: str | None = None
    fixed_ip: str | None = None


class _Server(_Body):
    """`server` of nova 2.1, as far as the fake goes; nova takes no property that it does not know."""

    name: str = Field(min_length=1, max_length=255)
    flavorRef: str
    imageRef: str
    networks: Annotated[list[_Network], Field(min_length=1)]
    key_name: str | None = None
    user_data: str | None = Field(default=None, max_length=65535)
    metadata: dict[str, Annotated[str, Field(max_length=255)]] = {}
    config_drive: bool = False


class _Create(_Body):
    server: _Server


class _Length(_Body):
    length: int | None = None


class _Action(_Body):
    console: _Length = Field(alias="os-getConsoleOutput")


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
        self.limits = {"maxTotalCores": 100, "totalCoresUsed": 4, "maxTotalInstances": 20, "maxImageMeta": -1}
        self.prices: dict[str, Any] = {
            "b3-8": 10_120_000,
            "l4-90": 75_000_000,
            "h100-380": 280_000_000,
            "new-gpu-1": 1_000_000,
        }
        self.currency = "EUR"
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
            Route("GET", rf"{_NOVA}/flavors", "other", self._flavors),
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
            raise _refused(*_BODIES[CloudFault.AUTH])
        if request.parts["region"] in self.down:
            raise _refused(*_BODIES[CloudFault.SERVER_ERROR])

    def refusal(self, fault: CloudFault, delay_s: float) -> Reply:
        """In the vendor's words."""
        headers = {"Retry-After": f"{delay_s:g}"} if fault is CloudFault.RATE_LIMITED else {}
        return _error(*_BODIES[fault])._replace(headers=headers)

    def no_route(self, request: Request) -> Reply:
        """404."""
        return _error(404, "itemNotFound", "The resource could not be found.")

    def revoke(self) -> None:
        """No token that was given out is good any longer."""
        self._tokens.clear()

    def _sign_in(self, request: Request) -> Reply:
        wanted = _read(_SignIn, request).auth
        user = wanted.identity.password.user
        if (user.name, user.password, user.domain.name) != (USER, self._password, "Default"):
            raise _refused(*_BODIES[CloudFault.AUTH])
        if wanted.scope.project.id != PROJECT:
            raise _refused(*_BODIES[CloudFault.AUTH])
        token = new_hex_id(32)
        self._tokens.add(token)
        paths = {"compute": "nova/{}/v2.1", "image": "glance/{}", "network": "neutron/{}", "object-store": "swift/{}"}
        catalog = [
            {"type": kind, "name": kind, "endpoints": [e for region in REGIONS for e in self._ends(path, region)]}
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
        return Reply(200, {"limits": {"rate": [], "absolute": self.limits}})

    def _flavors(self, request: Request) -> Reply:
        return Reply(200, {"flavors": self.flavors[request.parts["region"]]})

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
        order, region = _read(_Create, request).server, request.parts["region"]
        known = {one["id"] for one in self.flavors[region]}
        if order.flavorRef not in known:
            raise _refused(400, "badRequest", f"Flavor {order.flavorRef} could not be found.")
        if order.imageRef not in self.images.values():
            raise _refused(400, "badRequest", f"Image {order.imageRef} could not be found.")
        if not {network.uuid for network in order.networks} <= set(self.networks.values()):
            raise _refused(400, "badRequest", f"Network {order.networks[0].uuid} could not be found.")
        if order.user_data is not None:
            base64.b64decode(order.user_data, validate=True)
        ordered = {**order.model_dump(), "region": region, "full": region in self.full}
        machine = self.machines.make(order.name, ordered, 1.0, request.strike, _uuid())
        return Reply(202, {"server": {"id": machine.id, "links": [], "OS-DCF:diskConfig": "MANUAL"}})

    def _list(self, request: Request) -> Reply:
        fits = re.compile(request.one("name"))
        found = [one for one in self.machines.visible() if one.order["region"] == request.parts["region"]]
        found = [one for one in found if fits.search(one.name)]
        ids = [one.id for one in found]
        at = ids.index(request.one("marker")) + 1 if request.one("marker") else 0
        shown = found[at : at + min(self.page, int(request.one("limit", "1000")))]
        page: dict[str, Any] = {"servers": [self._shown(one) for one in shown]}
        if at + len(shown) < len(found):
            page["servers_links"] = [{"rel": "next", "href": f"{self.url}/…?marker={shown[-1].id}"}]
        return Reply(200, page)

    def _get(self, request: Request) -> Reply:
        return Reply(200, {"server": self._shown(self._existing(request))})

    def _act(self, request: Request) -> Reply:
        order = _read(_Action, request)
        self._existing(request)
        return Reply(200, {"output": CONSOLE[-(order.console.length or len(CONSOLE)) :]})

    def _delete(self, request: Request) -> Reply:
        self.machines.end(self._existing(request), request.strike)
        return Reply(204)

    def _existing(self, request: Request) -> Machine:
        machine = self.machines.find(request.parts["id"])
        if machine is None or machine.phase() is Phase.GONE or machine.order["region"] != request.parts["region"]:
            raise _refused(404, "itemNotFound", f"Instance {request.parts['id']} could not be found.")
        return machine

    def _shown(self, machine: Machine) -> dict[str, Any]:
        phase, order = machine.phase(), machine.order
        shown: dict[str, Any] = {
            "id": machine.id,
            "name": machine.name,
            "status": _STATUSES[phase],
            "metadata": order["metadata"],
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


def _uuid() -> str:
    return str(uuid.uuid4())


def _read(model: type[_Read], request: Request) -> _Read:
    try:
        return model.model_validate_json(request.body)
    except ValidationError as exc:
        first = exc.errors()[0]
        where = "/".join(map(str, first["loc"]))
        raise _refused(400, "badRequest", f"Invalid input for field/attribute {where}. {first['msg']}") from None


def _error(status: int, code: str, message: str) -> Reply:
    return Reply(status, {code: {"code": status, "message": message}})


def _refused(status: int, code: str, message: str) -> Refusal:
    return Refusal(*_error(status, code, message))
