"""OpenStack's APIs over libcloud's connections: its sign-in at Keystone, its way to an endpoint, ours the rest.

libcloud's own node calls lose `Retry-After` and what a refusal says, and sign in anew for every driver; here one token
serves an account, each call of the contract has a connection of its own, and only reading calls are sent again.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import requests
from libcloud.common.base import ConnectionUserAndKey
from libcloud.common.openstack_identity import OpenStackAuthResponse, OpenStackIdentity_3_0_Connection
from libcloud.compute.drivers.openstack import OpenStack_1_1_Response, OpenStack_2_Connection

from shunter_providers.cloud_kit.blocking import Words, again_in_s, lost, read
from shunter_providers.cloud_kit.faults import Row
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.contract import Fault, ProviderError, Scope

_WITHIN_S: Final = 22.0
"""For everything that one client asks, below the limit of the call that it serves."""
_TOKEN_FOR_S: Final = 1800.0
"""A token is asked for again by then; Keystone's last longer."""
_PAGE: Final = 1000
"""The most that nova gives."""
_LISTINGS: Final = 3
"""How often a listing is begun anew because it lost its place."""
_SERVICES: Final = ("compute", "image", "network")


class Account(NamedTuple):
    """Who signs in, and for which project."""

    auth_url: str
    user: str
    password: str
    project_id: str
    user_domain: str
    timeout_s: float

    def __repr__(self) -> str:
        return f"Account({self.user}, {self.project_id})"


class Grant(NamedTuple):
    """What Keystone gave."""

    token: str
    project_id: str
    endpoints: Mapping[tuple[str, str], str]
    """URL by kind of service and region."""

    def regions(self) -> Sequence[str]:
        """Where nodes can be had."""
        return sorted({region for kind, region in self.endpoints if kind == "compute"})


class Grants:
    """The grant of an account, for all of its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._grant: Grant | None = None
        self._renew_at = 0.0

    def current(self, account: Account) -> Grant:
        """One that is good for a while yet; signs in where there is none.

        Raises:
            ProviderError: `AUTH`: the account's password is not taken.
        """
        with self._lock:
            if self._grant is None or time.monotonic() >= self._renew_at:
                self._grant = _sign_in(account)
                self._renew_at = time.monotonic() + _TOKEN_FOR_S
            return self._grant

    def forget(self, grant: Grant) -> None:
        """Its token was refused."""
        with self._lock:
            if grant is self._grant:
                self._grant = None


class OpenStack:
    """The calls of one project, for one call of the contract; not for several threads."""

    def __init__(self, account: Account, grants: Grants) -> None:
        self._account = account
        self._grants = grants
        self._connections: dict[str, Any] = {}
        self._give_up_at = time.monotonic() + _WITHIN_S

    def grant(self) -> Grant:
        """Who we are, and where."""
        return self._grants.current(self._account)

    def ask(
        self,
        place: tuple[str, str],
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Fields:
        """What a service answers.

        Args:
            place: kind of service (`compute`, `image`, `network`) and region.

        Raises:
            ProviderError: classified; the order of a server may have made one where its answer is lost.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._signed_in(place, method, path, params or {}, body)
            except ProviderError as exc:
                pause_s = again_in_s(exc, attempt) if method == "GET" else None
                if pause_s is None or time.monotonic() + pause_s > self._give_up_at:
                    raise
                time.sleep(pause_s)

    def all(self, region: str, kind: str, **params: str | int) -> Sequence[Fields]:
        """All `servers` or `flavors` of a region that the parameters choose, over all pages; raises as `ask`.

        The next page is asked for after the last thing of one: where that has gone meanwhile, all are read anew.
        """
        for _ in range(_LISTINGS):
            try:
                return list(self._pages(region, kind, params))
            except ProviderError as exc:
                if exc.fault is not Fault.CONFLICT:
                    raise
        raise ProviderError(Fault.TRANSIENT, f"{region}: {kind} go faster than they can be listed")

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            if connection.connection is not None:
                connection.connection.session.close()
        self._connections.clear()

    def _pages(self, region: str, kind: str, params: Mapping[str, str | int]) -> Iterator[Fields]:
        place: dict[str, str] = {}
        seen: set[str] = set()
        while True:
            asked = {"limit": _PAGE, **params, **place}
            page = self.ask(("compute", region), "GET", f"/{kind}/detail", params=asked)
            found = page.items(kind)
            new = [one for one in found if one.text("id") not in seen]
            yield from new
            # A server that is taken up at this moment is found twice, which makes a page short that is not the last.
            more = f"{kind}_links" in page or any(one.text("status", "-") == "BUILD" for one in new)
            if not new or not more:
                return
            seen |= {one.text("id") for one in new}
            place = {"marker": found[-1].text("id")}
            if time.monotonic() > self._give_up_at:
                raise ProviderError(Fault.TRANSIENT, f"{region}: more pages than can be read in time")

    def _signed_in(
        self,
        place: tuple[str, str],
        method: str,
        path: str,
        params: Mapping[str, str | int],
        body: Mapping[str, Any] | None,
    ) -> Fields:
        """Once; a second time where the token was refused, with which nothing was done."""
        grant = self.grant()
        try:
            return self._once(grant, place, method, path, params, body)
        except ProviderError as exc:
            if exc.fault is not Fault.AUTH or not exc.detail.startswith("401"):
                raise
        self._grants.forget(grant)
        return self._once(self.grant(), place, method, path, params, body)

    def _once(
        self,
        grant: Grant,
        place: tuple[str, str],
        method: str,
        path: str,
        params: Mapping[str, str | int],
        body: Mapping[str, Any] | None,
    ) -> Fields:
        url = grant.endpoints.get(place)
        if url is None:
            detail = f"the project has no {place[0]} in {place[1]} (it has {', '.join(grant.regions()) or 'none'})"
            raise ProviderError(Fault.INVALID, detail, scope=Scope.REGION)
        where, creates = f"{place[1]} {method} {path}", (method, path) == ("POST", "/servers")
        connection = self._connection(url, grant.token)
        try:
            answer = connection.request(path, params=params, data=body, headers=_JSON, method=method)
        except requests.RequestException as exc:
            raise lost(exc, where, creates=creates) from exc
        return read(answer, where, _WORDS, creates=creates)

    def _connection(self, url: str, token: str) -> Any:
        known = self._connections.get(url + token)
        if known is None:
            make: Any = _Connection
            known = self._connections[url + token] = make(
                self._account.user,
                "",
                timeout=self._account.timeout_s,
                ex_force_base_url=url,
                ex_force_auth_token=token,
                ex_force_auth_url=self._account.auth_url,
                ex_force_auth_version="3.x_password",
                ex_tenant_name=self._account.project_id,
            )
        return known


