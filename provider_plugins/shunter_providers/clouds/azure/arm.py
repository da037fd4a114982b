"""Azure's Resource Manager over libcloud's driver: its connection, ours the sign-in and the rest.

libcloud's node calls know neither spot nor zones, leave addresses behind, wait by the minute, and sign in anew with
every driver. What is asked here goes over the driver's connection as it is, once, and comes back as it came; only
reading calls are sent again. The token is shared by all drivers of an account and is kept in memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import requests
from libcloud.common.azure_arm import AzureResourceManagementConnection
from libcloud.common.base import ConnectionUserAndKey, Response
from libcloud.compute.drivers.azure_arm import AzureNodeDriver

from shunter_providers.cloud_kit.blocking import Pace, Tokens, Words, again_in_s, lost, read
from shunter_providers.cloud_kit.faults import Refused, Row, classify
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.contract import Fault, ProviderError, Scope

COMPUTE: Final = "2025-04-01"
DISKS: Final = "2024-03-02"
NETWORK: Final = "2024-05-01"
GROUPS: Final = "2022-09-01"
SUBSCRIPTIONS: Final = "2022-12-01"
SKUS: Final = "2021-07-01"
PRICES: Final = "2023-01-01-preview"
"""Versions of the APIs that are asked."""
_WITHIN_S: Final = 22.0
"""For everything that one client reads, below the limit of the call that it serves."""
_OK: Final = 200
_NOTHING_THERE: Final = 204
_NEARLY_EMPTY: Final = 5
_REFILLED_IN_S: Final = 2.0
_REMAINING: Final = "x-ms-ratelimit-remaining-subscription-"
_IDENTITY_VERSION: Final = "2018-02-01"


class Account(NamedTuple):
    """Who signs in, and the subscription that it works in."""

    tenant: str
    client_id: str
    secret: str
    managed: bool
    """The identity of this machine, which `auth_url` tells the token of."""
    subscription: str
    base_url: str
    auth_url: str
    prices_url: str
    timeout_s: float

    def __repr__(self) -> str:
        return f"Account({self.client_id or 'managed identity'}, {self.subscription})"


class Answer(NamedTuple):
    """What came back."""

    fields: Fields
    status: int
    operation: str
    """Where the work that goes on can be looked at; empty: it is done."""


class Arm:
    """The calls of one subscription, for one call of the contract; not for several threads."""

    def __init__(self, account: Account, tokens: Tokens[Account], pace: Pace) -> None:
        self._account = account
        self._tokens = tokens
        self._pace = pace
        self._connection: Any = _Driver(account, account.base_url).connection
        self._prices: Any = None
        self._give_up_at = time.monotonic() + _WITHIN_S
        self.root = f"/subscriptions/{account.subscription}"

    def ask(self, method: str, path: str, version: str, **more: Any) -> Fields:
        """What the API answers; as `send`."""
        return self.send(method, path, version, **more).fields

    def find(self, path: str, version: str, **params: str) -> Fields | None:
        """What is there; None: nothing is. As `send`."""
        try:
            return self.ask("GET", path, version, **params)
        except ProviderError as exc:
            if exc.fault is not Fault.NOT_FOUND:
                raise
            return None

    def delete(self, path: str, version: str) -> bool:
        """Ask for its end; whether it was there. What cannot be ended yet is no error: look again."""
        try:
            return self.send("DELETE", path, version).status != _NOTHING_THERE
        except ProviderError as exc:
            if exc.fault is Fault.TRANSIENT and exc.scope is Scope.OFFER:
                return True
            if exc.fault is not Fault.NOT_FOUND:
                raise
            return False

    def send(
        self,
        method: str,
        path: str,
        version: str,
        *,
        body: Mapping[str, Any] | None = None,
        creates: bool = False,
        **params: str,
    ) -> Answer:
        """What the API answers to a call.

        Args:
            path: below the subscription.
            params: of the query, beside the version; `expand` and `filter` get their `$`.
            creates: it makes a node, and nothing where there is one of its name.

        Raises:
            ProviderError: classified; `CONFLICT` where something of that name exists and the call creates.
        """
        query = {f"${name}" if name in ("expand", "filter") else name: value for name, value in params.items()}
        return self._tried(method, f"{self.root}{path}", {"api-version": version, **query}, body, creates)

    def pages(self, path: str, version: str, **params: str) -> Iterator[Fields]:
        """The members of a list, over all pages; raises as `send`."""
        answer = self.ask("GET", path, version, **params)
        while True:
            yield from answer.items("value")
            if "nextLink" not in answer:
                return
            if time.monotonic() > self._give_up_at:
                raise ProviderError(Fault.TRANSIENT, f"{path}: more pages than can be read in time")
            answer = self.follow(answer.text("nextLink"))

    def follow(self, url: str) -> Fields:
        """What stands at an address of its own that the API gave: a next page, an operation."""
        parts = urlsplit(url)
        if parts.hostname != urlsplit(self._account.base_url).hostname:  # our token is for nobody else
            raise ProviderError(Fault.TRANSIENT, f"the API points to {parts.hostname!r}, which is not its own address")
        return self._tried("GET", unquote(parts.path), dict(parse_qsl(parts.query)), None, False).fields

    def prices(self, wanted: str) -> Iterator[Fields]:
        """Retail prices that fit a filter, over all pages; nobody signs in for them."""
        if self._prices is None:
            self._prices = _Driver(self._account, self._account.prices_url).connection
        query = {"api-version": PRICES, "$filter": wanted}
        while True:
            where = "GET /api/retail/prices"
            try:
                answer = self._prices.request("/api/retail/prices", params=query)
            except requests.RequestException as exc:
                raise lost(exc, where, creates=False) from exc
            page = read(answer, where, _WORDS, creates=False)
            yield from page.items("Items")
            if "NextPageLink" not in page:
                return
            if time.monotonic() > self._give_up_at:
                raise ProviderError(Fault.TRANSIENT, f"{where}: more pages than can be read in time")
            query = dict(parse_qsl(urlsplit(page.text("NextPageLink")).query))

    def text_at(self, url: str) -> str:
        """What stands at an address that is signed for whoever has it; empty: nothing does yet."""
        parts = urlsplit(url)
        connection: Any = _Driver(self._account, f"{parts.scheme}://{parts.netloc}").connection
        try:
            answer = connection.request(parts.path, params=dict(parse_qsl(parts.query)))
        except requests.RequestException as exc:
            raise lost(exc, f"GET {parts.path}", creates=False) from exc
        finally:
            connection.connection.session.close()
        return str(answer.object) if answer.status == _OK else ""

    def close(self) -> None:
        """Close the connections."""
        for connection in (self._connection, self._prices):
            if connection is not None and connection.connection is not None:
                connection.connection.session.close()

    def _tried(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None, creates: bool
    ) -> Answer:
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._signed_in(method, path, query, body, creates)
            except ProviderError as exc:
                pause_s = again_in_s(exc, attempt) if method == "GET" else None
                if pause_s is None or time.monotonic() + pause_s > self._give_up_at:
                    raise
                time.sleep(pause_s)

    def _signed_in(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None, creates: bool
    ) -> Answer:
        return self._tokens.signed(self._account, lambda token: self._once(method, path, query, body, creates, token))

    def _once(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
        creates: bool,
        token: str,
    ) -> Answer:
        self._pace.take_turn(creates)
        where = f"{method} {path.removeprefix(self.root)}"
        headers = {"Authorization": f"Bearer {token}", **({"If-None-Match": "*"} if creates else {})}
        try:
            answer = self._connection.request(
                quote(path, safe="/()"), params=query, data=body, headers=headers, method=method
            )
        except requests.RequestException as exc:
            raise lost(exc, where, creates=creates) from exc
        try:
            fields = read(answer, where, _WORDS, creates=creates)
        except ProviderError as exc:
            if exc.fault is Fault.RATE_LIMITED and exc.retry_after_s:
                self._pace.hold_off(exc.retry_after_s)
            raise
        if _is_nearly_empty(answer.headers):
            self._pace.hold_off(_REFILLED_IN_S)
        return Answer(fields, answer.status, answer.headers.get("azure-asyncoperation", ""))


# Pure from here on, but for the connections that libcloud makes.


class _Answer(Response):
    """As it came, whatever the status."""

    def success(self) -> bool:
        return True


class _Connection(AzureResourceManagementConnection):
    responseCls = _Answer  # type: ignore[assignment]  # its own raises, and forgets `Retry-After`

    def __init__(self, key: str, secret: str, secure: bool, host: str, port: int | None = None, **more: Any) -> None:
        for unused in ("tenant_id", "subscription_id", "cloud_environment"):
            more.pop(unused, None)
        connection: Any = ConnectionUserAndKey  # its parent takes no address but those of Microsoft's clouds
        connection.__init__(self, key, secret, secure=secure, host=host, port=port, **more)

    def add_default_headers(self, headers: dict[str, str]) -> dict[str, str]:
        return {"Content-Type": "application/json", **headers}

    def connect(self, *args: Any, **more: Any) -> None:
        connection: Any = ConnectionUserAndKey  # its parent signs in here, once more for each driver
        connection.connect(self, *args, **more)

    def request(self, *args: Any, **more: Any) -> Any:
        """Once: libcloud's own sends again what the other side broke off, which may have made a node."""
        connection: Any = ConnectionUserAndKey
        return connection.request(self, *args, retry_failed=False, **more)


