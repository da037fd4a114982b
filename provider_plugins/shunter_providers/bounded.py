"""Holds a plugin to the contract: every call ends in time, answers what it should, and raises the contract's error.

No text that leaves it, to a caller or to a log, holds a secret of the instance.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, ClassVar, Final, TypeVar

from shunter_providers.contract import (
    Capabilities,
    Fault,
    Identity,
    Intent,
    NodeView,
    Offer,
    OfferQuery,
    Provider,
    ProviderError,
    ShowsConsole,
)
from shunter_providers.junk import (
    check_handle,
    check_identity,
    check_text,
    check_verdict,
    check_view,
    check_views,
    sane_offers,
)
from shunter_providers.redaction import redact, redacted

_T = TypeVar("_T")

CALL_WITHIN_S: Final = 30.0
"""Callers who cannot wait that long have limits of their own; this one keeps a call from lasting for ever."""

MOST_OF_A_CONSOLE: Final = 64 << 10
"""Characters."""

_log = logging.getLogger(__name__)


def bounded(
    name: str, provider: Provider, within_s: float = CALL_WITHIN_S, *, secrets: Collection[str] = ()
) -> Provider:
    """The provider, but its calls cannot hang, its answers are of their kind and its errors are the contract's.

    Args:
        secrets: what no text may hold.
    """

    class Held(_Bounded):
        capabilities: ClassVar[Capabilities] = provider.capabilities

    return Held(name, provider, within_s, secrets)


class _Bounded:
    capabilities: ClassVar[Capabilities]

    def __init__(self, name: str, provider: Provider, within_s: float, secrets: Collection[str]) -> None:
        self._name = name
        self._provider = provider
        self._within_s = within_s
        self._secrets = secrets

    async def whoami(self) -> Identity:
        """See the contract."""
        return await self._held("whoami", self._provider.whoami, check_identity)

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """See the contract; an offer without a sane price is left out."""
        bills = self.capabilities.bills
        found = await self._held("offers", lambda: self._provider.offers(query), lambda got: sane_offers(got, bills))
        for fault in found.faults:
            _log.warning("provider %s: %s", self._name, redact(fault, self._secrets))
        return found.offers

    async def create(self, intent: Intent) -> str:
        """See the contract; whatever goes wrong without a word from the plugin may have made a node."""
        if unknown := sorted(set(intent.options) - set(self.capabilities.options)):
            places = ", ".join(f"placement.options.{self._name}.{option}" for option in unknown)
            raise ProviderError(Fault.INVALID, f"{places}: {self._takes()}")
        within_s = max(self._within_s, self.capabilities.create_timeout_s)
        return await self._held("create", lambda: self._provider.create(intent), check_handle, within_s)

    async def get(self, handle: str) -> NodeView:
        """See the contract."""
        return await self._held("get", lambda: self._provider.get(handle), check_view)

    async def list_owned(self, deployment: str) -> Sequence[NodeView]:
        """See the contract."""
        return await self._held("list_owned", lambda: self._provider.list_owned(deployment), check_views)

    async def terminate(self, handle: str) -> bool:
        """See the contract."""
        return await self._held("terminate", lambda: self._provider.terminate(handle), check_verdict)

    async def console(self, handle: str) -> str:
        """See the contract; empty where the plugin has none."""
        shows = self._provider
        if not self.capabilities.console or not isinstance(shows, ShowsConsole):
            return ""
        told = await self._held("console", lambda: shows.console(handle), check_text)
        return redact(told, self._secrets)[-MOST_OF_A_CONSOLE:]

    async def close(self) -> None:
        """See the contract."""
        await self._held("close", self._provider.close, lambda got: None)

    def _takes(self) -> str:
        options = self.capabilities.options
        return f"the plugin takes only {', '.join(options)}" if options else "the plugin takes no options"

    async def _held(
        self,
        verb: str,
        call: Callable[[], Awaitable[Any]],
        check: Callable[[Any], _T],
        within_s: float | None = None,
    ) -> _T:
        within_s = within_s or self._within_s
        try:
            async with asyncio.timeout(within_s):
                return check(await call())
        except ProviderError as exc:
            if redacted(exc, self._secrets) is exc:
                raise
            raise redacted(exc, self._secrets) from None
        except TimeoutError as exc:
            detail = f"{verb}: no answer within {within_s:.0f} s"
            raise ProviderError(Fault.AMBIGUOUS, detail, may_have_created=verb == "create") from exc
        except Exception as exc:  # foreign code: what it did is unknown, and it must not stop its caller
            trace = "".join(traceback.format_exception(exc))
            told = redact(trace, self._secrets)
            _log.error("provider %s broke its contract at %s\n%s", self._name, verb, told)
            detail = redact(f"{verb}: {type(exc).__name__}: {exc}", self._secrets)
            cause = exc if told == trace else None  # a chain of errors would show the secret again
            raise ProviderError(Fault.AMBIGUOUS, detail, may_have_created=verb == "create") from cause
