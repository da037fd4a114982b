"""The instances that this machine's settings configure; where no store is installed there are no settings either."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from shunter_providers.contract import Instance
from shunter_providers.instances import make_instances
from shunter_providers.registry import installed_plugins


class Configured(NamedTuple):
    """An instance, and why it makes no nodes at the moment (empty: it does)."""

    instance: Instance
    hold: str


def configured() -> dict[str, Configured]:
    """By name; nothing where the parts of a service are not installed.

    Raises:
        ValueError: the settings are wrong, each fault named.
    """
    if any(find_spec(package) is None for package in ("pydantic_settings", "sqlalchemy")):
        return {}
    from shunter_store.installation.settings import DataSettings

    settings = DataSettings()
    instances = make_instances(settings.providers, settings.data_dir, environment=os.environ)
    holds = {name: one.hold for name, one in settings.providers.items()}
    return {
        name: Configured(instance, hold.words if (hold := holds[name]) is not None else "")
        for name, instance in instances.items()
    }


def by_name(name: str) -> Instance | None:
    """The configured instance; else, for a plugin's name, the instance that its variables alone make."""
    found = configured().get(name)
    if found is not None:
        return found.instance
    if name not in installed_plugins():
        return None
    return Instance(name, name, {}, str(Path.home() / ".shunter"), dict(os.environ))