class _SignIn(_Connection):
    def add_default_headers(self, headers: dict[str, str]) -> dict[str, str]:
        return {"Content-Type": "application/x-www-form-urlencoded", **headers}

    def encode_data(self, data: Mapping[str, str]) -> str:
        return urlencode(data)


class _Driver(AzureNodeDriver):
    connectionCls = _Connection  # type: ignore[assignment]  # every driver gives host and port, which Azure's refuses

    def __init__(self, account: Account, url: str) -> None:
        parts = urlsplit(url)
        parent: Any = super()
        parent.__init__(
            account.tenant,
            account.subscription,
            account.client_id,
            "",
            secure=parts.scheme == "https",
            host=parts.hostname,
            port=parts.port or (443 if parts.scheme == "https" else 80),
            timeout=account.timeout_s,
        )


class _SignInDriver(_Driver):
    connectionCls = _SignIn


def sign_in(account: Account) -> Fields:
    """A new token, as the vendor answers; raises `AUTH` where the credentials are not taken."""
    who = "the managed identity of this machine" if account.managed else f"application {account.client_id}"
    where = f"sign-in of {who}"
    connection: Any = _SignInDriver(account, account.auth_url).connection
    try:
        answer = _managed(connection, account) if account.managed else _credentials(connection, account)
        return read(answer, where, _WORDS, creates=False)
    except requests.RequestException as exc:
        raise lost(exc, where, creates=False) from exc
    except ProviderError as exc:
        if exc.fault in (Fault.INVALID, Fault.NOT_FOUND, Fault.AUTH):  # a wrong tenant or client comes as 400
            raise ProviderError(Fault.AUTH, f"{where}: {exc.detail}", scope=Scope.ACCOUNT) from None
        raise
    finally:
        if connection.connection is not None:
            connection.connection.session.close()


