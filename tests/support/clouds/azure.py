"""Azure's Resource Manager on the wire: sign-in, strict bodies, names that are taken, operations that fail later, parts
that stay behind, pages; and its retail prices."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, urlencode

from pydantic import BaseModel
from shunter_providers.testing import CloudFault, Machine, Phase, Reply, Request, Route, WireCloud, new_hex_id
from shunter_providers.testing.booting import Boot, from_cloud_init
from support.clouds import azure_market
from support.clouds.azure_bodies import MACHINE_NAME, Group, Network, Order
from support.clouds.azure_shown import INTERFACES, machine_of, parts_of, statuses_of
from support.clouds.azure_words import ANSWERS, CLIENT, ROOT, SUBSCRIPTION, TENANT, error, not_signed_in, read, refused
from support.clouds.consoles import CONSOLE

_GROUP: Final = rf"{ROOT}/resourceGroups/(?P<group>[^/]+)"
_KINDS: Final = (
    r"(?P<kind>Microsoft\.Network/networkInterfaces|Microsoft\.Network/publicIPAddresses|Microsoft\.Compute/disks)"
)
_IMAGES: Final = ("Canonical", "microsoft-dsvm")


class AzureCloud(WireCloud):
    """One subscription with one application."""

    lacks: ClassVar[Collection[CloudFault]] = (CloudFault.TWIN, CloudFault.DEARER)
    """A name is taken once; the API tells no prices of machines."""
    shows_rate: ClassVar[bool] = False

    def __init__(self, secret: str, **more: Any) -> None:
        super().__init__(**more)
        self.secret = secret
        self.token = "the-token-of-the-application"
        self.skus = azure_market.skus()
        self.prices = azure_market.prices()
        self.usages: dict[str, dict[str, tuple[int, int]]] = {}
        """By region: name of a limit to its limit and what is used of it."""
        self.state = "Enabled"
        self.page = 2
        self.operation_s = 0.02
        self.fails_later: tuple[str, str] | None = None
        """Code and message of the operations to come; their machines stay, failed."""
        self.leaves: Collection[str] = ()
        """Kinds of parts that the machines to come leave behind."""
        self.reserved_s = 0.0
        """For so long an interface that was left behind cannot be deleted."""
        self.headers: dict[str, str] = {}
        """Of every answer."""
        self.takes_if_none_match = True
        self.notices: list[str] = []
        """Kinds of events that nodes are told of, one with each call."""
        self.things: dict[str, dict[str, Any]] = {}
        """Groups and networks, by their paths in lower case."""
        self._made: list[Machine] = []
        self._operations: dict[str, tuple[float, tuple[str, str] | None]] = {}

    def nodes(self) -> Sequence[Machine]:
        """Those of which a part is left count too: it bills."""
        with self._lock:
            left = [one for one in self._made if one.phase() is Phase.GONE and one.extra["left"]]
            return [*self.machines.existing(), *left]

    def preempt(self, handle: str) -> None:
        """A spot node that shall be deleted vanishes; others are deallocated."""
        super().preempt(handle)
        machine = self.machines.find(handle)
        assert machine is not None
        if machine.order["properties"]["evictionPolicy"] == "Delete":
            machine.preempted = False
            self.machines.end(machine, None)

    def boot_of(self, machine: Machine) -> Boot:
        """The image's first user."""
        profile = machine.order["properties"]["osProfile"]
        return from_cloud_init(base64.b64decode(profile["customData"] or "").decode(), user=profile["adminUsername"])

    def routes(self) -> Sequence[Route]:
        """The part of the API that a node needs."""
        compute = "/providers/Microsoft.Compute"
        machines = rf"{_GROUP}{compute}/virtualMachines"
        networks = rf"{_GROUP}/providers/Microsoft\.Network/(?P<kind>virtualNetworks|networkSecurityGroups)/[^/]+"
        return [
            Route("POST", rf"/{TENANT}/oauth2/v2\.0/token", "other", self._sign_in),
            Route("GET", r"/metadata/identity/oauth2/token", "other", self._identity),
            Route("GET", r"/metadata/scheduledevents", "other", self._scheduled),
            Route("GET", ROOT, "whoami", self._subscription),
            Route("GET", rf"{ROOT}{compute}/skus", "offers", self._skus),
            Route("GET", rf"{ROOT}{compute}/locations/(?P<region>\w+)/usages", "offers", self._usages),
            Route("GET", r"/api/retail/prices", "other", self._prices),
            Route("GET", rf"{ROOT}{compute}/locations/\w+/operations/(?P<name>[^/]+)", "other", self._operation),
            Route(
                "PUT", rf"{_GROUP}/providers/Microsoft\.Compute/virtualMachines/(?P<name>[^/]+)", "create", self._put
            ),
            Route("GET", rf"{machines}/(?P<name>[^/]+)", "get", self._get),
            Route("DELETE", rf"{machines}/(?P<name>[^/]+)", "terminate", self._delete),
            Route("POST", rf"{machines}/(?P<name>[^/]+)/retrieveBootDiagnosticsData", "other", self._diagnose),
            Route("GET", r"/bootdiagnostics/serialconsole\.log", "other", self._log),
            Route("GET", rf"{ROOT}{compute}/virtualMachines", "list", self._list),
            Route("GET", rf"{ROOT}/providers/{_KINDS}", "list", self._parts),
            Route("GET", rf"{_GROUP}/providers/{_KINDS}", "other", self._parts),
            Route("GET", rf"{_GROUP}/providers/{_KINDS}/(?P<name>[^/]+)", "other", self._part),
            Route("DELETE", rf"{_GROUP}/providers/{_KINDS}/(?P<name>[^/]+)", "other", self._delete_part),
            Route("GET", _GROUP, "other", self._thing),
            Route("PUT", _GROUP, "other", self._put_thing),
            Route("GET", networks, "other", self._thing),
            Route("PUT", networks, "other", self._put_thing),
        ]

    def authorize(self, request: Request) -> None:
        """A token that a sign-in gave, and a version of the API."""
        if not request.path.startswith("/subscriptions"):
            return
        if request.headers.get("authorization") != f"Bearer {self.token}":
            raise refused(*ANSWERS[CloudFault.AUTH])
        if not re.fullmatch(r"20\d\d-\d\d-\d\d", request.one("api-version")):
            raise refused(
                400, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required"
            )

    def refusal(self, fault: CloudFault, delay_s: float) -> Reply:
        """In the vendor's words."""
        if "oauth2" in self.calls[-1].path and fault is CloudFault.AUTH:
            return not_signed_in()
        headers = {"Retry-After": f"{delay_s:g}"} if fault is CloudFault.RATE_LIMITED else {}
        return error(*ANSWERS[fault])._replace(headers=headers)

    def no_route(self, request: Request) -> Reply:
        """As for a subscription or a group that the account does not see."""
        found = re.match(r"/subscriptions/([^/]+)", request.path)
        if found is not None and found[1] != SUBSCRIPTION:
            return error(404, "SubscriptionNotFound", f"The subscription '{found[1]}' could not be found.")
        return error(404, "InvalidResourceType", "The resource type could not be found in the namespace.")

    def _sign_in(self, request: Request) -> Reply:
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        assert form.pop("scope") == f"{self.url}/.default"
        good = {"grant_type": "client_credentials", "client_id": CLIENT, "client_secret": self.secret}
        if form != good:
            return not_signed_in()
        return Reply(200, {"token_type": "Bearer", "expires_in": 3599, "access_token": self.token})

    def _identity(self, request: Request) -> Reply:
        if request.headers.get("metadata") != "true" or not request.one("resource"):
            return Reply(
                400, {"error": "invalid_request", "error_description": "Required metadata header not specified"}
            )
        if request.one("client_id", CLIENT) != CLIENT:
            return Reply(400, {"error": "invalid_request", "error_description": "Identity not found"})
        return Reply(200, {"access_token": self.token, "expires_in": "86399", "token_type": "Bearer"})

    def _scheduled(self, request: Request) -> Reply:
        assert request.headers["metadata"] == "true"
        event = {"EventType": self.notices.pop(0), "EventStatus": "Scheduled", "ResourceType": "VirtualMachine"}
        return Reply(200, {"DocumentIncarnation": 1, "Events": [event]})

    def _subscription(self, request: Request) -> Reply:
        return Reply(200, {"subscriptionId": SUBSCRIPTION, "displayName": "Research", "state": self.state})

    def _skus(self, request: Request) -> Reply:
        found = re.fullmatch(r"location eq '(\w+)'", request.one("$filter"))
        assert found is not None, request.query
        return self._paged(request, self.skus.get(found[1], []))

    def _usages(self, request: Request) -> Reply:
        region = request.parts["region"]
        if region not in self.skus:
            raise refused(400, "NoRegisteredProviderFound", f"No registered resource provider found for '{region}'.")
        limits = {"cores": (1000, 0), "lowPriorityCores": (1000, 0), **self.usages.get(region, {})}
        rows = [
            {"unit": "Count", "limit": limit, "currentValue": used, "name": {"value": name, "localizedValue": name}}
            for name, (limit, used) in limits.items()
        ]
        return self._paged(request, rows)

    def _prices(self, request: Request) -> Reply:
        wanted = request.one("$filter")
        terms = dict(re.findall(r"(serviceName|priceType|armRegionName) eq '([^']+)'", wanted))
        assert terms["serviceName"] == "Virtual Machines"
        types = re.findall(r"armSkuName eq '([^']+)'", wanted)
        part = re.findall(r"contains\(armSkuName, '([^']+)'\)", wanted)
        found = [
            row
            for row in self.prices
            if row["armRegionName"] == terms["armRegionName"]
            and (row["armSkuName"] in types or any(one in row["armSkuName"] for one in part))
        ]
        at = int(request.one("$skip", "0"))
        shown = found[at : at + 3]
        query = urlencode({"api-version": request.one("api-version"), "$filter": wanted, "$skip": at + 3})
        more = f"{self.url}/api/retail/prices?{query}" if at + 3 < len(found) else None
        return Reply(200, {"BillingCurrency": "USD", "Items": shown, "NextPageLink": more, "Count": len(shown)})

    def _put(self, request: Request) -> Reply:
        group, name = request.parts["group"], request.parts["name"]
        if not MACHINE_NAME.match(name):
            raise refused(400, "InvalidParameter", "The value of parameter virtualMachineName is invalid.")
        self._need_group(group)
        order = read(request, Order)
        known = next((one for one in self.machines.named(name) if one.id.startswith(f"{group.lower()}/")), None)
        if known is not None:
            return self._put_again(request, known, order.model_dump())
        self._check(order)
        machine = self.machines.make(name, order.model_dump(), 1.0, request.strike, f"{group.lower()}/{name}")
        machine.extra |= {"left": set(self.leaves), "failure": self.fails_later, "suffix": new_hex_id(8)}
        self._made.append(machine)
        operation = new_hex_id(12)
        self._operations[operation] = (time.monotonic() + self.operation_s, self.fails_later)
        path = f"{ROOT}/providers/Microsoft.Compute/locations/{order.location}/operations/{operation}"
        headers = {
            "Azure-AsyncOperation": f"{self.url}{path}?api-version=2025-04-01",
            "Retry-After": "1",
            **self.headers,
        }
        return Reply(201, machine_of(machine), headers)

    def _put_again(self, request: Request, machine: Machine, order: Mapping[str, Any]) -> Reply:
        """Refused where only a new one is wanted, else what is there is changed as far as it may be."""
        if request.headers.get("if-none-match") == "*" and self.takes_if_none_match:
            raise refused(412, "PreconditionFailed", "The precondition given in one of the request headers is not met.")
        if machine.phase() is Phase.ENDING:
            message = (
                f"Operation 'Update VM' is not allowed on VM '{machine.name}' since the VM is marked for deletion."
            )
            raise refused(409, "OperationNotAllowed", message)
        if order["properties"] != machine.order["properties"]:
            raise refused(409, "PropertyChangeNotAllowed", "Changing property 'customData' is not allowed.")
        return Reply(200, machine_of(machine))

    def _check(self, order: Order) -> None:
        properties = order.properties
        if properties.hardwareProfile.vmSize not in [one["name"] for one in self.skus.get(order.location, [])]:
            told = f"The value {properties.hardwareProfile.vmSize} provided for the VM size is not valid."
            raise refused(400, "InvalidParameter", told)
        image = properties.storageProfile.imageReference
        if image.publisher is not None and image.publisher not in _IMAGES:
            message = (
                f"The platform image '{image.publisher}:{image.offer}:{image.sku}:{image.version}' is not available."
            )
            raise refused(404, "PlatformImageNotFound", message)
        for interface in properties.networkProfile.networkInterfaceConfigurations:
            ids = [
                address.properties.subnet.id.rpartition("/subnets/")[0]
                for address in interface.properties.ipConfigurations
            ]
            ids += [interface.properties.networkSecurityGroup.id] if interface.properties.networkSecurityGroup else []
            for id_ in ids:
                if self.things.get(id_.lower(), {}).get("ready_at", time.monotonic() + 1) > time.monotonic():
                    raise refused(
                        400, "InvalidResourceReference", f"Resource {id_} referenced by resource was not found."
                    )

    def _get(self, request: Request) -> Reply:
        machine = self._existing(request)
        shown = machine_of(machine)
        if request.one("$expand") == "instanceView":
            shown["properties"]["instanceView"] = {"statuses": statuses_of(machine)}
        return Reply(200, shown, self.headers)

    def _delete(self, request: Request) -> Reply:
        self._need_group(request.parts["group"])
        machine = self.machines.find(f"{request.parts['group'].lower()}/{request.parts['name']}")
        if machine is None or machine.phase() is Phase.GONE:
            return Reply(204)
        self.machines.end(machine, request.strike)
        return Reply(202, None, {"Location": f"{self.url}{ROOT}/providers/Microsoft.Compute/locations/x/operations/y"})

    def _list(self, request: Request) -> Reply:
        """The group's name is written otherwise here, as the vendor does."""
        rows = []
        for machine in self.machines.visible():
            shown = machine_of(machine)
            shown["id"] = shown["id"].replace(machine.id.split("/")[0], machine.id.split("/")[0].upper())
            if request.one("statusOnly") == "true":
                shown["properties"] = {"instanceView": {"statuses": statuses_of(machine)}}
            rows.append(shown)
        return self._paged(request, rows)

    def _diagnose(self, request: Request) -> Reply:
        machine = self._existing(request)
        if machine.order["properties"]["diagnosticsProfile"] is None:
            raise refused(409, "OperationNotAllowed", "Boot diagnostics is not enabled on the VM.")
        query = urlencode({"sv": "2021-10-04", "sig": "a+signature/of=ours"})
        return Reply(200, {"serialConsoleLogBlobUri": f"{self.url}/bootdiagnostics/serialconsole.log?{query}"})

    def _log(self, request: Request) -> Reply:
        """A signed address takes no token."""
        assert "authorization" not in request.headers
        if request.one("sig") != "a+signature/of=ours":
            return Reply(403, "<Error><Code>AuthenticationFailed</Code></Error>", {"Content-Type": "application/xml"})
        return Reply(200, CONSOLE, {"Content-Type": "application/octet-stream"})

    def _existing(self, request: Request) -> Machine:
        self._need_group(request.parts["group"])
        group, name = request.parts["group"], request.parts["name"]
        machine = self.machines.find(f"{group.lower()}/{name}")
        if machine is None or machine.phase() is Phase.GONE:
            where = (
                f"The Resource 'Microsoft.Compute/virtualMachines/{name}' under resource group '{group}' was not found."
            )
            raise refused(404, "ResourceNotFound", where)
        return machine

    def _all_parts(self, request: Request) -> Iterator[dict[str, Any]]:
        group = request.parts.get("group")
        for machine in self._made:
            if group is None or machine.id.startswith(f"{group.lower()}/"):
                yield from parts_of(machine, request.parts["kind"])

    def _parts(self, request: Request) -> Reply:
        if "group" in request.parts:
            self._need_group(request.parts["group"])
        return self._paged(request, list(self._all_parts(request)))

    def _part(self, request: Request) -> Reply:
        name = request.parts["name"].lower()
        found = next((one for one in self._all_parts(request) if one["name"].lower() == name), None)
        if found is None:
            raise refused(404, "ResourceNotFound", f"The Resource '{request.parts['kind']}/{name}' was not found.")
        return Reply(200, found)

    def _delete_part(self, request: Request) -> Reply:
        kind, name = request.parts["kind"], request.parts["name"]
        for machine in self._made:
            if not any(one["name"] == name for one in parts_of(machine, kind)):
                continue
            if machine.gone_at is None or time.monotonic() < machine.gone_at + self.reserved_s:
                message = "Nic(s) in request is reserved for another Virtual Machine for 180 seconds."
                raise refused(400, "NicReservedForAnotherVm", message)
            if kind.endswith("IPAddresses") and INTERFACES in machine.extra["left"]:
                raise refused(400, "PublicIPAddressCannotBeDeleted", f"Public IP address {name} can not be deleted.")
            machine.extra["left"].discard(kind)
            return Reply(202, None)
        return Reply(204)

    def _operation(self, request: Request) -> Reply:
        done_at, failure = self._operations[request.parts["name"]]
        if time.monotonic() < done_at:
            return Reply(200, {"name": request.parts["name"], "status": "InProgress"})
        if failure is None:
            return Reply(200, {"name": request.parts["name"], "status": "Succeeded"})
        code, message = failure
        return Reply(
            200, {"name": request.parts["name"], "status": "Failed", "error": {"code": code, "message": message}}
        )

    def _thing(self, request: Request) -> Reply:
        found = self.things.get(request.path.lower())
        if found is None:
            name = request.path.rpartition("/")[2]
            code = "ResourceNotFound" if "kind" in request.parts else "ResourceGroupNotFound"
            raise refused(404, code, f"'{name}' could not be found.")
        state = "Succeeded" if found["ready_at"] <= time.monotonic() else "Updating"
        return Reply(
            200, {"id": request.path, "properties": {**found.get("properties", {}), "provisioningState": state}}
        )

    def _put_thing(self, request: Request) -> Reply:
        made: BaseModel = read(request, Network if "kind" in request.parts else Group)
        if "kind" in request.parts:
            self._need_group(request.parts["group"])
        delay_s = 0.03 if "kind" in request.parts else 0.0
        self.things[request.path.lower()] = {**made.model_dump(), "ready_at": time.monotonic() + delay_s}
        return self._thing(request)._replace(status=201)

    def _need_group(self, group: str) -> None:
        if f"{ROOT}/resourcegroups/{group}".lower() not in self.things:
            raise refused(404, "ResourceGroupNotFound", f"Resource group '{group}' could not be found.")

    def _paged(self, request: Request, rows: Sequence[Any]) -> Reply:
        at = int(request.one("$skiptoken", "0"))
        page: dict[str, Any] = {"value": rows[at : at + self.page]}
        if at + self.page < len(rows):
            kept = {name: values[0] for name, values in request.query.items()}
            page["nextLink"] = f"{self.url}{request.path}?{urlencode({**kept, '$skiptoken': at + self.page})}"
        return Reply(200, page, self.headers)
