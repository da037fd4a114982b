"""Configured instances: `[providers.NAME] plugin = "…"` as the contract's `Instance`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from shunter_providers.contract import Instance, Pacer


class Configured(Protocol):
    """What a settings file says of one instance."""

    @property
    def plugin(self) -> str:
        """Name of the entry point."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """The plugin's own settings, unchecked."""
        ...


def make_instances(
    configured: Mapping[str, Configured],
    data_dir: Path,
    *,
    environment: Mapping[str, str] | None = None,
    pacer: Pacer | None = None,
    deployment: str = "",
) -> dict[str, Instance]:
    """The instances by name. All share the data folder: what a plugin leaves there bears the instance's name.

    Args:
        environment: the process's variables, in which credentials may stand.
        pacer: shares the calls of an account with other processes.
    """
    return {
        name: Instance(
            name,
            entry.plugin,
            dict(entry.settings),
            str(data_dir.absolute()),
            dict(environment or {}),
            pacer,
            deployment,
        )
        for name, entry in configured.items()
    }
