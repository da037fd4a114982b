"""EC2's query API over libcloud's connections: signed with version 4, read strictly, resent only where that is safe.

Not for several threads: a client serves one call of the contract and is closed after it. Its drivers never retry, for
EC2 tells of missing capacity with HTTP 500, and libcloud's own list of sizes and prices is not asked.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import unescape
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import urlencode, urlsplit

import requests
from libcloud.common.base import JsonResponse
from libcloud.common.types import LibcloudError
from libcloud.compute.drivers.ec2 import EC2Connection, EC2NodeDriver, EC2Response

from shunter_providers.cloud_kit.blocking import again_in_s, lost
from shunter_providers.cloud_kit.faults import Refused, Row, classify, retry_after_s
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.contract import Fault, ProviderError, Scope

_MAKES_A_NODE: Final = "RunInstances"
_READS: Final = ("Describe", "Get")
_WITHIN_S: Final = 22.0
"""For everything that one client asks, below the limit of the call that it serves."""
_PRICES_IN: Final = "us-east-1"
_JSON: Final = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "AWSPriceListService.GetProducts"}
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}


class Account(NamedTuple):
    """Whose calls, and where to."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None
    base_url: str | None
    """One address for all services and regions; None: the vendor's own."""
    timeout_s: float

    def __repr__(self) -> str:
        return f"Account({self.access_key_id[:4]}…)"


class Ec2:
    """The calls of one account, of any region."""

    def __init__(self, account: Account, take_turn: Callable[[bool], None]) -> None:
        """`take_turn`: waits until the account may make a call; told whether that makes a node."""
        self._account = account
        self._take_turn = take_turn
        self._drivers: dict[tuple[str, str], Any] = {}  # libcloud has few types, and those are wrong
        self._give_up_at = time.monotonic() + _WITHIN_S

    def ask(self, region: str, action: str, parameters: Mapping[str, Any] | None = None) -> Fields:
        """One action; what it answers.

        Args:
            parameters: nested objects and lists in EC2's own names (`{"Filter": [{"Name": …, "Value": […]}]}`).

        Raises:
            ProviderError: classified.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._once(region, action, parameters or {})
            except ProviderError as exc:
                wait_s = again_in_s(exc, attempt) if action.startswith(_READS) else None
                if wait_s is None or time.monotonic() + wait_s > self._give_up_at:
                    raise
                time.sleep(wait_s)

    def pages(self, region: str, action: str, parameters: Mapping[str, Any], items: str) -> Iterator[Fields]:
        """The members of a list over all of its pages; raises as `ask`."""
        token = ""
        while True:
            answer = self.ask(region, action, {**parameters, "NextToken": token} if token else parameters)
            yield from answer.items(items)
            token = answer.text("nextToken", "-")
            if token == "-":  # noqa: S105 - no secret at all
                return

    def products(self, filters: Mapping[str, str]) -> Iterator[Fields]:
        """What the price list says of EC2, for attributes that are as they are given; raises as `ask`."""
        wanted = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in filters.items()]
        asked: dict[str, Any] = {"ServiceCode": "AmazonEC2", "Filters": wanted, "FormatVersion": "aws_v1"}
        while True:
            answer = self._listed(asked)
            for text in answer.texts("PriceList"):
                yield Fields(_json(text), "GetProducts.PriceList")
            if "NextToken" not in answer:
                return
            asked["NextToken"] = answer.text("NextToken")

    def close(self) -> None:
        """Close the connections."""
        for driver in self._drivers.values():
            if driver.connection.connection is not None:
                driver.connection.connection.session.close()
        self._drivers.clear()

    def _once(self, region: str, action: str, parameters: Mapping[str, Any]) -> Fields:
        creates = action == _MAKES_A_NODE
        service = _SERVICES.get(action, "ec2")
        version = self._driver(region, service).connection.version
        body = urlencode({"Action": action, "Version": version, **flattened(parameters)})
        answer = self._send(region, service, action, body, _FORM)
        where = f"{region} {action}"
        if _tag(answer) != f"{action}Response":
            _refuse(where, f"the answer is no {action}Response", creates)
        return Fields(_value(answer), where, creates=creates)

    def _listed(self, asked: Mapping[str, Any]) -> Fields:
        """A page of the price list, which speaks JSON and lies in one region for all."""
        answer = self._send(_PRICES_IN, "pricing", "GetProducts", json.dumps(asked), _JSON)
        return Fields(answer, "GetProducts")

    def _send(self, region: str, service: str, action: str, body: str, headers: Mapping[str, str]) -> Any:
        """What the vendor answers, parsed; its refusals, and whatever else goes wrong, in the contract's words."""
        creates, where = action == _MAKES_A_NODE, f"{region} {action}"
        self._take_turn(creates)
        if time.monotonic() > self._give_up_at:
            raise ProviderError(Fault.TRANSIENT, f"{where}: not asked, what came before it took too long")
        connection = self._driver(region, service).connection
        try:
            return connection.request("/", method="POST", data=body, headers=headers, retry_failed=False).object
        except _RefusedByAws as exc:
            raise classify(exc.refused, FAULTS, creates=creates) from None
        except requests.RequestException as exc:
            raise lost(exc, where, creates=creates) from exc
        except LibcloudError as exc:  # it could not read the answer
            _refuse(where, f"{exc}"[:200], creates)

    def _driver(self, region: str, service: str) -> Any:
        known = self._drivers.get((region, service))
        if known is not None:
            return known
        account = self._account
        url = urlsplit(account.base_url or f"https://{_HOSTS.get(service, service)}.{region}.{_domain(region)}")
        driver = _DRIVERS[service](
            account.access_key_id,
            account.secret_access_key,
            secure=url.scheme == "https",
            host=url.hostname,
            port=url.port,
            token=account.session_token,
            signature_version="4",
            timeout=account.timeout_s,
        )
        driver.region_name = region  # libcloud knows too few, and reads this when it signs
        self._drivers[region, service] = driver
        return driver