def _credentials(connection: Any, account: Account) -> Any:
    form = {
        "grant_type": "client_credentials",
        "client_id": account.client_id,
        "client_secret": account.secret,
        "scope": f"{account.base_url}/.default",
    }
    return connection.request(f"/{quote(account.tenant, safe='')}/oauth2/v2.0/token", data=form, method="POST")


def _managed(connection: Any, account: Account) -> Any:
    query = {"api-version": _IDENTITY_VERSION, "resource": f"{account.base_url}/"}
    if account.client_id:
        query["client_id"] = account.client_id
    return connection.request("/metadata/identity/oauth2/token", params=query, headers={"Metadata": "true"})


def words_of(body: Any, text: str) -> tuple[str, str]:
    """`{"error": {"code", "message", "details": [{"code", "message"}]}}`; a sign-in says it in `error_description`."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if isinstance(error, str):
        return error, str(body.get("error_description", ""))
    if not isinstance(error, Mapping):
        return "", text[:300]
    details = error.get("details")
    parts = [error, *(part for part in (details if isinstance(details, list) else ()) if isinstance(part, Mapping))]
    codes = dict.fromkeys(str(part["code"]) for part in parts if part.get("code"))
    messages = dict.fromkeys(str(part["message"]) for part in parts if part.get("message"))
    return " ".join(codes), " ".join(messages)


def failure_of(operation: Fields) -> ProviderError:
    """What an operation that failed says, in the contract's words."""
    code, message = words_of({"error": operation.raw("error")}, "")
    code, message = code or "it failed", message or "it does not say why"
    told = classify(Refused(500, code, message), FAULTS, creates=False)  # there is no status of its own
    return ProviderError(told.fault, f"{code}: {message}", scope=told.scope)


