"""Hetzner Robot as its webservice is on the wire: forms, lists that are 404 when empty, orders that no one can name."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs

import asyncssh
import httpx
from shunter_providers.testing import CloudFault, Machine, Phase, Refusal, Reply, Request, Route, WireCloud
from shunter_providers.testing.booting import Boot

_BODIES: Final[Mapping[CloudFault, tuple[int, str, str]]] = {
    CloudFault.AUTH: (401, "UNAUTHORIZED", "Unauthorized"),
    CloudFault.NO_CAPACITY: (404, "NOT_FOUND", "Product not found"),
    CloudFault.RATE_LIMITED_SILENT: (403, "RATE_LIMIT_EXCEEDED", "rate limit exceeded"),
    CloudFault.SERVER_ERROR: (500, "INTERNAL_ERROR", "The transaction failed due to an internal error"),
}
_ORDER: Final = frozenset(
    {"product_id", "authorized_key[]", "password", "location", "dist", "lang", "addon[]", "test", "comment"}
)


def product(name: str, net: str, setup: str, places: Sequence[str], dists: Sequence[str]) -> dict[str, Any]:
    """A product as the vendor shows it: amounts are text, and what is in it is prose."""

    def prices(hourly: str, once: str) -> list[dict[str, Any]]:
        each = {"net": "1", "gross": "1.19", "hourly_net": hourly, "hourly_gross": hourly}
        return [{"location": one, "price": each, "price_setup": {"net": once, "gross": once}} for one in places]

    return {
        "id": name,
        "name": name,
        "description": ["Intel Core i5-13500", "64 GB DDR4 RAM", "2 x 1.92 TB NVMe SSD", "NVIDIA RTX 4000 SFF Ada"],
        "traffic": "unlimited",
        "dist": ["Rescue system", *dists],
        "lang": ["de", "en"],
        "location": list(places),
        "prices": prices(net, setup),
        "orderable_addons": [{"id": "primary_ipv4", "name": "Primary IPv4", "prices": prices("0.0027", "0.0000")}],
    }


class HetznerRobotCloud(WireCloud):
    """One account."""

    lacks: ClassVar = (CloudFault.PAYMENT, CloudFault.QUOTA, CloudFault.RATE_LIMITED, CloudFault.NEVER_BOOTS)
    """Its words for want of money and for limits are not documented; it names no wait; an order that is never done
    cannot be cancelled either."""
    shows_rate: ClassVar[bool] = False

    def __init__(self, password: str, host_key: asyncssh.SSHKey | None = None, **more: Any) -> None:
        """`host_key`: the one that the vendor installs."""
        super().__init__(**more)
        self._credential = httpx.BasicAuth("#ws+test", password)._auth_header
        self._numbers = itertools.count(2_417_234)
        key = self._key = host_key or asyncssh.generate_private_key("ssh-ed25519")
        self._host_key = key.get_fingerprint("md5").removeprefix("MD5:")
        self.products = [
            product("GEX44", "0.2952", "79.0000", ("FSN1", "HEL1"), ("Ubuntu with CUDA",)),
            product("GEX130", "1.3430", "79.0000", ("NBG1",), ("Ubuntu with CUDA",)),
            product("GEX999", "9.0000", "0.0000", ("FSN1",), ("Ubuntu with CUDA",)),
            product("GEX45", "0.3430", "209.0000", ("FSN1",), ("Debian",)),
        ]
        self.keys: dict[str, dict[str, str]] = {}
        self._ordered: list[Machine] = []
        self.earliest = "2010-01-01"
        self.forgets_orders = False
        """As the vendor does after 30 days."""

    def boot_of(self, machine: Machine) -> Boot:
        """The vendor installs the keys of the order for root, and a host key whose fingerprint it tells."""
        keys = [key["data"] for key in machine.order["keys"]]
        host_key = self._key.export_private_key().decode()
        return Boot("", {}, {}, authorized_keys=keys, host_key=host_key, gpus=["NVIDIA RTX 4000 SFF Ada Generation"])

    def routes(self) -> Sequence[Route]:
        """The part of the webservice that a node needs."""
        order, server = r"/order/server/transaction", r"/server/(?P<number>\d+)"
        return [
            Route("GET", r"/order/server/product", "offers", lambda asked: _list("product", self.products)),
            Route("POST", order, "create", self._order),
            Route("GET", order, "list", self._orders),
            Route("GET", rf"{order}/(?P<id>[^/]+)", "get", self._transaction),
            Route("GET", r"/server", "other", self._servers),
            Route("GET", server, "other", lambda asked: Reply(200, {"server": _server(self._existing(asked))})),
            Route("POST", server, "other", self._rename),
            Route("GET", rf"{server}/cancellation", "other", self._cancellation),
            Route("POST", rf"{server}/cancellation", "terminate", self._cancel),
            Route("GET", r"/key", "other", lambda asked: _list("key", list(self.keys.values()))),
            Route("POST", r"/key", "other", self._add_key),
            Route("DELETE", r"/key/(?P<fingerprint>[^/]+)", "other", self._delete_key),
        ]

    def authorize(self, request: Request) -> None:
        """HTTP Basic."""
        if request.headers.get("authorization") != self._credential:
            raise _refused(*_BODIES[CloudFault.AUTH])

    def refusal(self, fault: CloudFault, delay_s: float) -> Reply:
        """In the vendor's words."""
        return _error(*_BODIES[fault])

    def no_route(self, request: Request) -> Reply:
        """A page that is no JSON."""
        return Reply(404, "<html>Not Found</html>", {"Content-Type": "text/html"})

    def preempt(self, handle: str) -> None:
        """The vendor takes the server back."""
        with self._lock:
            machine = self.machines.find(handle)
            assert machine is not None
            self.machines.end(machine, None)

    def _order(self, request: Request) -> Reply:
        form = parse_qs(request.body.decode(), keep_blank_values=True)
        if unknown := set(form) - _ORDER:
            raise _invalid(invalid=sorted(unknown))
        if missing := {"product_id", "authorized_key[]", "location"} - set(form):
            raise _invalid(missing=sorted(missing))
        assert "comment" not in form, "an order with a comment is worked on by hand"
        chosen = next((one for one in self.products if one["id"] == form["product_id"][0]), None)
        if chosen is None or form["location"][0] not in chosen["location"]:
            raise _refused(404, "NOT_FOUND", "Product not found")
        if form["dist"][0] not in chosen["dist"] or set(form["authorized_key[]"]) - set(self.keys):
            raise _invalid(invalid=["dist or authorized_key"])
        keys = [self.keys[mark] for mark in form["authorized_key[]"]]
        number = next(self._numbers)
        made = {"product": chosen["id"], "keys": keys, "number": number, "addon": form.get("addon[]", [])}
        machine = self.machines.make("", made, 1.0, request.strike, f"B20261130-{number}-251478")
        machine.extra["name"] = ""
        self._ordered.append(machine)
        return Reply(201, {"transaction": self._shown(machine)})

    def _shown(self, machine: Machine) -> dict[str, Any]:
        is_done = machine.phase() is not Phase.PENDING
        return {
            "id": machine.id,
            "date": "2026-11-30 15:57:31",
            "status": "ready" if is_done else "in process",
            "server_number": machine.order["number"] if is_done else None,
            "server_ip": machine.address if is_done else None,
            "authorized_key": [{"key": key} for key in machine.order["keys"] if key["fingerprint"] in self.keys],
            "host_key": [{"key": {"fingerprint": self._host_key, "type": "ED25519", "size": 256}}] if is_done else [],
            "comment": None,
            "product": {"id": machine.order["product"], "name": machine.order["product"]},
        }

    def _orders(self, request: Request) -> Reply:
        """Of 30 days, also those whose server has long been given back."""
        shown = [] if self.forgets_orders else [one for one in self._ordered if one.is_visible()]
        return _list("transaction", [self._shown(machine) for machine in shown])

    def _transaction(self, request: Request) -> Reply:
        machine = self.machines.find(request.parts["id"])
        if machine is None or self.forgets_orders:
            raise _refused(404, "NOT_FOUND", "Transaction not found")
        return Reply(200, {"transaction": self._shown(machine)})

    def _servers(self, request: Request) -> Reply:
        running = [one for one in self.machines.visible() if one.phase() is not Phase.PENDING]
        return _list("server", [_server(machine) for machine in running], "SERVER_NOT_FOUND")

    def _existing(self, request: Request) -> Machine:
        number = int(request.parts["number"])
        found = next((one for one in self.machines.visible() if one.order["number"] == number), None)
        if found is None or found.phase() is Phase.PENDING:
            raise _refused(404, "SERVER_NOT_FOUND", f"Server with id {number} not found")
        return found

    def _rename(self, request: Request) -> Reply:
        machine = self._existing(request)
        machine.extra["name"] = parse_qs(request.body.decode())["server_name"][0]
        return Reply(200, {"server": _server(machine)})

    def _cancellation(self, request: Request) -> Reply:
        server = _server(self._existing(request))
        return Reply(200, {"cancellation": {**server, "earliest_cancellation_date": self.earliest}})

    def _cancel(self, request: Request) -> Reply:
        machine = self._existing(request)
        date = parse_qs(request.body.decode())["cancellation_date"][0]
        if machine.ended_at is not None:
            raise _refused(409, "CONFLICT", "The server is already cancelled")
        if date == "now" and self.earliest > "2026":
            raise _invalid(invalid=["cancellation_date"])
        self.machines.end(machine, request.strike)
        if date != "now":
            machine.gone_at = float("inf")
        return Reply(200, {"cancellation": {**_server(machine), "cancellation_date": date}})

    def _add_key(self, request: Request) -> Reply:
        form = parse_qs(request.body.decode())
        name, data = form["name"][0], form["data"][0]
        try:
            key = asyncssh.import_public_key(data)
        except asyncssh.KeyImportError:
            raise _invalid(invalid=["data"]) from None
        mark = key.get_fingerprint("md5").removeprefix("MD5:")
        if mark in self.keys:
            raise _refused(409, "KEY_ALREADY_EXISTS", "Key already exists")
        self.keys[mark] = {"name": name, "fingerprint": mark, "type": "ED25519", "data": data}
        return Reply(201, {"key": self.keys[mark]})

    def _delete_key(self, request: Request) -> Reply:
        if self.keys.pop(request.parts["fingerprint"], None) is None:
            raise _refused(404, "NOT_FOUND", "Key not found")
        return Reply(200)


def _server(machine: Machine) -> dict[str, Any]:
    return {
        "server_ip": machine.address,
        "server_number": machine.order["number"],
        "server_name": machine.extra["name"],
        "product": machine.order["product"],
        "dc": "FSN1-DC14",
        "status": "ready",
        "cancelled": machine.ended_at is not None,
        "paid_until": "2026-12-01",
    }


def _list(name: str, items: Sequence[Any], none: str = "NOT_FOUND") -> Reply:
    if not items:
        raise _refused(404, none, f"No {name} found")
    return Reply(200, [{name: item} for item in items])


def _error(status: int, code: str, message: str, **more: Any) -> Reply:
    return Reply(status, {"error": {"status": status, "code": code, "message": message, **more}})


def _refused(status: int, code: str, message: str) -> Refusal:
    return Refusal(*_error(status, code, message))


def _invalid(missing: list[str] | None = None, invalid: list[str] | None = None) -> Refusal:
    return Refusal(*_error(400, "INVALID_INPUT", "invalid input", missing=missing, invalid=invalid))
