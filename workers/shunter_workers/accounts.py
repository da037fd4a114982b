"""Which account an instance's credentials belong to. A listing proves absence only for nodes of its own account."""

from __future__ import annotations

import time
from typing import Final

from shunter_providers.registry import Registry

GOOD_FOR_S: Final = 300.0


class Accounts:
    """Asks each instance now and then, and remembers."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[str, tuple[float, str]] = {}

    async def of(self, instance: str) -> str:
        """The account.

        Raises:
            ProviderError: the plugin does not load, or the credentials do not work.
        """
        known = self._known.get(instance)
        if known is None or time.monotonic() - known[0] > GOOD_FOR_S:
            identity = await self._registry.get(instance).whoami()
            known = self._known[instance] = (time.monotonic(), identity.account)
        return known[1]

    def known(self) -> dict[str, str]:
        """What is known without asking."""
        return {instance: account for instance, (_, account) in self._known.items()}
