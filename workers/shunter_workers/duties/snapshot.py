"""Writes down how each provider instance does and what it offers: what the API shows, since it knows no provider."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from shunter_providers.advice import with_advice
from shunter_providers.contract import Fault, OfferQuery, ProviderError
from shunter_providers.registry import Registry
from shunter_store.accounts import providers
from shunter_store.sql.database import Database
from sqlalchemy import Connection

EVERY_S: Final = 30.0
ASK_WITHIN_S: Final = 25.0


class Snapshot:
    """Asks every instance."""

    def __init__(self, database: Database, registry: Registry) -> None:
        self._database = database
        self._registry = registry

    async def work(self) -> float:
        """One round."""
        await asyncio.gather(*(self._record(instance) for instance in self._registry.names))
        return EVERY_S

    async def _record(self, instance: str) -> None:
        plugin = self._registry.plugin_of(instance)
        found: dict[str, Any] = {}
        try:
            await self._ask(instance, found)
            ok, detail = True, ""
        except ProviderError as exc:
            ok, detail = False, with_advice(exc)

        def write(conn: Connection) -> None:
            providers.record_health(conn, instance, plugin, ok, detail, **found)

        await self._database.awrite(write)

    async def _ask(self, instance: str, found: dict[str, Any]) -> None:
        """Fill in what can be found out, as far as it goes."""
        provider = self._registry.get(instance)
        found["capabilities"] = asdict(provider.capabilities)
        try:
            async with asyncio.timeout(ASK_WITHIN_S):
                who = await provider.whoami()
                found |= {"account": who.account, "limits": as_json(who.limits)}
                found["offers"] = [asdict(offer) for offer in await provider.offers(OfferQuery())]
        except TimeoutError as exc:
            raise ProviderError(Fault.TRANSIENT, f"no answer within {ASK_WITHIN_S:.0f} s") from exc


def as_json(told: Any) -> Any:
    """What a plugin tells of its account, as JSON has it: a number that is none is null, anything strange is text."""
    if isinstance(told, Mapping):
        return {str(name): as_json(value) for name, value in told.items()}
    if isinstance(told, list | tuple):
        return [as_json(value) for value in told]
    if isinstance(told, float) and not math.isfinite(told):
        return None
    return told if isinstance(told, str | int | float) or told is None else str(told)
