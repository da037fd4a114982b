"""A fake of Acme's API: strict bodies, twins where the vendor would make them, its own errors.

`python -m shunter_acme.toy_cloud --port 8899` serves it, with nodes that are processes of this machine.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from shunter_providers.testing import CloudFault, Machine, Phase, Refusal, Reply, Request, Route, WireCloud, new_hex_id
from shunter_providers.testing.booting import Boot, Boots, from_cloud_init

KEY = "toy-key-of-acme"

_ERRORS: Mapping[CloudFault, tuple[int, str]] = {
    CloudFault.AUTH: (401, "the key is not known"),
    CloudFault.PAYMENT: (402, "your card was declined"),
    CloudFault.NO_CAPACITY: (409, "this plan is sold out here"),
    CloudFault.QUOTA: (403, "your quota is used up"),
    CloudFault.RATE_LIMITED: (429, "too many requests"),
    CloudFault.RATE_LIMITED_SILENT: (429, "too many requests"),
    CloudFault.SERVER_ERROR: (500, "internal error"),
}
_STATES = {
    Phase.PENDING: "creating",
    Phase.RUNNING: "active",
    Phase.PREEMPTED: "stopped",
    Phase.ENDING: "deleting",
}


class _Order(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=63)
    plan: str
    region: str
    user_data: str = ""


class AcmeCloud(WireCloud):
    """One account."""

    def __init__(self, key: str = KEY, **more: Any) -> None:
        super().__init__(**more)
        self._key = key
        self.plans: list[dict[str, Any]] = [
            {"name": "cpu-2", "gpus": 0, "cpus": 2, "memory_gb": 8, "usd_per_hour": 0.1},
            {"name": "h100-1", "gpu": "H100", "gpu_memory_gb": 80, "gpus": 1, "cpus": 26, "memory_gb": 225}
            | {"usd_per_hour": 2.5},
        ]
        self.regions = [{"name": "fra", "free": 9}, {"name": "nyc", "free": 9}]

    def boot_of(self, machine: Machine) -> Boot:
        return from_cloud_init(machine.order["user_data"])

    def routes(self) -> Sequence[Route]:
        return [
            Route("GET", r"/v1/plans", "offers", self._list_plans),
            Route("POST", r"/v1/servers", "create", self._create),
            Route("GET", r"/v1/servers", "list", self._list),
            Route("GET", r"/v1/servers/(?P<id>[^/]+)", "get", lambda request: Reply(200, _server(self._one(request)))),
            Route("DELETE", r"/v1/servers/(?P<id>[^/]+)", "terminate", self._delete),
        ]

    def authorize(self, request: Request) -> None:
        if request.headers.get("authorization") != f"Bearer {self._key}":
            raise Refusal(*self.refusal(CloudFault.AUTH, 0))

    def refusal(self, fault: CloudFault, delay_s: float) -> Reply:
        status, message = _ERRORS[fault]
        headers = {"Retry-After": f"{delay_s:g}"} if fault is CloudFault.RATE_LIMITED else {}
        return Reply(status, {"error": message}, headers)

    def no_route(self, request: Request) -> Reply:
        return Reply(404, {"error": "no such path"})

    def _list_plans(self, request: Request) -> Reply:
        return Reply(200, {"plans": [{**plan, "regions": self.regions} for plan in self.plans]})

    def _create(self, request: Request) -> Reply:
        try:
            order = _Order.model_validate_json(request.body)
        except ValidationError as exc:
            raise Refusal(422, {"error": str(exc)}) from None
        plan = next((one for one in self.plans if one["name"] == order.plan), None)
        if plan is None:
            raise Refusal(422, {"error": f"there is no plan {order.plan}"})
        id_ = f"srv-{new_hex_id(8)}"
        machine = self.machines.make(order.name, order.model_dump(), plan["usd_per_hour"], request.strike, id_)
        return Reply(201, _server(machine))

    def _list(self, request: Request) -> Reply:
        return Reply(200, {"servers": [_server(machine) for machine in self.machines.visible()]})

    def _delete(self, request: Request) -> Reply:
        self.machines.end(self._one(request), request.strike)
        return Reply(204)

    def _one(self, request: Request) -> Machine:
        machine = self.machines.find(request.parts["id"])
        if machine is None or machine.phase() is Phase.GONE:
            raise Refusal(404, {"error": "no such server"})
        return machine


def _server(machine: Machine) -> dict[str, Any]:
    phase = machine.phase()
    shown = {"id": machine.id, "name": machine.name, "state": _STATES[phase], "usd_per_hour": machine.usd_per_hour}
    return {**shown, "address": "127.0.0.1"} if phase is Phase.RUNNING else shown


def main() -> None:
    """Serve until interrupted; every node ends with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8899)
    port = parser.parse_args().port
    boots = Boots(Path(tempfile.mkdtemp(prefix="acme-")))
    try:
        with AcmeCloud(boots=boots).listening_at(port) as cloud:
            print(f"Acme is at {cloud.url}/v1, its key is {KEY}", flush=True)
            threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        boots.end_all()


if __name__ == "__main__":
    main()
