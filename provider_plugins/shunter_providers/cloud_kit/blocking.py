"""What plugins over libcloud's connections do alike: read an answer, name what was lost, say when to ask again, share a
token, and keep an account's pace from the threads of its calls."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import requests
from urllib3.exceptions import NewConnectionError

from shunter_providers.cloud_kit.faults import Refused, Row, classify, retry_after_s
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.contract import Fault, Instance, ProviderError, Rate, Scope
from shunter_providers.pacing import OwnPacer, bucket_of

_T = TypeVar("_T")
_Account = TypeVar("_Account")

_TRIES: Final = 3
_WAITS_AT_MOST_S: Final = 5.0
_RENEW_BEFORE_S: Final = 120.0


class Pace(Protocol):
    """How an account's calls are spaced; asked from the thread of a call."""

    def take_turn(self, creates: bool) -> None:
        """Wait until a call may be made; `creates`: it makes a node."""
        ...

    def hold_off(self, for_s: float) -> None:
        """The vendor said to wait."""
        ...


class PaceOfLoop:
    """The pacer of an instance, which lives in a loop, for the threads of its calls. Set `loop` before each."""

    def __init__(self, instance: Instance, credential: str, rates: Sequence[Rate]) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._pacer = instance.pacer or OwnPacer()
        self._rates = [(bucket_of(instance, credential, rate), rate) for rate in rates]

    def take_turn(self, creates: bool) -> None:
        """See `Pace`."""
        for bucket, rate in self._rates:
            if rate.kind == "create" and not creates:
                continue
            wait_s = self._in_loop(self._pacer.take_turn(bucket, rate, _WAITS_AT_MOST_S))
            if wait_s > _WAITS_AT_MOST_S:
                detail = f"not asked: the account may make {rate.calls} calls in {rate.per_s:g} s ({rate.kind})"
                raise ProviderError(Fault.RATE_LIMITED, detail, scope=Scope.ACCOUNT, retry_after_s=wait_s)
            time.sleep(wait_s)

    def hold_off(self, for_s: float) -> None:
        """See `Pace`."""
        for bucket, rate in self._rates:
            self._in_loop(self._pacer.hold_off(bucket, rate, for_s))

    def _in_loop(self, call: Coroutine[Any, Any, _T]) -> _T:
        assert self.loop is not None, "calls come through the loop"
        return asyncio.run_coroutine_threadsafe(call, self.loop).result(2 * _WAITS_AT_MOST_S)


class Tokens(Generic[_Account]):
    """The access token of an account, for all of its threads."""

    def __init__(self, sign_in: Callable[[_Account], Fields]) -> None:
        """`sign_in`: answers with `access_token` and `expires_in` (seconds), or raises `AUTH`."""
        self._sign_in = sign_in
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at = 0.0

    def current(self, account: _Account) -> str:
        """A token that is good for a while yet; asks for one where there is none.

        Raises:
            ProviderError: `AUTH`: the account's credentials are not taken.
        """
        with self._lock:
            if time.monotonic() >= self._renew_at:
                answer = self._sign_in(account)
                self._token = answer.text("access_token")
                self._renew_at = time.monotonic() + max(0.0, answer.number("expires_in") - _RENEW_BEFORE_S)
            return self._token

    def signed(self, account: _Account, ask: Callable[[str], _T]) -> _T:
        """What `ask` answers with the token: once, and a second time where it was refused, with which nothing was done.

        Raises:
            ProviderError: what `ask` raised, or `AUTH`.
        """
        token = self.current(account)
        try:
            return ask(token)
        except ProviderError as exc:
            if exc.fault is not Fault.AUTH:
                raise
            self.forget(token)
            if not exc.detail.startswith("401"):
                raise
        return ask(self.current(account))

    def forget(self, token: str) -> None:
        """That one was refused."""
        with self._lock:
            if token == self._token:
                self._renew_at = 0.0


class Words(NamedTuple):
    """How a vendor says no."""

    of: Callable[[Any, str], tuple[str, str]]
    """Code and message of an error's body, given as JSON (None: it is none) and as text."""
    faults: Sequence[Row]


def read(answer: Any, where: str, words: Words, *, creates: bool) -> Fields:
    """The JSON object of an answer of libcloud whose `object` is the text as it came; none is an empty one.

    Raises:
        ProviderError: classified by the vendor's table; what is no JSON may have made a node where it `creates`.
    """
    text = answer.object
    try:
        body = json.loads(text) if text else {}
    except ValueError:
        body = None
    if not 200 <= answer.status < 300:
        code, message = words.of(body, text)
        after_s = retry_after_s(answer.headers.get("retry-after"))
        raise classify(Refused(answer.status, code, message, after_s), words.faults, creates=creates)
    if body is None:
        raise ProviderError(
            Fault.AMBIGUOUS if creates else Fault.TRANSIENT,
            f"{where}: the answer is no JSON: {text[:80]!r}",
            may_have_created=creates,
        )
    return Fields(body, where, creates=creates)


def lost(error: requests.RequestException, where: str, *, creates: bool) -> ProviderError:
    """What it means that there is no answer: with a create that was sent, that a node may have been made."""
    sent = creates and _may_have_been_sent(error)
    return ProviderError(
        Fault.AMBIGUOUS if sent else Fault.TRANSIENT, f"{where}: {type(error).__name__}: {error}", may_have_created=sent
    )


def again_in_s(error: ProviderError, attempt: int) -> float | None:
    """When to try a reading call again; None: not at all."""
    if attempt >= _TRIES or error.fault not in (Fault.TRANSIENT, Fault.RATE_LIMITED):
        return None
    if error.retry_after_s is not None:
        return error.retry_after_s if error.retry_after_s <= _WAITS_AT_MOST_S else None
    return random.uniform(0.5, 1.0) * 0.2 * 2.0**attempt


def _may_have_been_sent(error: requests.RequestException) -> bool:
    if isinstance(error, requests.exceptions.ConnectTimeout | requests.exceptions.ProxyError):
        return False
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    return not isinstance(reason, NewConnectionError)