# Pure from here on, but for the connections that libcloud makes.

_JSON: Final = {"Content-Type": "application/json"}


class _Answer(OpenStack_1_1_Response):
    """As it came, whatever the status."""

    def success(self) -> bool:
        return True

    def parse_body(self) -> str:
        return str(self.body or "")


class _IdentityAnswer(OpenStackAuthResponse):
    def success(self) -> bool:
        return True

    def parse_body(self) -> str:
        return str(self.body or "")


class _Connection(OpenStack_2_Connection):
    responseCls = _Answer

    def request(self, *args: Any, **more: Any) -> Any:
        """Once: libcloud's own sends again where its variable says so, which makes twins here."""
        connection: Any = ConnectionUserAndKey
        return connection.request(self, *args, retry_failed=False, **more)


class _Identity(OpenStackIdentity_3_0_Connection):
    responseCls = _IdentityAnswer


def _sign_in(account: Account) -> Grant:
    where = f"sign-in of {account.user}"
    make: Any = _Identity
    connection = make(
        auth_url=account.auth_url,
        user_id=account.user,
        key=account.password,
        tenant_name=account.project_id,
        domain_name=account.user_domain,
        timeout=account.timeout_s,
    )
    wanted = connection._get_auth_data()
    wanted["auth"]["scope"] = {"project": {"id": account.project_id}}  # libcloud knows projects by name only
    try:
        answer = connection.request("/v3/auth/tokens", data=json.dumps(wanted), method="POST", retry_failed=False)
        token = read(answer, where, _WORDS, creates=False).inside("token")
    except requests.RequestException as exc:
        raise lost(exc, where, creates=False) from exc
    finally:
        if connection.connection is not None:
            connection.connection.session.close()
    subject = answer.headers.get("x-subject-token", "")
    if not subject:
        raise ProviderError(Fault.TRANSIENT, f"{where}: the answer bears no token")
    return Grant(subject, token.inside("project").text("id"), dict(_endpoints(token)))


def _endpoints(token: Fields) -> Iterator[tuple[tuple[str, str], str]]:
    for service in token.items("catalog"):
        kind = service.text("type")
        for endpoint in service.items("endpoints") if kind in _SERVICES else ():
            if endpoint.text("interface") == "public":
                yield (kind, endpoint.text("region")), endpoint.text("url").rstrip("/")


def words_of(body: Any, text: str) -> tuple[str, str]:
    """`{"forbidden": {"code": 403, "message": "…"}}`: one object, whose name is the code. Neutron says `type`."""
    if isinstance(body, Mapping) and len(body) == 1:
        ((code, error),) = body.items()
        if isinstance(error, Mapping):
            return str(error.get("type") or error.get("title") or code), str(error.get("message", ""))
        return str(code), str(error)
    return "", text[:300]


# fmt: off
FAULTS: Final[Sequence[Row]] = (
    Row(None, r"No valid host|not enough hosts available",          Fault.NO_CAPACITY,  Scope.OFFER,   True),
    Row((400, 413), r"quota exceeded|OverQuota|exceeded for (cores|ram|instances)|maximum number of (ports|security)",
                                                                    Fault.QUOTA,        Scope.REGION,  True),
    Row((413, 429), r"overLimit|rate limit|too many requests",      Fault.RATE_LIMITED, Scope.ACCOUNT, True),
    Row(400,  r"Flavor .*(could not be found|not found|disabled)",  Fault.NO_CAPACITY,  Scope.OFFER),
    Row(409,  r"task_state deleting|is being deleted",              Fault.TRANSIENT,    Scope.OFFER),
    Row(409,  r"Failed to delete allocations",                      Fault.TRANSIENT,    Scope.PROVIDER),
    Row(400,  r"marker .*not (be )?found",                          Fault.CONFLICT,     Scope.REGION),
)
# fmt: on
_WORDS: Final = Words(words_of, FAULTS)
