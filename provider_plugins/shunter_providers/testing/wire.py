"""A base for fakes that speak a vendor's wire format: real HTTP on loopback, state, and the kit's faults.

    class AcmeCloud(WireCloud):
        def routes(self):
            return [Route("POST", r"/v1/servers", "create", self.order), ...]

        def order(self, request: Request) -> Reply: ...

Run it as a context manager; `url` is where it listens. It counts on nothing but the standard library.
"""

from __future__ import annotations

import json
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

from shunter_providers.testing.booting import NOTHING, Boot, Runner
from shunter_providers.testing.faults import CloudFault, Strike, Verb, strike
from shunter_providers.testing.machines import Machine, Machines

_IDLE_S = 5.0


class Reply(NamedTuple):
    """What goes out. `body`: JSON; text as it is; None: nothing."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = {}


class Refusal(Exception):
    """Ends a handler with a reply that is no success."""

    def __init__(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{status} {body}")
        self.reply = Reply(status, body, headers or {})


@dataclass(frozen=True, slots=True)
class Request:
    """What came in."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    parts: Mapping[str, str] = field(default_factory=dict)
    """Named groups of the route's pattern."""
    strike: Strike | None = None

    def json(self) -> Any:
        """The body as JSON; None: it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def one(self, name: str, default: str = "") -> str:
        """A query parameter."""
        return next(iter(self.query.get(name, ())), default)


class Route(NamedTuple):
    """`path` is a pattern that fits the whole path."""

    method: str
    path: str
    verb: Verb
    handle: Callable[[Request], Reply]


class WireCloud(ABC):
    """One account of a cloud that does not exist."""

    lacks: ClassVar[Collection[CloudFault]] = ()
    """Faults that this vendor cannot show."""
    shows_rate: ClassVar[bool] = True
    """Whether its API tells what a node is billed."""

    def __init__(
        self, *, boot_s: float = 0.05, list_lag_s: float = 0.05, end_s: float = 0.0, boots: Runner | None = None
    ) -> None:
        """`boots`: the nodes do on this machine what they are told (`boot_of`); by default they do nothing."""
        self.machines = Machines(boot_s=boot_s, list_lag_s=list_lag_s, end_s=end_s)
        if boots is not None:
            self.machines.on_made = lambda machine: self._boot(machine, boots)
            self.machines.on_ended = lambda machine: boots.end(machine.id)
        self.calls: list[Request] = []
        self._strikes: list[Strike] = []
        self._lock = threading.RLock()
        self._server: _Server | None = None
        self._port = 0

    @abstractmethod
    def routes(self) -> Sequence[Route]:
        """Everything that the API has, as far as the fake goes."""

    @abstractmethod
    def authorize(self, request: Request) -> None:
        """Raises Refusal as the vendor does where the credentials are wrong."""

    @abstractmethod
    def refusal(self, fault: CloudFault, delay_s: float) -> Reply:
        """The vendor's own body for AUTH, PAYMENT, NO_CAPACITY, QUOTA, RATE_LIMITED(_SILENT) and SERVER_ERROR."""

    @abstractmethod
    def no_route(self, request: Request) -> Reply:
        """The vendor's answer to a path that it does not have."""

    def boot_of(self, machine: Machine) -> Boot:
        """What a node was told to do when it boots; fakes that run nodes say so."""
        return NOTHING

    def strike(self, fault: CloudFault, *, on: Verb | None = None, times: int = 1, delay_s: float = 0.3) -> None:
        """Let the next fitting calls go wrong."""
        self._strikes.append(strike(fault, on, times, delay_s))

    def calm(self) -> None:
        """Whatever waits to go wrong does not."""
        with self._lock:
            self._strikes.clear()

    def nodes(self) -> Sequence[Machine]:
        """The truth: everything that exists and bills, shown or not."""
        with self._lock:
            return list(self.machines.existing())

    def preempt(self, handle: str) -> None:
        """Take a node away from its renter; what the vendor makes of it is the fake's."""
        with self._lock:
            machine = self.machines.find(handle)
            assert machine is not None, f"there is no {handle} to preempt"
            machine.preempted = True

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._server is not None, "the cloud is not running: use it as a context manager"
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def listening_at(self, port: int) -> Self:
        """The same cloud, to be run at a port of one's choice; 0 is any that is free."""
        self._port = port
        return self

    def __enter__(self) -> Self:
        self._server = _Server(self, self._port)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self._server = None

    def answer(self, request: Request) -> Reply | None:
        """What goes out for what came in; None: the connection breaks."""
        with self._lock:
            route, parts = self._route(request)
            if route is None:
                self.calls.append(request)
                return self.no_route(request)
            struck = self._struck(route.verb)
            request = Request(request.method, request.path, request.query, request.headers, request.body, parts, struck)
            self.calls.append(request)
            reply = self._reply(route, request)
        fault = struck.fault if struck is not None else None
        if struck is not None and fault is CloudFault.SLOW:
            time.sleep(struck.delay_s)
        if fault is CloudFault.LOST_REPLY:
            return None
        if fault is CloudFault.JUNK:
            return Reply(200, "<html>we are sorry</html>", {"Content-Type": "text/html"})
        if fault is CloudFault.FAILED_AFTER:
            return self.refusal(CloudFault.SERVER_ERROR, 0.0)
        return reply

    def _boot(self, machine: Machine, boots: Runner) -> None:
        machine.address, machine.port = boots.start(machine.id, self.boot_of(machine))

    def _reply(self, route: Route, request: Request) -> Reply:
        fault = request.strike.fault if request.strike is not None else None
        try:
            self.authorize(request)
            if request.strike is not None and fault in _REFUSALS:
                return self.refusal(request.strike.fault, request.strike.delay_s)
            reply = route.handle(request)
            return route.handle(request) if fault is CloudFault.TWIN else reply
        except Refusal as refused:
            return refused.reply

    def _route(self, request: Request) -> tuple[Route | None, Mapping[str, str]]:
        for route in self.routes():
            found = re.fullmatch(route.path, request.path)
            if found is not None and route.method == request.method:
                return route, found.groupdict()
        return None, {}

    def _struck(self, verb: Verb) -> Strike | None:
        found = next((one for one in self._strikes if one.fits(verb)), None)
        if found is not None:
            found.times -= 1
        return found


_REFUSALS = frozenset(
    {
        CloudFault.AUTH,
        CloudFault.PAYMENT,
        CloudFault.NO_CAPACITY,
        CloudFault.QUOTA,
        CloudFault.RATE_LIMITED,
        CloudFault.RATE_LIMITED_SILENT,
        CloudFault.SERVER_ERROR,
    }
)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, cloud: WireCloud, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.cloud = cloud


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the fake keeps its calls."""

    def _serve(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        request = Request(
            method=self.command,
            path=unquote(url.path),
            query=parse_qs(url.query, keep_blank_values=True),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(length),
        )
        assert isinstance(self.server, _Server)
        reply = self.server.cloud.answer(request)
        if reply is None:
            self.close_connection = True
            return
        self._send(reply)

    def _send(self, reply: Reply) -> None:
        body = reply.body
        encoded = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **reply.headers, "Content-Length": str(len(encoded))}
        try:
            self.send_response(reply.status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(encoded)
        except OSError:  # the client has gone away, as one that waits no longer does
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve
