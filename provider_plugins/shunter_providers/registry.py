"""Finds plugins by entry point, loads one when it is first used, and makes one provider for each instance.

A plugin that cannot be loaded is reported by name with its cause; the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

from shunter_providers.bounded import bounded
from shunter_providers.contract import CONTRACT_VERSION, Fault, Instance, Provider, ProviderError
from shunter_providers.redaction import redact, redacted, secrets_of

GROUP = "shunter.providers"

_log = logging.getLogger(__name__)


class Registry:
    """The providers of one process. Not for several event loops: a provider may hold connections of its loop."""

    def __init__(
        self, instances: Mapping[str, Instance], find: Callable[[str], Callable[[Instance], Provider]] | None = None
    ) -> None:
        """`find` turns a plugin's name into its class; the default looks among the installed entry points."""
        self._instances = dict(instances)
        self._find = find or load_plugin
        self._made: dict[str, Provider | ProviderError] = {}

    @property
    def names(self) -> Sequence[str]:
        """The configured instances, in the order of the settings."""
        return tuple(self._instances)

    def plugin_of(self, name: str) -> str:
        """The plugin of an instance; empty when there is no such instance."""
        instance = self._instances.get(name)
        return instance.plugin if instance is not None else ""

    def get(self, name: str) -> Provider:
        """The instance's provider, made on first use.

        Raises:
            ProviderError: `INVALID`: no such instance, or its plugin or settings are no good; the cause is in `detail`.
        """
        if name not in self._made:
            self._made[name] = self._make(name)
        made = self._made[name]
        if isinstance(made, ProviderError):
            raise made.with_traceback(None)
        return made

    async def close(self) -> None:
        """Close every provider that was made."""
        made, self._made = self._made, {}
        for name, provider in made.items():
            if isinstance(provider, ProviderError):
                continue
            try:
                await provider.close()
            except ProviderError as exc:
                _log.warning("provider %s did not close: %s", name, exc)

    def _make(self, name: str) -> Provider | ProviderError:
        instance = self._instances.get(name)
        if instance is None:
            known = ", ".join(self._instances) or "none"
            return ProviderError(Fault.INVALID, f"there is no provider instance {name!r} (configured: {known})")
        secrets = secrets_of(instance)
        try:
            return bounded(name, self._find(instance.plugin)(instance), secrets=secrets)
        except ProviderError as exc:
            fault = redacted(exc, secrets)
        except Exception as exc:  # foreign code: whatever it raises must not stop the other instances
            detail = f"providers.{name}: {type(exc).__name__}: {redact(str(exc), secrets)}"
            fault = ProviderError(Fault.INVALID, detail)
        _log.error("provider instance %s cannot be used: %s", name, fault.detail)
        return fault


def installed_plugins() -> Sequence[str]:
    """The names of all plugins of this environment, whether they load or not."""
    return sorted(_installed())


def load_plugin(plugin: str) -> Callable[[Instance], Provider]:
    """The class behind the entry point `plugin`.

    Raises:
        ProviderError: `INVALID`: not installed, does not import, or speaks another version of the contract.
    """
    found = _installed()
    if plugin not in found:
        installed = ", ".join(sorted(found)) or "none"
        raise ProviderError(Fault.INVALID, f"there is no provider plugin {plugin!r} (installed: {installed})")
    try:
        loaded: Any = found[plugin].load()
        version = loaded.capabilities.contract_version
    except Exception as exc:  # foreign code, as above
        cause = f"{type(exc).__name__}: {exc}"
        raise ProviderError(Fault.INVALID, f"provider plugin {plugin!r} does not load: {cause}") from exc
    if version != CONTRACT_VERSION:
        raise ProviderError(
            Fault.INVALID, f"provider plugin {plugin!r} speaks contract {version}, this service {CONTRACT_VERSION}"
        )
    make: Callable[[Instance], Provider] = loaded
    return make


def _installed() -> dict[str, metadata.EntryPoint]:
    return {entry.name: entry for entry in metadata.entry_points(group=GROUP)}
