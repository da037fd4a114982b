"""When a request is sent again, and how long a service that is away is waited for. No I/O.

A request is sent again when the connection failed or the answer was 429, 502, 503 or 504, and only if that cannot do
the thing twice: GET, HEAD, PUT and DELETE by their nature, POST because each carries an `Idempotency-Key` that stays
the same across its tries.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import httpx

from shunter.errors import ApiError, ShunterError, Unreachable, api_error

_RETRIED = frozenset({429, 502, 503, 504})
_LONGEST_PAUSE_S = 20.0
_WORTH_TELLING_S = 2.0
"""A service that is away for less is not news, nor is a shorter pause."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and after which pauses a request is tried again; each pause is drawn evenly from [0, bound].

    `sleep` is how a blocking client pauses; an `AsyncClient` has its own way. `tell` is called before a pause of 2 s or
    more, with what failed and the pause.
    """

    tries: int = 4
    first_pause_s: float = 0.25
    longest_pause_s: float = 4.0
    sleep: Callable[[float], None] = time.sleep
    tell: Callable[[ShunterError, float], None] | None = None

    def pause_s(self, failures: int) -> float:
        """The pause after this many failures in a row (1 or more)."""
        bound = min(self.longest_pause_s, self.first_pause_s * 2 ** min(failures - 1, 16))
        return random.uniform(0, bound)


@dataclass(frozen=True, slots=True)
class Outage:
    """A service that does not answer, and since when."""

    since: datetime
    error: ShunterError

    @property
    def lasted_s(self) -> float:
        """Seconds until now."""
        return (datetime.now(UTC) - self.since).total_seconds()


Away = Callable[[Outage | None], None]
"""Called while the service does not answer, again at each failed try; with None when it is back."""


class Tries:
    """The tries of one request: what each failure means, and the pause before the next try."""

    def __init__(self, url: str, retries: Retries, limit: int | None = None) -> None:
        self._url = url
        self._retries = retries
        self._limit = retries.tries if limit is None else limit
        self._failures = 0

    def broke(self, cause: httpx.RequestError) -> float:
        """The pause after a connection that failed; raises `Unreachable` after the last try."""
        error = unreachable(self._url, cause)
        error.__cause__ = cause
        return self._failed(error, 0.0)

    def refused(self, response: httpx.Response) -> float:
        """The pause after an answer that is an error; raises it where another try would be the same."""
        error = problem(response)
        if error.status not in _RETRIED:
            raise error
        return self._failed(error, min(error.retry_after_s or 0.0, _LONGEST_PAUSE_S))

    def _failed(self, error: ApiError | Unreachable, asked_s: float) -> float:
        self._failures += 1
        if self._failures >= self._limit:
            raise error
        pause_s = max(asked_s, self._retries.pause_s(self._failures))
        if self._retries.tell is not None and pause_s >= _WORTH_TELLING_S:
            self._retries.tell(error, pause_s)
        return pause_s


class Patience:
    """Bears a service that is away: how long to pause between tries, when to tell, and when to give up."""

    def __init__(self, retries: Retries, limit_s: float, away: Away | None = None) -> None:
        self._retries = retries
        self._limit_s = limit_s
        self._away = away
        self._told = False
        self.failures = 0
        self._alive_at_s = time.monotonic()

    def reset(self) -> None:
        """The service gave a sign of life."""
        self.failures = 0
        self._alive_at_s = time.monotonic()
        if self._told and self._away:
            self._told = False
            self._away(None)

    def bear(self, error: ShunterError) -> float:
        """The pause before the next try; raises `error` when it will not pass by itself or has lasted too long."""
        lasted_s = time.monotonic() - self._alive_at_s
        if not passes(error) or lasted_s >= self._limit_s:
            raise error
        if self._away and lasted_s >= _WORTH_TELLING_S:
            self._told = True
            self._away(Outage(datetime.now(UTC) - timedelta(seconds=lasted_s), error))
        pause_s = self.pause_s()
        # The next try is no later than when it is worth telling: it would tell late, or not at all.
        return pause_s if self._told or not self._away else min(pause_s, max(0.01, _WORTH_TELLING_S - lasted_s))

    def pause_s(self) -> float:
        """A little, longer each time until the next `reset`."""
        self.failures += 1
        return self._retries.pause_s(self.failures)


def passes(error: ShunterError) -> bool:
    """Whether this may be different at the next try: the service was away or had too much to do."""
    return isinstance(error, Unreachable) or (isinstance(error, ApiError) and error.status in _RETRIED)


def unreachable(url: str, cause: httpx.RequestError) -> Unreachable:
    """The error for a connection that failed."""
    words = str(cause) or type(cause).__name__
    return Unreachable(
        f"the service at {url} does not answer: {words}", hint="is it up? `shunter up` starts one; --url names another"
    )


def problem(response: httpx.Response) -> ApiError:
    """The error for an answer with an error status; its body has been read."""
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
