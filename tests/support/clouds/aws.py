"""EC2 as its query API is on the wire: one account with a default network in each region, a lag, and client tokens."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from shunter_providers.testing import CloudFault, Machine, Phase, Refusal, Reply, Request, Route, WireCloud, new_hex_id
from shunter_providers.testing.booting import Boot, from_cloud_init
from shunter_providers.testing.faults import Verb
from support.clouds.aws_shapes import (
    chosen,
    group_facts,
    image,
    image_facts,
    instance_facts,
    kind,
    kind_facts,
    listing,
    price_region,
    reservation_facts,
)
from support.clouds.aws_wire import Query, action_of, answer, check_signature, error, query_of, refused
from support.clouds.consoles import CONSOLE

ACCESS_KEY: Final = "AKIAIOSFODNN7EXAMPLE"
ACCOUNT: Final = "123456789012"
PAGE: Final = 2
"""Fewer than any caller asks for, as EC2 may give."""

_BODIES: Final[Mapping[CloudFault, tuple[int, str, str]]] = {
    CloudFault.AUTH: (401, "AuthFailure", "AWS was not able to validate the provided access credentials"),
    CloudFault.PAYMENT: (
        400,
        "Blocked",
        "This account is currently blocked and not recognized as a valid account. Please contact aws-verification.",
    ),
    CloudFault.NO_CAPACITY: (
        500,
        "InsufficientInstanceCapacity",
        "We currently do not have sufficient capacity in the Availability Zone you requested (us-east-1a).",
    ),
    CloudFault.QUOTA: (
        400,
        "VcpuLimitExceeded",
        "You have requested more vCPU capacity than your current vCPU limit of 8 allows for the instance bucket.",
    ),
    CloudFault.RATE_LIMITED_SILENT: (503, "RequestLimitExceeded", "Request limit exceeded."),
    CloudFault.SERVER_ERROR: (500, "InternalError", "An internal error has occurred"),
}
_STATES: Final = {
    Phase.PENDING: (0, "pending"),
    Phase.RUNNING: (16, "running"),
    Phase.ENDING: (32, "shutting-down"),
    Phase.GONE: (48, "terminated"),
}
_TAKEN: Final = {
    "code": "Server.SpotInstanceTermination",
    "message": "Server.SpotInstanceTermination: Instance was terminated by EC2 due to insufficient capacity",
}
_VERBS: Final[Mapping[str, Verb]] = {
    "GetCallerIdentity": "whoami",
    "DescribeInstanceTypes": "offers",
    "DescribeSpotPriceHistory": "offers",
    "DescribeCapacityReservations": "offers",
    "DescribeInstances": "list",
    "RunInstances": "create",
    "TerminateInstances": "terminate",
}


class AwsCloud(WireCloud):
    """One account, in every region that is asked for."""

    lacks: ClassVar = (CloudFault.TWIN, CloudFault.RATE_LIMITED)
    """A client token makes no twin, and EC2 names no wait."""
    shows_rate: ClassVar[bool] = False

    def __init__(self, secret: str, **more: Any) -> None:
        super().__init__(**more)
        self._secret = secret
        self.kinds = [
            kind("g6.xlarge", 1, "L4", 22888, 4),
            kind("p4d.24xlarge", 8, "A100", 40960, 96),
            kind("p5.48xlarge", 8, "H100", 81920, 192, sold_as=["on-demand", "spot", "capacity-block"]),
            kind("g5g.xlarge", 1, "T4g", 16384, 4, architecture="arm64"),
            kind("g4ad.xlarge", 1, "Radeon Pro V520", 8192, 4, maker="AMD"),
            kind("g6f.large", 0, "L4", 2861, 2),
            kind("m7i.large", 0, cpus=2),
        ]
        self.spot = [("g6.xlarge", "a", "0.31"), ("g6.xlarge", "b", "0.35"), ("p5.48xlarge", "a", "20.5")]
        self.listed: list[tuple[str, str, str]] | None = None
        """Region, type and price of the price list; None: the user may not read it."""
        self.images = [image("ami-0aaaaaaaaaaaaaaa1", "20260901"), image("ami-0bbbbbbbbbbbbbbb2", "20261101")]
        self.reservations: list[dict[str, Any]] = []
        self.subnets = {"subnet-0123": ("vpc-2", "us-east-1b"), "subnet-0456": ("vpc-2", "us-east-1-scl-1a")}
        self.has_default_network = True
        self.groups: list[dict[str, Any]] = []
        self._launched: dict[tuple[str, str], tuple[Mapping[str, str], Machine]] = {}

    def queries(self, action: str) -> list[Query]:
        """What came in of one action."""
        return [query_of(call) for call in self.calls if action_of(call) == action]

    def preempt(self, handle: str) -> None:
        """Take a spot node away."""
        with self._lock:
            machine = self.machines.find(handle.partition("/")[2])
            assert machine is not None, f"there is no {handle} to preempt"
            machine.extra["reason"] = _TAKEN
            machine.ended_at = machine.gone_at = time.monotonic()

    def boot_of(self, machine: Machine) -> Boot:
        """The image's first user."""
        return from_cloud_init(base64.b64decode(machine.order.get("UserData", "")).decode(), user="ubuntu")

    def routes(self) -> Sequence[Route]:
        """None: every call is a POST of a form to `/`, which says what it is."""
        return []

    def _route(self, request: Request) -> tuple[Route | None, Mapping[str, str]]:
        if request.headers.get("x-amz-target") == "AWSPriceListService.GetProducts":
            return Route("POST", "/", "other", self._price_list), {}
        action = action_of(request)
        handle = self._actions().get(action)
        if handle is None or (request.method, request.path) != ("POST", "/"):
            return None, {}
        verb: Verb = _VERBS.get(action, "other")
        return Route("POST", "/", verb, lambda asked: answer(action, handle(query_of(asked)))), {}

    def authorize(self, request: Request) -> None:
        """Signature version 4."""
        check_signature(request, ACCESS_KEY, self._secret)

    def refusal(self, fault: CloudFault, delay_s: float) -> Reply:
        """In the vendor's words."""
        return error(*_BODIES[fault])

    def no_route(self, request: Request) -> Reply:
        """An action that there is not."""
        return error(400, "InvalidAction", f"The action {action_of(request)} is not valid for this web service.")

    def _actions(self) -> Mapping[str, Callable[[Query], dict[str, Any]]]:
        return {
            "GetCallerIdentity": self._who,
            "DescribeInstanceTypes": lambda query: {"instanceTypeSet": chosen(query, self.kinds, kind_facts)},
            "DescribeSpotPriceHistory": self._spot_prices,
            "DescribeCapacityReservations": lambda query: {
                "capacityReservationSet": chosen(query, self.reservations, reservation_facts)
            },
            "DescribeImages": self._images,
            "DescribeVpcs": lambda query: {"vpcSet": [{"vpcId": "vpc-1"}] if self.has_default_network else []},
            "DescribeSubnets": self._subnets,
            "DescribeSecurityGroups": lambda query: {
                "securityGroupInfo": list(map(_group, chosen(query, self._groups_in(query.region), group_facts)))
            },
            "CreateSecurityGroup": self._make_group,
            "AuthorizeSecurityGroupIngress": self._authorize_group,
            "DescribeInstances": self._describe,
            "TerminateInstances": self._terminate,
            "RunInstances": self._run,
            "GetConsoleOutput": self._console,
        }

    def _who(self, query: Query) -> dict[str, Any]:
        arn = f"arn:aws:iam::{ACCOUNT}:user/trainer"
        return {"GetCallerIdentityResult": {"Arn": arn, "UserId": "AIDAEXAMPLE", "Account": ACCOUNT}}

    def _spot_prices(self, query: Query) -> dict[str, Any]:
        rows = [
            {
                "instanceType": name,
                "productDescription": "Linux/UNIX",
                "spotPrice": usd,
                "availabilityZone": query.region + zone,
            }
            for name, zone, usd in self.spot
        ]
        return _page(query, "spotPriceHistorySet", chosen(query, rows, kind_facts))

    def _price_list(self, request: Request) -> Reply:
        if self.listed is None:
            message = "User is not authorized to perform: pricing:GetProducts"
            return Reply(400, {"__type": "AccessDeniedException", "Message": message})
        asked = request.json()
        rows = [listing(*row) for row in self.listed if row[0] == price_region(asked)]
        start = int(asked.get("NextToken", "0"))
        page = {"FormatVersion": "aws_v1", "PriceList": rows[start : start + PAGE]}
        return Reply(200, {**page, "NextToken": str(start + PAGE)} if len(rows) > start + PAGE else page)

    def _images(self, query: Query) -> dict[str, Any]:
        wanted = query.all("ImageId")
        if unknown := set(wanted) - {one["imageId"] for one in self.images}:
            raise refused(400, "InvalidAMIID.NotFound", f"The image id '[{unknown.pop()}]' does not exist")
        owned = [one for one in self.images if not query.all("Owner") or one["imageOwnerAlias"] in query.all("Owner")]
        found = [one for one in owned if not wanted or one["imageId"] in wanted]
        return {"imagesSet": chosen(query, found, image_facts)}

    def _subnets(self, query: Query) -> dict[str, Any]:
        (wanted,) = query.all("SubnetId")
        if wanted not in self.subnets:
            raise refused(400, "InvalidSubnetID.NotFound", f"The subnet ID '{wanted}' does not exist")
        network, zone = self.subnets[wanted]
        return {"subnetSet": [{"subnetId": wanted, "vpcId": network, "availabilityZone": zone}]}

    def _groups_in(self, region: str) -> list[dict[str, Any]]:
        return [group for group in self.groups if group["region"] == region]

    def _make_group(self, query: Query) -> dict[str, Any]:
        name, network = query.one("GroupName"), query.one("VpcId")
        if any(one["groupName"] == name and one["vpcId"] == network for one in self._groups_in(query.region)):
            raise refused(
                400, "InvalidGroup.Duplicate", f"The security group '{name}' already exists for VPC '{network}'"
            )
        group = {"groupId": f"sg-{new_hex_id(17)}", "groupName": name, "vpcId": network, "ipPermissions": []}
        self.groups.append({**group, "region": query.region})
        return {"return": True, "groupId": group["groupId"]}

    def _authorize_group(self, query: Query) -> dict[str, Any]:
        group = next(one for one in self.groups if one["groupId"] == query.one("GroupId"))
        if group["ipPermissions"]:
            raise refused(400, "InvalidPermission.Duplicate", "the specified rule already exists")
        numbers = sorted({name.split(".")[1] for name in query.form if name.startswith("IpPermissions.")})
        for number in numbers:
            place = f"IpPermissions.{number}"
            rule = {"ipProtocol": query.one(f"{place}.IpProtocol"), "fromPort": query.one(f"{place}.FromPort")}
            source = query.one(f"{place}.IpRanges.1.CidrIp") or query.one(f"{place}.Groups.1.GroupId")
            group["ipPermissions"].append({**rule, "source": source})
        return {"return": True}

    def _describe(self, query: Query) -> dict[str, Any]:
        ids = query.all("InstanceId")
        if ids and "MaxResults" in query.form:
            raise refused(
                400, "InvalidParameterCombination", "The parameter instancesSet cannot be used with maxResults"
            )
        shown = [self._existing(query, id_) for id_ in ids] if ids else self._shown(query.region)
        found = chosen(query, [_instance(machine) for machine in shown], instance_facts)
        rows = [
            {"reservationId": f"r-{one['instanceId'][2:]}", "ownerId": ACCOUNT, "instancesSet": [one]} for one in found
        ]
        return _page(query, "reservationSet", rows)

    def _shown(self, region: str) -> list[Machine]:
        """Also what is gone: EC2 shows it for an hour."""
        machines = [machine for _, machine in self._launched.values() if machine.is_visible()]
        return [machine for machine in machines if machine.extra["region"] == region]

    def _existing(self, query: Query, id_: str) -> Machine:
        machine = self.machines.find(id_)
        if machine is None or machine.extra["region"] != query.region:
            raise refused(400, "InvalidInstanceID.NotFound", f"The instance ID '{id_}' does not exist")
        return machine

    def _terminate(self, query: Query) -> dict[str, Any]:
        machines = [self._existing(query, id_) for id_ in query.all("InstanceId")]
        for machine in machines:
            self.machines.end(machine, query.request.strike)
        return {"instancesSet": [{"instanceId": one.id, "currentState": _state(one)} for one in machines]}

    def _console(self, query: Query) -> dict[str, Any]:
        machine = self._existing(query, query.one("InstanceId"))
        told = base64.b64encode(CONSOLE.encode()).decode()
        return {"instanceId": machine.id, "timestamp": "2026-11-30T12:00:00.000Z", "output": told}

    def _run(self, query: Query) -> dict[str, Any]:
        known = self._launched.get((query.region, query.one("ClientToken")))
        if known is not None:
            return self._again(query, *known)
        self._check(query)
        machine = self.machines.make(_tag(query, "Name"), query.form, 1.0, query.request.strike, f"i-{new_hex_id(17)}")
        machine.extra["region"] = query.region
        self._launched[query.region, query.one("ClientToken")] = (query.form, machine)
        return self._reservation(machine)

    def _again(self, query: Query, form: Mapping[str, str], machine: Machine) -> dict[str, Any]:
        if form != query.form:
            raise refused(
                400,
                "IdempotentParameterMismatch",
                "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
            )
        if machine.phase() is Phase.GONE:
            raise refused(400, "IdempotentInstanceTerminated", "The client token belongs to a terminated instance.")
        return self._reservation(machine)

    def _reservation(self, machine: Machine) -> dict[str, Any]:
        return {"reservationId": f"r-{machine.id[2:]}", "ownerId": ACCOUNT, "instancesSet": [_instance(machine)]}

    def _check(self, query: Query) -> None:
        """What EC2 refuses a launch for."""
        for refusal in self._faults(query):
            raise refusal

    def _faults(self, query: Query) -> Iterator[Refusal]:
        form = query.form
        for name in ("ImageId", "MinCount", "MaxCount"):
            if name not in form:
                yield refused(400, "MissingParameter", f"The request must contain the parameter {name}")
        sold = next((one for one in self.kinds if one["instanceType"] == form.get("InstanceType")), None)
        if sold is None:
            yield refused(400, "InvalidParameterValue", f"Invalid value '{form.get('InstanceType')}' for InstanceType.")
        if len(base64.b64decode(form.get("UserData", ""), validate=True)) > 16384:
            yield refused(400, "InvalidParameterValue", "User data is limited to 16384 bytes")
        if len(form.get("ClientToken", "")) > 64:
            yield refused(400, "InvalidParameterValue", "The client token is longer than 64 characters")
        market = form.get("InstanceMarketOptions.MarketType", "on-demand")
        if sold is not None and market not in sold["supportedUsageClasses"]:
            yield refused(400, "InvalidParameterCombination", f"{sold['instanceType']} is not sold as {market}")
        kinds = [value for name, value in form.items() if name.endswith("ResourceType")]
        if "spot-instances-request" in kinds and market != "spot":
            yield refused(
                400, "InvalidParameterValue", "'spot-instances-request' is not a valid taggable resource type"
            )
        yield from self._network_faults(query)

    def _network_faults(self, query: Query) -> Iterator[Refusal]:
        has_interface = any(name.startswith("NetworkInterface.") for name in query.form)
        if has_interface and query.all("SecurityGroupId"):
            yield refused(
                400, "InvalidParameterCombination", "Network interfaces and an instance-level security groups"
            )
        wanted = query.all("SecurityGroupId") or query.all("NetworkInterface.1.SecurityGroupId")
        for group in set(wanted) - {one["groupId"] for one in self._groups_in(query.region)}:
            yield refused(400, "InvalidGroup.NotFound", f"The security group '{group}' does not exist")
        place = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"
        if place in query.form:
            held = next(one for one in self.reservations if one["capacityReservationId"] == query.form[place])
            if held["availabilityZone"] != query.one("Placement.AvailabilityZone"):
                yield refused(400, "InvalidParameterValue", "The reservation is in another Availability Zone")
            held["availableInstanceCount"] -= 1


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    rules = [{name: rule[name] for name in ("ipProtocol", "fromPort") if rule[name]} for rule in group["ipPermissions"]]
    return {name: group[name] for name in ("groupId", "groupName", "vpcId")} | {"ipPermissions": rules}