# fmt: off
FAULTS: Final[Sequence[Row]] = (
    Row(429,  "",                                               Fault.RATE_LIMITED, Scope.ACCOUNT, True),
    Row(None, r"TooManyRequests|RequestsThrottled",             Fault.RATE_LIMITED, Scope.ACCOUNT, True),
    Row(None, r"SkuNotAvailable|AllocationFailed|Overconstrained\w*AllocationRequest|AllocationTimeout|"
              r"SpotPriceGreaterThanProvidedMaxPrice|AzureSpotIsNotSupportedForThisVMSize|ZoneNotAvailable|"
              r"NotAvailableForSubscription",                   Fault.NO_CAPACITY,  Scope.OFFER,   True),
    Row(None, r"Total Regional Cores|CountLimitReached|ResourceCountExceedsLimit",
                                                                Fault.QUOTA,        Scope.REGION,  True),
    Row(None, r"QuotaExceeded|exceeding (approved|quota)|\bquota\b",
                                                                Fault.QUOTA,        Scope.OFFER,   True),
    Row(None, r"RequestDisallowedByPolicy",                     Fault.QUOTA,        Scope.OFFER,   True),
    Row(None, r"ReadOnlyDisabledSubscription|DisabledSubscription|SubscriptionDisabled|"
              r"subscription\S* \S+ is disabled",               Fault.PAYMENT,      Scope.ACCOUNT, True),
    Row(None, r"SubscriptionNotRegistered|MissingSubscriptionRegistration|SubscriptionNotFound|InvalidSubscriptionId|"
              r"AuthorizationFailed|AuthenticationFailed|InvalidAuthenticationToken",
                                                                Fault.AUTH,         Scope.ACCOUNT, True),
    Row(None, r"AnotherOperationInProgress|ReferencedResourceNotProvisioned|OperationPreempted|RetryableError|"
              r"NicReservedForAnotherVm|NicInUse|CannotBeDeleted|marked for deletion|is being (deleted|deprovisioned)|"
              r"is attached to VM",                             Fault.TRANSIENT,    Scope.OFFER,   True),
    Row(412,  "",                                               Fault.CONFLICT,     Scope.OFFER),
)
# fmt: on
"""By the codes of replies, of operations and of nodes, which are the same."""
_WORDS: Final = Words(words_of, FAULTS)


def _is_nearly_empty(headers: Mapping[str, str]) -> bool:
    """Whether the account's bucket of calls is; others draw from it too."""
    left = (headers.get(f"{_REMAINING}{kind}", "") for kind in ("reads", "writes", "deletes"))
    return any(text.isdigit() and int(text) <= _NEARLY_EMPTY for text in left)
