"""OVHcloud on the wire with a real Keystone and a real nova; glance, neutron and the price list are the fake's.

What nova can be brought to do itself, it does: quotas, builds that nobody takes up, ends that take long, servers that
go off. What stands between a client and any nova (lost answers, limits of calls) is the fake's.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlencode

from shunter_providers.testing import CloudFault, Machine, Refusal, Reply, Request, Route
from shunter_providers.testing.faults import Verb
from support.clouds.nova_words import error
from support.clouds.ovh import OvhCloud
from support.clouds.real_openstack import REGION, Nova
from support.waiting import wait_until

FLAVORS: Final = (("b3-8", 2, 8, 50), ("h100-380", 30, 380, 200), ("h100-1520", 120, 1520, 200))
"""Name, cores, memory in GiB, disk in GiB. The host of `compute.py` has room for none of the last."""
LONGER_THAN_A_LOOK_S: Final = 8.0
SLOWER_THAN_ANY_TIMEOUT_S: Final = 45.0
"""Of its tests: a nova takes its time."""


class NovaCloud(OvhCloud):
    """One project in one region; empty when it starts."""

    lacks: ClassVar[Collection[CloudFault]] = (*OvhCloud.lacks, CloudFault.LATE)
    """A real nova shows a server from the moment that it has answered for it."""

    def __init__(self, nova: Nova, password: str, **more: Any) -> None:
        super().__init__(password, **more)
        self.nova = nova
        self._revoked: set[str] = set()
        self.images = dict.fromkeys(self.images, nova.image)
        self.networks = {"Ext-Net": nova.network}

    def __enter__(self) -> Self:
        super().__enter__()
        for kind, path in (("compute", "nova/{}/v2.1"), ("image", "glance/{}"), ("network", "neutron/{}")):
            self.nova.keystone.publish(kind, f"{self.url}/{path.format(REGION)}")
        return self

    def routes(self) -> Sequence[Route]:
        """Those of nova lead to it."""
        return [
            Route(one.method, one.path, one.verb, self._forward) if "/nova/" in one.path else one
            for one in super().routes()
        ]

    def authorize(self, request: Request) -> None:
        """nova and Keystone see to it themselves, but for what nova remembers of a token for minutes."""
        if "/v3/" in request.path or "/order/" in request.path:
            return
        token = request.headers.get("x-auth-token")
        if token is None or token in self._revoked:
            raise Refusal(*error(401, "error", "The request you have made requires authentication."))

    def revoke(self) -> None:
        """See the base."""
        for token in self._tokens - self._revoked:
            self.nova.keystone.revoke(token)
        self._revoked |= self._tokens

    def strike(self, fault: CloudFault, *, on: Verb | None = None, times: int = 1, delay_s: float = 0.3) -> None:
        """See the base; what nova does itself, it is brought to."""
        if fault is CloudFault.QUOTA:
            self.nova.limit(cores=0)
        elif fault is CloudFault.NEVER_BOOTS:
            self.nova.control(hold_builds=times)
        elif fault is CloudFault.STUCK:  # what no host has yet is gone at once
            wait_until(
                lambda: all(server["status"] == "ACTIVE" for server in self.nova.servers()),
                description="all servers are up",
                timeout_s=200,
            )
            self.nova.control(slow_ends_s=[max(delay_s, LONGER_THAN_A_LOOK_S)] * times)
        elif fault is CloudFault.SLOW:
            super().strike(fault, on=on, times=times, delay_s=max(delay_s, SLOWER_THAN_ANY_TIMEOUT_S))
        else:
            super().strike(fault, on=on, times=times, delay_s=delay_s)

    def calm(self) -> None:
        """See the base."""
        super().calm()
        self.nova.settle()

    def nodes(self) -> Sequence[Machine]:
        """What nova's administrator sees."""
        return [_machine(server["id"], server["name"]) for server in self.nova.servers()]

    def preempt(self, handle: str) -> None:
        """The vendor turns it off."""
        server = handle.partition("/")[2]
        self.nova.as_admin("POST", f"/servers/{server}/action", {"os-stop": None})
        wait_until(
            lambda: self.nova.as_admin("GET", f"/servers/{server}")["server"]["status"] == "SHUTOFF",
            description="the server is off",
            timeout_s=200,
        )

    def _sign_in(self, request: Request) -> Reply:
        headers = {"Content-Type": request.headers.get("content-type", "")}
        answer = self.nova.keystone.ask("POST", request.path, request.body, headers)
        token = answer.headers.get("X-Subject-Token")
        self._tokens |= {token} if token else set()
        return Reply(answer.status_code, answer.json(), {"X-Subject-Token": token} if token else {})

    def _forward(self, request: Request) -> Reply:
        _, _, path = request.path.partition("/v2.1")
        query = urlencode([(name, value) for name, values in request.query.items() for value in values])
        path, token = f"{path}?{query}" if query else path, request.headers.get("x-auth-token", "")
        status, answer = self.nova.ask(request.method, path, request.body or None, token=token)
        return Reply(status, answer)


def furnish(nova: Nova) -> None:
    """Flavors of the vendor's and no others, and no limits."""
    while flavors := nova.as_admin("GET", "/flavors")["flavors"]:
        for flavor in flavors:
            nova.as_admin("DELETE", f"/flavors/{flavor['id']}")
    for number, (name, cores, memory_gib, disk_gib) in enumerate(FLAVORS):
        flavor = {"id": f"0{number}-{name}", "name": name, "vcpus": cores, "ram": memory_gib * 1024, "disk": disk_gib}
        nova.as_admin("POST", "/flavors", {"flavor": flavor})
    nova.limit()
    nova.settle()


def _machine(id_: str, name: str) -> Machine:
    now = time.monotonic()
    return Machine(id=id_, name=name, order={}, usd_per_hour=1.0, made_at=now, visible_at=now, up_at=now)
