"""Google's Compute API over libcloud's driver: its connection and its sign-in by a service account, ours the rest.

libcloud's own node calls know neither `requestId` nor spot nodes, and wait for operations by the minute; what is asked
here goes over the driver's connection as it is, once, and comes back as it came. Only reading calls are sent again. The
token is shared by all drivers of an account and kept in memory; libcloud would write it to the home folder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import requests
from libcloud.common.base import ConnectionUserAndKey
from libcloud.common.google import GoogleAuthError, GoogleServiceAcctAuthConnection
from libcloud.compute.drivers.gce import GCEConnection, GCENodeDriver, GCEResponse

from shunter_providers.cloud_kit.blocking import Pace, Tokens, Words, again_in_s, lost, read
from shunter_providers.cloud_kit.faults import Refused, Row, classify
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.contract import Fault, ProviderError, Scope

_SCOPE: Final = "https://www.googleapis.com/auth/compute"
_WITHIN_S: Final = 22.0
"""For everything that one client asks, below the limit of the call that it serves."""
_PAGE: Final = 500
_HARMLESS: Final = (
    "-",
    "NO_RESULTS_ON_PAGE",
    "QUOTA_INFO_UNAVAILABLE",
    "DEPRECATED_RESOURCE_USED",
    "DEPRECATED_TYPE_USED",
    "EXPERIMENTAL_TYPE_USED",
)
"""Warnings with which a list is whole all the same; `-`: there is none."""


class Account(NamedTuple):
    """A service account, and the project that it works in."""

    email: str
    private_key: str
    project: str
    base_url: str
    auth_url: str
    timeout_s: float

    def __repr__(self) -> str:
        return f"Account({self.email}, {self.project})"


class Gce:
    """The calls of one project, for one call of the contract; not for several threads."""

    def __init__(self, account: Account, tokens: Tokens[Account], pace: Pace) -> None:
        self.project = account.project
        self._account = account
        self._tokens = tokens
        self._pace = pace
        self._connection: Any = _Driver(account).connection
        self._give_up_at = time.monotonic() + _WITHIN_S

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        creates: bool = False,
    ) -> Fields:
        """What the API answers to a call; `path` is below the project.

        Raises:
            ProviderError: classified.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._signed_in(method, path, params or {}, body, creates)
            except ProviderError as exc:
                pause_s = again_in_s(exc, attempt) if method == "GET" else None
                if pause_s is None or time.monotonic() + pause_s > self._give_up_at:
                    raise
                time.sleep(pause_s)

    def pages(self, path: str, params: Mapping[str, str | int]) -> Iterator[Fields]:
        """All pages of a list, each whole; raises as `ask`."""
        token = ""
        while True:
            page = self.ask(
                "GET", path, params={"maxResults": _PAGE, **params, **({"pageToken": token} if token else {})}
            )
            page.text("kind")
            _refuse_what_is_partial(page, path)
            yield page
            if "nextPageToken" not in page:
                return
            token = page.text("nextPageToken")
            if time.monotonic() > self._give_up_at:
                raise ProviderError(Fault.TRANSIENT, f"{path}: more pages than can be read in time")

    def of_all_zones(self, kind: str, wanted: str) -> Iterator[tuple[str, Fields]]:
        """Zone and thing, of all zones: `instances`, `machineTypes`; `wanted`: a filter."""
        for page in self.pages(f"/aggregated/{kind}", {"filter": wanted}):
            for scope, found in page.inside("items").named():
                _refuse_what_is_partial(found, scope)
                for item in found.items(kind) if kind in found else ():
                    yield scope.removeprefix("zones/"), item

    def close(self) -> None:
        """Close the connection."""
        self._connection.connection.session.close()

    def _signed_in(
        self, method: str, path: str, params: Mapping[str, str | int], body: Mapping[str, Any] | None, creates: bool
    ) -> Fields:
        return self._tokens.signed(self._account, lambda token: self._once(method, path, params, body, creates, token))

    def _once(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | int],
        body: Mapping[str, Any] | None,
        creates: bool,
        token: str,
    ) -> Fields:
        self._pace.take_turn(creates)
        where = f"{method} {path or self.project}"
        headers = {"Authorization": f"Bearer {token}"}
        whole = f"/{quote(self.project, safe='')}{path}"
        try:
            answer = self._connection.request(whole, params=params, data=body, headers=headers, method=method)
        except requests.RequestException as exc:
            raise lost(exc, where, creates=creates) from exc
        try:
            return read(answer, where, _WORDS, creates=creates)
        except ProviderError as exc:
            if exc.fault is Fault.RATE_LIMITED and exc.retry_after_s:
                self._pace.hold_off(exc.retry_after_s)
            raise


# Pure from here on, but for the connections that libcloud makes.


class _Answer(GCEResponse):
    """As it came, whatever the status; libcloud's own forgets `Retry-After`."""

    def parse_body(self) -> str:
        return str(self.body or "")


class _Connection(GCEConnection):
    responseCls = _Answer

    def __init__(self, user_id: str, secure: bool, host: str, port: int | None = None, **more: Any) -> None:
        for unused in ("project", "auth_type", "scopes", "credential_file"):
            more.pop(unused, None)
        connection: Any = ConnectionUserAndKey  # its parent would sign in with a connection of its own
        connection.__init__(self, user_id, "", secure=secure, host=host, port=port, **more)
        self.request_path = "/compute/v1/projects"
        self.gce_params = None

    def pre_connect_hook(self, params: Any, headers: Any) -> Any:
        return params, headers

    def request(self, *args: Any, **more: Any) -> Any:
        """Once: libcloud's own sends again what the other side broke off, which may have made a node."""
        connection: Any = ConnectionUserAndKey
        return connection.request(self, *args, retry_failed=False, **more)


