"""One HTTP request to the service, with retries where they are safe, and its errors in our words.

A request is repeated when the connection failed or the answer was 429, 502, 503 or 504, and only if repeating cannot
do the thing twice: GET, HEAD, PUT and DELETE by their nature, POST because each carries an `Idempotency-Key` that
stays the same across its tries.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from shunter.connection import Connection
from shunter.errors import ApiError, ShunterError, Unreachable, api_error

_RETRIED = frozenset({429, 502, 503, 504})
_LONGEST_PAUSE_S = 20.0
CONNECT_TIMEOUT_S = 5.0

Body = bytes | Callable[[], Iterable[bytes]]
"""A body that can be sent again: bytes, or a function that opens the stream anew for each try."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and after which pauses a request is tried again; each pause is drawn evenly from [0, bound]."""

    tries: int = 4
    first_pause_s: float = 0.25
    longest_pause_s: float = 4.0
    sleep: Callable[[float], None] = time.sleep

    def pause_s(self, failures: int) -> float:
        """The pause after this many failures in a row (1 or more)."""
        bound = min(self.longest_pause_s, self.first_pause_s * 2 ** min(failures - 1, 16))
        return random.uniform(0, bound)


def passes(error: ShunterError) -> bool:
    """Whether this may be different at the next try: the service was away or had too much to do."""
    return isinstance(error, Unreachable) or (isinstance(error, ApiError) and error.status in _RETRIED)


class Transport:
    """Requests to one service. Closing it closes its connections; threads may share it."""

    def __init__(
        self,
        connection: Connection,
        *,
        timeout_s: float = 30.0,
        retries: Retries | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.connection = connection
        self.retries = retries or Retries()
        self.timeout_s = timeout_s
        self._http = httpx.Client(
            base_url=connection.url,
            headers={"Authorization": f"Bearer {connection.api_key}", "User-Agent": "shunter-python"},
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
            transport=transport,
            trust_env=not connection.is_loopback,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(
        self, path: str, *, params: Mapping[str, Any] | None = None, wait_s: float = 0.0, accept: str | None = None
    ) -> httpx.Response:
        """GET. `wait_s`: how long the service may hold the answer back (a long poll), on top of the usual time-out."""
        headers = {"Accept": accept} if accept else {}
        return self._retried(
            lambda: self._http.request(
                "GET", path, params=_given(params), headers=headers, timeout=self._timeout(self.timeout_s + wait_s)
            )
        )

    def exists(self, path: str) -> bool:
        """Whether GET of this path would answer with something: by HEAD, 404 is no."""
        try:
            self._retried(lambda: self._http.request("HEAD", path))
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def post(
        self,
        path: str,
        *,
        content: Body = b"",
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> httpx.Response:
        """POST, with one `Idempotency-Key` over all tries (made here unless given)."""
        sent = {
            "Content-Type": content_type,
            "Idempotency-Key": idempotency_key or str(uuid.uuid4()),
            **(headers or {}),
        }
        return self._retried(
            lambda: self._http.request(
                "POST", path, content=content if isinstance(content, bytes) else content(), headers=sent
            )
        )

    @contextmanager
    def stream(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        silence_s: float | None = None,
    ) -> Iterator[httpx.Response]:
        """GET one answer as it arrives, not retried. `silence_s`: longest wait between two pieces.

        Redirects (to a signed URL of an object store) are followed; the key is not sent along to another host.

        Raises:
            Unreachable: the connection failed, also in the middle of the answer.
        """
        timeout = self._timeout(silence_s or self.timeout_s)
        try:
            with self._http.stream(
                "GET", path, params=_given(params), headers=headers, timeout=timeout, follow_redirects=True
            ) as response:
                if response.is_error:
                    response.read()
                    raise _problem(response)
                yield response
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def _timeout(self, read_s: float) -> httpx.Timeout:
        return httpx.Timeout(read_s, connect=CONNECT_TIMEOUT_S, pool=self.timeout_s)

    def _retried(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        failures = 0
        while True:
            try:
                response = send()
                if not response.is_error:
                    return response
                error: ApiError | Unreachable = _problem(response)
                if response.status_code not in _RETRIED:
                    raise error
            except httpx.TransportError as cause:
                error = self._unreachable(cause)
                error.__cause__ = cause
            failures += 1
            if failures >= self.retries.tries:
                raise error
            self.retries.sleep(self._pause_s(error, failures))

    def _pause_s(self, error: ApiError | Unreachable, failures: int) -> float:
        asked = error.retry_after_s if isinstance(error, ApiError) else None
        return max(min(asked or 0.0, _LONGEST_PAUSE_S), self.retries.pause_s(failures))

    def _unreachable(self, cause: httpx.TransportError) -> Unreachable:
        words = str(cause) or type(cause).__name__
        return Unreachable(
            f"the service at {self.connection.url} does not answer: {words}",
            hint="is it up? `shunter up` starts one; --url names another",
        )


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _problem(response: httpx.Response) -> ApiError:
    try:
        body = response.json()
    except ValueError:
        body = {}
    after = response.headers.get("Retry-After", "")
    return api_error(
        response.status_code,
        body if isinstance(body, dict) else {},
        retry_after_s=float(after) if after.isdecimal() else None,
    )
