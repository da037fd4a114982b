"""EC2's query protocol on the side of the cloud: forms read strictly by action, signatures checked, XML written."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from shunter_providers.testing import Refusal, Reply, Request

_VERSIONS: Final = {
    "2016-11-15": "http://ec2.amazonaws.com/doc/2016-11-15/",
    "2011-06-15": "https://sts.amazonaws.com/doc/2011-06-15/",
}
_PAGED: Final = ("MaxResults", "NextToken")
_FILTERED: Final = ("Filter.#.Name", "Filter.#.Value.#")
_TAGS: Final = ("TagSpecification.#.ResourceType", "TagSpecification.#.Tag.#.Key", "TagSpecification.#.Tag.#.Value")
_RULE: Final = "IpPermissions.#."
_EBS: Final = "BlockDeviceMapping.#.Ebs."
_NIC: Final = "NetworkInterface.#."

PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "GetCallerIdentity": (),
    "DescribeInstanceTypes": ("InstanceType.#", *_FILTERED, *_PAGED),
    "DescribeSpotPriceHistory": (
        *("InstanceType.#", "ProductDescription.#", "StartTime", "EndTime", "AvailabilityZone"),
        *(*_FILTERED, *_PAGED),
    ),
    "DescribeCapacityReservations": ("CapacityReservationId.#", *_FILTERED, *_PAGED),
    "DescribeImages": ("ImageId.#", "Owner.#", "IncludeDeprecated", *_FILTERED, *_PAGED),
    "DescribeVpcs": ("VpcId.#", *_FILTERED, *_PAGED),
    "DescribeSubnets": ("SubnetId.#", *_FILTERED, *_PAGED),
    "DescribeSecurityGroups": ("GroupId.#", "GroupName.#", *_FILTERED, *_PAGED),
    "CreateSecurityGroup": ("GroupName", "GroupDescription", "VpcId", *_TAGS),
    "AuthorizeSecurityGroupIngress": (
        *("GroupId", f"{_RULE}IpProtocol", f"{_RULE}FromPort", f"{_RULE}ToPort"),
        *(f"{_RULE}IpRanges.#.CidrIp", f"{_RULE}Groups.#.GroupId"),
    ),
    "DescribeInstances": ("InstanceId.#", *_FILTERED, *_PAGED),
    "TerminateInstances": ("InstanceId.#",),
    "GetConsoleOutput": ("InstanceId", "Latest"),
    "RunInstances": (
        *("ImageId", "InstanceType", "MinCount", "MaxCount", "ClientToken", "UserData", "SecurityGroupId.#"),
        *("SubnetId", "InstanceInitiatedShutdownBehavior", "IamInstanceProfile.Name", "KeyName", *_TAGS),
        *("MetadataOptions.HttpTokens", "MetadataOptions.HttpPutResponseHopLimit"),
        *("BlockDeviceMapping.#.DeviceName", f"{_EBS}VolumeSize", f"{_EBS}VolumeType", f"{_EBS}DeleteOnTermination"),
        *("Placement.AvailabilityZone", "Placement.GroupName", "InstanceMarketOptions.MarketType"),
        *("InstanceMarketOptions.SpotOptions.SpotInstanceType", "InstanceMarketOptions.SpotOptions.MaxPrice"),
        "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior",
        "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId",
        *(f"{_NIC}DeviceIndex", f"{_NIC}DeleteOnTermination", f"{_NIC}AssociatePublicIpAddress"),
        *(f"{_NIC}SecurityGroupId.#", f"{_NIC}SubnetId", f"{_NIC}InterfaceType"),
    ),
}
"""What each action takes, `#` for a number from 1; anything else is refused, as EC2 does."""


class Query(NamedTuple):
    """One call."""

    action: str
    region: str
    form: Mapping[str, str]
    """Flat, without action and version."""
    request: Request

    def one(self, name: str, default: str = "") -> str:
        """A parameter by its flat name."""
        return self.form.get(name, default)

    def all(self, name: str) -> list[str]:
        """A list of text."""
        return [value for key, value in self.form.items() if re.fullmatch(rf"{re.escape(name)}\.\d+", key)]

    def filters(self) -> dict[str, list[str]]:
        """By name."""
        names = {key[:-5]: value for key, value in self.form.items() if re.fullmatch(r"Filter\.\d+\.Name", key)}
        return {name: self.all(f"{place}.Value") for place, name in names.items()}


def action_of(request: Request) -> str:
    """What is asked for; empty: nothing that there is."""
    return dict(parse_qsl(request.body.decode(), keep_blank_values=True)).get("Action", "")


def query_of(request: Request) -> Query:
    """The call, its parameters known by name.

    Raises:
        Refusal: as EC2 does.
    """
    pairs = parse_qsl(request.body.decode(), keep_blank_values=True)
    form = dict(pairs)
    action, version = form.pop("Action", ""), form.pop("Version", "")
    if version not in _VERSIONS:
        raise refused(400, "NoSuchVersion", "The requested version does not exist")
    if len(form) + 2 != len(pairs):
        raise refused(400, "InvalidParameterCombination", "A parameter was given twice")
    for name in form:
        if re.sub(r"\.\d+(?=\.|$)", ".#", name) not in PARAMETERS[action]:
            raise refused(400, "UnknownParameter", f"The parameter {name} is not recognized")
    return Query(action, _scope(request)[1], form, request)


def check_signature(request: Request, key: str, secret: str) -> None:
    """Signature version 4, worked out anew from what came in.

    Raises:
        Refusal: as AWS does.
    """
    said = request.headers.get("authorization", "")
    found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^,]+), SignedHeaders=([^,]+), Signature=([0-9a-f]+)", said)
    if found is None:
        raise refused(400, "MissingAuthenticationToken", "Request is missing Authentication Token")
    credential, names, signature = found.groups()
    if credential.split("/")[0] != key:
        raise refused(401, "AuthFailure", "AWS was not able to validate the provided access credentials")
    day, region, service, end = credential.split("/")[1:]
    assert {"host", "x-amz-date"} <= set(names.split(";"))
    headers = "".join(f"{name}:{request.headers[name].strip()}\n" for name in names.split(";"))
    digest = hashlib.sha256(request.body).hexdigest()
    canonical = "\n".join([request.method, request.path, "", headers, names, digest])
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = "\n".join(["AWS4-HMAC-SHA256", request.headers["x-amz-date"], f"{day}/{region}/{service}/{end}", hashed])
    chain = f"AWS4{secret}".encode()
    for part in (day, region, service, end, to_sign):
        chain = hmac.new(chain, part.encode(), hashlib.sha256).digest()
    if chain.hex() != signature:
        raise refused(403, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature")


def answer(action: str, body: Mapping[str, Any]) -> Reply:
    """A success; lists become `<item>`s."""
    space = _VERSIONS["2011-06-15" if action == "GetCallerIdentity" else "2016-11-15"]
    inner = _xml({"requestId": "fa63083d-e0f7-4933-b31a-f266643bdee8", **body})
    return Reply(
        200,
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{action}Response xmlns="{space}">{inner}</{action}Response>',
        _XML,
    )


def error(status: int, code: str, message: str) -> Reply:
    """EC2's error document, which is in no namespace."""
    inner = f"<Errors><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error></Errors>"
    return Reply(
        status,
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Response>{inner}<RequestID>5dabd361</RequestID></Response>',
        _XML,
    )


def refused(status: int, code: str, message: str) -> Refusal:
    """The same, to raise."""
    return Refusal(*error(status, code, message))


_XML: Final = {"Content-Type": "text/xml;charset=UTF-8"}


def _scope(request: Request) -> tuple[str, str]:
    """The credential's service and region."""
    parts = request.headers.get("authorization", "////").partition("Credential=")[2].split(",")[0].split("/")
    return (parts[3], parts[2]) if len(parts) == 5 else ("", "")


def _xml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "".join(f"<{name}>{_xml(one)}</{name}>" for name, one in value.items())
    if isinstance(value, list | tuple):
        return "".join(f"<item>{_xml(one)}</item>" for one in value)
    return escape(str(value).lower() if isinstance(value, bool) else str(value))
