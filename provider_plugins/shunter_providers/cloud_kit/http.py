"""One vendor's REST API: paced, retried only where that is safe, and with every failure in the contract's words.

A GET is tried again on passing faults. Nothing else is ever sent twice: after a create whose answer is lost, or that
ended with 5xx, a node may exist, and the error says so.
"""

from __future__ import annotations

import asyncio
import json as json_text
import random
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import httpx

from shunter_providers.cloud_kit.faults import Refused, Row, classify, retry_after_s
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.contract import Fault, Instance, Pacer, ProviderError, Rate, Scope
from shunter_providers.pacing import OwnPacer, bucket_of

_TRIES: Final = 3
_WITHIN_S: Final = 25.0
"""For all tries of a call, below the core's own limit."""
_WAITS_AT_MOST_S: Final = 5.0
"""For a turn; who would have to wait longer is told so instead."""
_LARGEST_REPLY_BYTES: Final = 64 << 20
_NOT_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.LocalProtocolError,
    httpx.ProxyError,
)


def words_of(body: Any, text: str) -> tuple[str, str]:
    """Code and message of an error body of unknown form; plugins with a known one give their own."""
    if isinstance(body, Mapping):
        error = body.get("error")
        inner = error if isinstance(error, Mapping) else body
        code = next((inner[name] for name in ("code", "id", "title", "reason") if isinstance(inner.get(name), str)), "")
        message = next((inner[name] for name in ("message", "detail", "error") if isinstance(inner.get(name), str)), "")
        return code, message or text[:300]
    return "", text[:300]


@dataclass(frozen=True, slots=True)
class Api:
    """What is peculiar to a vendor."""

    base_url: str
    faults: Sequence[Row] = ()
    pacing: Sequence[Rate] = ()
    words_of: Callable[[Any, str], tuple[str, str]] = words_of
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth: tuple[str, str] | httpx.Auth | None = field(default=None, repr=False)
    """User and password, or whatever signs a request, where a fixed bearer token is not enough."""
    certificates: Callable[[], ssl.SSLContext] | None = None
    """Makes what the server is checked by, with the first call. None: the authorities that everybody trusts."""
    proxy: str | None = None
    """None: as the environment says."""
    timeout_s: float = 20.0
    """For one answer."""