def _tag(query: Query, key: str) -> str:
    place = next(name for name, value in query.form.items() if name.endswith(".Key") and value == key)
    return query.form[f"{place[:-4]}.Value"]


def _instance(machine: Machine) -> dict[str, Any]:
    form, running = machine.order, machine.phase() is Phase.RUNNING
    keys = {name: value for name, value in form.items() if name.startswith("TagSpecification.1.Tag.")}
    tags = [
        {"key": value, "value": keys[f"{name[:-4]}.Value"]} for name, value in keys.items() if name.endswith(".Key")
    ]
    shown = {
        "instanceId": machine.id,
        "imageId": form["ImageId"],
        "instanceState": _state(machine),
        "instanceType": form["InstanceType"],
        "privateIpAddress": "10.0.0.5" if machine.phase() is not Phase.GONE else "",
        "ipAddress": machine.address if running else "",
        "tagSet": tags,
    }
    return {**shown, "stateReason": machine.extra["reason"]} if "reason" in machine.extra else shown


def _state(machine: Machine) -> dict[str, Any]:
    code, name = _STATES[machine.phase()]
    return {"code": code, "name": name}


def _page(query: Query, name: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    start = int(query.one("NextToken", "0"))
    shown = {name: rows[start : start + PAGE]}
    return {**shown, "nextToken": str(start + PAGE)} if len(rows) > start + PAGE else shown
