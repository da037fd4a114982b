"""A base for plugins over a blocking client (libcloud, a vendor's SDK): one client for each call, in a thread.

Such clients are seldom safe between threads, and none can be cancelled: a call that takes too long is given up, its
thread ends when the client does. Give the client a time-out of its own, and switch its retries off for creates.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Final, Generic, TypeVar

from shunter_providers.contract import (
    Capabilities,
    Fault,
    Identity,
    Intent,
    NodeView,
    Offer,
    OfferQuery,
    ProviderError,
)

Client = TypeVar("Client")
_T = TypeVar("_T")

_AT_ONCE: Final = 8


class SyncProvider(ABC, Generic[Client]):
    """Subclasses give `connect`, `translate` and the six verbs with a client in hand."""

    capabilities: ClassVar[Capabilities]
    call_within_s: ClassVar[float] = 25.0

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=type(self).__name__)

    @abstractmethod
    def connect(self) -> Client:
        """A client for one call; may block."""

    @abstractmethod
    def translate(self, error: Exception, *, creates: bool) -> ProviderError:
        """The contract's words for what the client raised; `creates`: a node may have been made."""

    @abstractmethod
    def ask_identity(self, client: Client) -> Identity:
        """`whoami`, blocking."""

    @abstractmethod
    def ask_offers(self, client: Client, query: OfferQuery) -> Sequence[Offer]:
        """`offers`, blocking."""

    @abstractmethod
    def make(self, client: Client, intent: Intent) -> str:
        """`create`, blocking."""

    @abstractmethod
    def look(self, client: Client, handle: str) -> NodeView:
        """`get`, blocking."""

    @abstractmethod
    def look_for_all(self, client: Client, deployment: str) -> Sequence[NodeView]:
        """`list_owned`, blocking."""

    @abstractmethod
    def end(self, client: Client, handle: str) -> bool:
        """`terminate`, blocking."""

    async def whoami(self) -> Identity:
        """See the contract."""
        return await self._in_thread(self.ask_identity)

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """See the contract."""
        return await self._in_thread(lambda client: self.ask_offers(client, query))

    async def create(self, intent: Intent) -> str:
        """See the contract."""
        within_s = max(self.call_within_s, self.capabilities.create_timeout_s - 5)
        return await self._in_thread(lambda client: self.make(client, intent), creates=True, within_s=within_s)

    async def get(self, handle: str) -> NodeView:
        """See the contract."""
        return await self._in_thread(lambda client: self.look(client, handle))

    async def list_owned(self, deployment: str) -> Sequence[NodeView]:
        """See the contract."""
        return await self._in_thread(lambda client: self.look_for_all(client, deployment))

    async def terminate(self, handle: str) -> bool:
        """See the contract."""
        return await self._in_thread(lambda client: self.end(client, handle))

    async def close(self) -> None:
        """Take no more calls; those under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(
        self, work: Callable[[Client], _T], *, creates: bool = False, within_s: float | None = None
    ) -> _T:
        within_s = within_s or self.call_within_s

        def run() -> _T:
            try:
                client = self.connect()
            except Exception as exc:  # nothing was asked for yet
                raise self._in_our_words(exc, creates=False) from exc
            try:
                return work(client)
            except Exception as exc:
                raise self._in_our_words(exc, creates=creates) from exc

        future = asyncio.get_running_loop().run_in_executor(self._threads, run)
        try:
            return await asyncio.wait_for(future, within_s)
        except TimeoutError as exc:
            detail = f"no answer within {within_s:.0f} s"
            raise ProviderError(
                Fault.AMBIGUOUS if creates else Fault.TRANSIENT, detail, may_have_created=creates
            ) from exc

    def _in_our_words(self, error: Exception, *, creates: bool) -> ProviderError:
        return error if isinstance(error, ProviderError) else self.translate(error, creates=creates)
