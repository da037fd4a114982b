"""A base for plugins over libcloud's connections: each call has a client of its own, at the account's pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from shunter_providers.cloud_kit.blocking import PaceOfLoop
from shunter_providers.sync_provider import SyncProvider

_T = TypeVar("_T")


class Closable(Protocol):
    """A client that holds connections."""

    def close(self) -> None:
        """Close them."""
        ...


Client = TypeVar("Client", bound=Closable)


class PacedProvider(SyncProvider[Client]):
    """Subclasses set `_pace`, and give it to the clients that they make."""

    _pace: PaceOfLoop

    async def _in_thread(
        self, work: Callable[[Client], _T], *, creates: bool = False, within_s: float | None = None
    ) -> _T:
        self._pace.loop = asyncio.get_running_loop()

        def closing(client: Client) -> _T:
            try:
                return work(client)
            finally:
                client.close()

        return await super()._in_thread(closing, creates=creates, within_s=within_s)