class CloudHttp:
    """Calls of one account. The connection is made with the first call, in the loop of that call."""

    def __init__(self, instance: Instance, api: Api, *, credential: str) -> None:
        """`credential` tells accounts apart where their calls are paced; it is never shown."""
        self._api = api
        self._pacer: Pacer = instance.pacer or OwnPacer()
        self._rates = [(bucket_of(instance, credential, rate), rate) for rate in api.pacing]
        self._client: httpx.AsyncClient | None = None

    async def fields(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        form: Mapping[str, Any] | None = None,
        creates: bool = False,
    ) -> Fields:
        """The JSON object that the API answers (an empty one for an empty body).

        Args:
            creates: the call makes something that bills.

        Raises:
            ProviderError: classified by the vendor's table.
        """
        body = await self.ask(method, path, params=params, json=json, form=form, creates=creates)
        return Fields({} if body is None else body, f"{method} {path}", creates=creates)

    async def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        form: Mapping[str, Any] | None = None,
        creates: bool = False,
    ) -> Any:
        """As `fields`, but whatever JSON it is; None for an empty body."""
        give_up_at = time.monotonic() + _WITHIN_S
        attempt = 0
        while True:
            attempt += 1
            try:
                await self._take_turns(creates)
                request = self._http().build_request(method, path, params=params, json=json, data=form)
                return await self._exchange(request, creates)
            except ProviderError as exc:
                again_in_s = _again_in_s(exc, attempt) if method == "GET" else None
                if again_in_s is None or time.monotonic() + again_in_s > give_up_at:
                    raise
                await asyncio.sleep(again_in_s)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            api = self._api
            headers = {"User-Agent": "shunter", "Accept": "application/json", **api.headers}
            self._client = httpx.AsyncClient(
                base_url=api.base_url,
                headers=headers,
                auth=api.auth,
                verify=(api.certificates or _certificates)(),
                proxy=api.proxy,
                timeout=httpx.Timeout(api.timeout_s, connect=10.0),
            )
        return self._client

    async def _take_turns(self, creates: bool) -> None:
        for bucket, rate in self._rates:
            if rate.kind == "create" and not creates:
                continue
            wait_s = await self._pacer.take_turn(bucket, rate, _WAITS_AT_MOST_S)
            if wait_s > _WAITS_AT_MOST_S:
                detail = f"not asked: the account may make {rate.calls} calls in {rate.per_s:g} s ({rate.kind})"
                raise ProviderError(Fault.RATE_LIMITED, detail, scope=Scope.ACCOUNT, retry_after_s=wait_s)
            await asyncio.sleep(wait_s)

    async def _exchange(self, request: httpx.Request, creates: bool) -> Any:
        where = f"{request.method} {request.url.path}"
        try:
            response = await self._http().send(request, stream=True)
            try:
                text = await _read(response, where, creates)
            finally:
                await response.aclose()
        except httpx.HTTPError as exc:
            sent = not isinstance(exc, _NOT_SENT)
            raise ProviderError(
                Fault.AMBIGUOUS if sent and creates else Fault.TRANSIENT,
                f"{where}: {type(exc).__name__}: {exc}".rstrip(": "),
                may_have_created=sent and creates,
            ) from exc
        if response.is_success:
            return _parsed(text, where, creates)
        raise await self._refusal(response, text, creates)

    async def _refusal(self, response: httpx.Response, text: str, creates: bool) -> ProviderError:
        code, message = self._api.words_of(_json_or_none(text), text)
        if response.is_redirect:
            message = f"it redirects to {response.headers.get('Location', 'nowhere')[:200]}: check base_url"
        after_s = retry_after_s(response.headers.get("Retry-After"))
        refused = Refused(response.status_code, code, message, after_s)
        error = classify(refused, self._api.faults, creates=creates)
        if error.fault is Fault.RATE_LIMITED and after_s:
            for bucket, rate in self._rates:
                if rate.kind == "any" or creates:
                    await self._pacer.hold_off(bucket, rate, after_s)
        return error


@cache
def _certificates() -> ssl.SSLContext:
    """The trusted ones, read once: that takes tens of milliseconds."""
    return httpx.create_ssl_context()


async def _read(response: httpx.Response, where: str, creates: bool) -> str:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > _LARGEST_REPLY_BYTES:
            raise _junk(f"{where}: the answer has more than {_LARGEST_REPLY_BYTES >> 20} MiB", creates)
    return body.decode("utf-8", errors="replace")


def _parsed(text: str, where: str, creates: bool) -> Any:
    if not text.strip():
        return None
    try:
        return json_text.loads(text)
    except ValueError:
        raise _junk(f"{where}: the answer is no JSON: {text[:80]!r}", creates) from None


def _json_or_none(text: str) -> Any:
    try:
        return json_text.loads(text)
    except ValueError:
        return None


def _junk(detail: str, creates: bool) -> ProviderError:
    return ProviderError(Fault.AMBIGUOUS if creates else Fault.TRANSIENT, detail, may_have_created=creates)


def _again_in_s(error: ProviderError, attempt: int) -> float | None:
    """When to try a call again that changes nothing; None: not at all."""
    if attempt >= _TRIES or error.fault not in (Fault.TRANSIENT, Fault.RATE_LIMITED):
        return None
    if error.retry_after_s is not None:
        return error.retry_after_s if error.retry_after_s <= _WAITS_AT_MOST_S else None
    return random.uniform(0.5, 1.0) * 0.2 * 2.0**attempt