# Pure from here on: the query protocol and the vendor's words.


class _RefusedByAws(Exception):
    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.text)
        self.refused = refused


class _Response(EC2Response):
    """One whose refusals keep status, code and message, whatever namespace they are in."""

    def parse_error(self) -> NoReturn:
        """Raises `_RefusedByAws`."""
        code, message = _words_of(self.body or "")
        raise _RefusedByAws(Refused(self.status, code, message, retry_after_s(self.headers.get("retry-after"))))


class _Connection(EC2Connection):
    responseCls: Any = _Response


class _StsConnection(_Connection):
    service_name = "sts"
    version = "2011-06-15"


class _JsonAnswer(JsonResponse):
    def parse_error(self) -> NoReturn:
        """Raises `_RefusedByAws`."""
        body = _json(self.body or "")
        said = body if isinstance(body, Mapping) else {}
        code = str(said.get("__type", "")).rpartition("#")[2]
        raise _RefusedByAws(Refused(self.status, code, str(said.get("message") or said.get("Message") or self.body)))


class _PricingConnection(_Connection):
    responseCls = _JsonAnswer
    service_name = "pricing"


class _Driver(EC2NodeDriver):
    connectionCls = _Connection


class _StsDriver(EC2NodeDriver):
    connectionCls = _StsConnection


class _PricingDriver(EC2NodeDriver):
    connectionCls = _PricingConnection


_SERVICES: Final = {"GetCallerIdentity": "sts"}
_DRIVERS: Final[Mapping[str, Any]] = {"ec2": _Driver, "sts": _StsDriver, "pricing": _PricingDriver}
_HOSTS: Final = {"pricing": "api.pricing"}

_LISTS: Final = frozenset({
    "capacityReservationSet", "imagesSet", "instancesSet", "instanceTypeSet", "ipPermissions", "gpus", "reservationSet",
    "networkCards", "securityGroupInfo", "spotPriceHistorySet", "subnetSet", "supportedArchitectures",
    "supportedUsageClasses", "tagSet", "vpcSet", "blockDeviceMapping",
})  # fmt: skip
"""What is a list even where it is empty: XML does not tell it from empty text."""