class _Driver(GCENodeDriver):
    connectionCls = _Connection  # type: ignore[assignment]  # every driver gives host and port, which Google's refuses

    def __init__(self, account: Account) -> None:
        url = urlsplit(account.base_url)
        parent: Any = super()
        parent.__init__(
            account.email,
            project=account.project,
            secure=url.scheme == "https",
            host=url.hostname,
            port=url.port,
            timeout=account.timeout_s,
        )


class _SignIn(GoogleServiceAcctAuthConnection):
    responseCls = _Answer

    def _token_request(self, request_body: Mapping[str, str]) -> Any:
        connection: Any = self
        return connection.request("/o/oauth2/token", method="POST", data=urlencode(request_body), retry_failed=False)


def sign_in(account: Account) -> Fields:
    """A new token of the account, as the vendor answers; raises `AUTH` where its key is not taken."""
    where = f"sign-in of {account.email}"
    url = urlsplit(account.auth_url)
    connection: Any = None
    make: Any = _SignIn
    try:
        connection = make(
            account.email,
            {"private_key": account.private_key},
            [_SCOPE],
            secure=url.scheme == "https",
            host=url.hostname,
            port=url.port,
            timeout=account.timeout_s,
        )
        return read(connection.get_new_token(), where, _WORDS, creates=False)
    except GoogleAuthError as exc:
        way_out = " (pip install 'shunter[ssh]')" if "cryptography" in exc.value else ""
        raise ProviderError(Fault.AUTH, f"{where}: {exc.value}{way_out}", scope=Scope.ACCOUNT) from None
    except requests.RequestException as exc:
        raise lost(exc, where, creates=False) from exc
    except ProviderError as exc:
        if exc.fault is Fault.INVALID:  # `invalid_grant`, which comes as 400
            raise ProviderError(Fault.AUTH, f"{where}: {exc.detail}", scope=Scope.ACCOUNT) from None
        raise
    finally:
        if connection is not None and connection.connection is not None:
            connection.connection.session.close()


def words_of(body: Any, text: str) -> tuple[str, str]:
    """`{"error": {"code", "message", "errors": [{"reason"}], "details": [{"reason"}]}}`; a sign-in says it in text."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if isinstance(error, str):
        return error, str(body.get("error_description", ""))
    if not isinstance(error, Mapping):
        return "", text[:300]
    lists = (error.get("errors"), error.get("details"))
    parts = [part for found in lists if isinstance(found, list) for part in found if isinstance(part, Mapping)]
    reasons = dict.fromkeys(str(part["reason"]) for part in parts if part.get("reason"))
    return " ".join(reasons), str(error.get("message", ""))


def failure_of(operation: Fields) -> ProviderError | None:
    """What became of an operation that failed: nothing of it stays. None: it did not fail."""
    if "error" not in operation:
        return None
    first, *_ = [*operation.inside("error").items("errors"), Fields({}, "an operation's error")]
    status = operation.count("httpErrorStatusCode", 400)
    refused = Refused(status, first.text("code", "unknown"), first.text("message", "it does not say why"))
    told = classify(refused, FAULTS, creates=True)
    return ProviderError(told.fault, told.detail, scope=told.scope)


# fmt: off
FAULTS: Final[Sequence[Row]] = (
    Row(None, r"ZONE_RESOURCE_POOL_EXHAUSTED|insufficientCapacity|does not have enough resources|"
              r"RESOURCE_POOL_EXHAUSTED|UNSUPPORTED_OPERATION .*preempt|Machine type .* does not exist in zone",
                                                                Fault.NO_CAPACITY,  Scope.OFFER,   True),
    Row(None, r"(quotaExceeded|QUOTA_EXCEEDED)\b.*(ALL_REGIONS|globally)",
                                                                Fault.QUOTA,        Scope.ACCOUNT, True),
    Row(None, r"rateLimitExceeded|RATE_LIMIT_EXCEEDED|OPERATION_RATE_EXCEEDED|concurrentOperationQuotaExceeded|"
              r"Quota exceeded for quota metric",               Fault.RATE_LIMITED, Scope.ACCOUNT, True),
    Row(None, r"quotaExceeded|QUOTA_EXCEEDED|LIMIT_EXCEEDED",   Fault.QUOTA,        Scope.REGION,  True),
    Row(None, r"BILLING_DISABLED|accountDisabled|billing (account|to be enabled)|requires billing",
                                                                Fault.PAYMENT,      Scope.ACCOUNT, True),
    Row(None, r"IAM_PERMISSION_DENIED|accessNotConfigured|SERVICE_DISABLED|authError",
                                                                Fault.AUTH,         Scope.ACCOUNT, True),
    Row(None, r"alreadyExists|RESOURCE_ALREADY_EXISTS",         Fault.CONFLICT,     Scope.OFFER),
    Row(None, r"resourceNotReady|RESOURCE_NOT_READY|resourceInUse|RESOURCE_IN_USE",
                                                                Fault.TRANSIENT,    Scope.OFFER),
)
# fmt: on
"""By the reasons of replies and the codes of operations, which differ in spelling only."""
_WORDS: Final = Words(words_of, FAULTS)


def _refuse_what_is_partial(page: Fields, where: str) -> None:
    """A list that lacks a zone must not be taken for a whole one."""
    code = page.inside("warning").text("code", "-")
    missing = page.texts("unreachables")
    if missing or code not in _HARMLESS:
        detail = f"{where}: the list is not whole: {', '.join(missing) or page.inside('warning').text('message', code)}"
        raise ProviderError(Fault.TRANSIENT, detail)
