"""Holds a plugin to the contract: every call ends in time, and raises the contract's error or nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import ClassVar, Final, TypeVar

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
)

_T = TypeVar("_T")

CALL_WITHIN_S: Final = 30.0
"""Callers who cannot wait that long have limits of their own; this one keeps a call from lasting for ever."""

_log = logging.getLogger(__name__)


def bounded(name: str, provider: Provider, within_s: float = CALL_WITHIN_S) -> Provider:
    """The provider, but its calls cannot hang and its errors are the contract's."""

    class Held(_Bounded):
        capabilities: ClassVar[Capabilities] = provider.capabilities

    return Held(name, provider, within_s)


class _Bounded:
    capabilities: ClassVar[Capabilities]

    def __init__(self, name: str, provider: Provider, within_s: float) -> None:
        self._name = name
        self._provider = provider
        self._within_s = within_s

    async def whoami(self) -> Identity:
        """See the contract."""
        return await self._held("whoami", self._provider.whoami())

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """See the contract."""
        return await self._held("offers", self._provider.offers(query))

    async def create(self, intent: Intent) -> str:
        """See the contract; whatever goes wrong without a word from the plugin may have made a node."""
        within_s = max(self._within_s, self.capabilities.create_timeout_s)
        return await self._held("create", self._provider.create(intent), within_s)

    async def get(self, handle: str) -> NodeView:
        """See the contract."""
        return await self._held("get", self._provider.get(handle))

    async def list_owned(self, deployment: str) -> Sequence[NodeView]:
        """See the contract."""
        return await self._held("list_owned", self._provider.list_owned(deployment))

    async def terminate(self, handle: str) -> bool:
        """See the contract."""
        return await self._held("terminate", self._provider.terminate(handle))

    async def close(self) -> None:
        """See the contract."""
        await self._held("close", self._provider.close())

    async def _held(self, verb: str, call: Awaitable[_T], within_s: float | None = None) -> _T:
        within_s = within_s or self._within_s
        try:
            async with asyncio.timeout(within_s):
                return await call
        except ProviderError:
            raise
        except TimeoutError as exc:
            detail = f"{verb}: no answer within {within_s:.0f} s"
            raise ProviderError(Fault.AMBIGUOUS, detail, may_have_created=verb == "create") from exc
        except Exception as exc:  # foreign code: what it did is unknown, and it must not stop its caller
            _log.exception("provider %s broke its contract at %s", self._name, verb)
            detail = f"{verb}: {type(exc).__name__}: {exc}"
            raise ProviderError(Fault.AMBIGUOUS, detail, may_have_created=verb == "create") from exc