# fmt: off
FAULTS: Final[Sequence[Row]] = (
    Row(None, r"^(InsufficientInstanceCapacity|InsufficientHostCapacity|InsufficientReservedInstanceCapacity|"
              r"InsufficientCapacity|ReservationCapacityExceeded|CapacityBlock\w*|SpotMaxPriceTooLow|"
              r"UnfulfillableCapacity) ",                             Fault.NO_CAPACITY,  Scope.OFFER,    True),
    Row(None, r"^Unsupported .*(Availability Zone|instance type)",    Fault.NO_CAPACITY,  Scope.OFFER,    True),
    Row(None, r"^(VcpuLimitExceeded|InstanceLimitExceeded|MaxSpotInstanceCountExceeded|AddressLimitExceeded|"
              r"VolumeLimitExceeded|MaxIOPSLimitExceeded|NetworkInterfaceLimitExceeded|SecurityGroupLimitExceeded|"
              r"InsufficientVolumeCapacity|InsufficientFreeAddressesInSubnet|PrivateIpAddressLimitExceeded) ",
                                                                      Fault.QUOTA,        Scope.REGION,   True),
    Row(None, r"^(RequestLimitExceeded|Throttling\w*|RequestThrottled\w*|Client\.RequestLimitExceeded) ",
                                                                      Fault.RATE_LIMITED, Scope.ACCOUNT,  True),
    Row(None, r"^(Blocked|PendingVerification|AccountDisabled|OptInRequired) ",
                                                                      Fault.PAYMENT,      Scope.ACCOUNT,  True),
    Row(None, r"^(UnauthorizedOperation|AuthFailure|InvalidClientTokenId|SignatureDoesNotMatch|RequestExpired|"
              r"ExpiredToken|MissingAuthenticationToken|IncompleteSignature|InvalidAccessKeyId|AccessDenied\w*|"
              r"UnrecognizedClientException) ",                       Fault.AUTH,         Scope.ACCOUNT,  True),
    Row(None, r"^InvalidInstanceID\.(NotFound|Malformed) ",           Fault.NOT_FOUND,    Scope.OFFER),
    Row(None, r"^(IdempotentParameterMismatch|IdempotentInstanceTerminated|InvalidGroup\.Duplicate|"
              r"InvalidPermission\.Duplicate) ",                      Fault.CONFLICT,     Scope.OFFER),
    Row(None, r"^InvalidGroup\.NotFound ",                           Fault.TRANSIENT,    Scope.REGION,   True),
    Row(None, r"^(InternalError|InternalFailure|Unavailable|ServiceUnavailable|RequestTimeout) ",
                                                                      Fault.TRANSIENT,    Scope.PROVIDER),
)
# fmt: on
"""By code. Capacity, quotas and limits may come as 5xx; EC2 makes nothing with them."""


def flattened(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Objects and lists as the query protocol writes them: `Filter.1.Value.2`."""
    found: dict[str, str] = {}
    for name, one in value.items():
        if isinstance(one, Mapping):
            found |= flattened(one, f"{prefix}{name}.")
        elif isinstance(one, list | tuple):
            found |= flattened({f"{number}": member for number, member in enumerate(one, 1)}, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = str(one).lower() if isinstance(one, bool) else str(one)
    return found


def where(**wanted: Sequence[str] | str) -> list[dict[str, Any]]:
    """Filters by name, `_` for `-`."""
    return [
        {"Name": name.replace("_", "-"), "Value": [values] if isinstance(values, str) else list(values)}
        for name, values in wanted.items()
    ]


def _value(element: Any) -> Any:
    name = _tag(element)
    if name in _LISTS:
        return [_value(member) for member in element]
    if len(element) == 0:
        return (element.text or "").strip()
    return {_tag(member): _value(member) for member in element}


def _tag(element: Any) -> str:
    return str(getattr(element, "tag", "")).rpartition("}")[2]


def _words_of(body: str) -> tuple[str, str]:
    """`<Error><Code>…</Code><Message>…`, in whatever document and namespace; read so that nothing can go wrong."""
    found = {name: re.search(rf"<{name}>([^<]*)</{name}>", body) for name in ("Code", "Message")}
    code, message = (unescape(one[1]).strip() if one is not None else "" for one in found.values())
    return code, message or body[:300]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _domain(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


def _refuse(place: str, why: str, creates: bool) -> NoReturn:
    raise ProviderError(Fault.AMBIGUOUS if creates else Fault.TRANSIENT, f"{place}: {why}", may_have_created=creates)
