"""Reads an instance's settings into a plugin's own model, with every wrong one named and no value shown.

A setting comes from `[providers.NAME.settings]` (or `SHUNTER_PROVIDERS__NAME__SETTINGS__…`), else from the variable
`SHUNTER_<NAME>_<SETTING>`, else, for the instance that bears its plugin's name, from the vendor's own variables:

    class AcmeSettings(CloudSettings):
        api_key: Annotated[SecretStr, Variables("ACME_API_KEY", "ACME_TOKEN")]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from shunter_providers.contract import Fault, Instance, ProviderError

_Settings = TypeVar("_Settings", bound=BaseModel)


class Variables:
    """The vendor's conventional variables of a setting, the first that is set wins. For `Annotated`."""

    def __init__(self, *names: str) -> None:
        self.names = names


def read_plugin_settings(instance: Instance, model: type[_Settings]) -> _Settings:
    """The settings, of a plugin that keeps state in the instance's data folder.

    Raises:
        ProviderError: `INVALID`, naming each setting that is wrong, or that there is no absolute data folder.
    """
    settings = read_settings(instance, model)
    if not instance.data_dir or not Path(instance.data_dir).is_absolute():
        raise ProviderError(Fault.INVALID, f"providers.{instance.name}: needs an absolute data folder")
    return settings


def read_settings(instance: Instance, model: type[_Settings]) -> _Settings:
    """The settings, of a plugin that keeps nothing on this machine.

    Raises:
        ProviderError: `INVALID`, naming each setting that is wrong, and where a missing one may stand.
    """
    values = {**_from_variables(instance, model), **instance.settings}
    try:
        return model.model_validate(values)
    except ValidationError as exc:
        faults = "; ".join(_sentence(instance, model, fault) for fault in exc.errors(include_url=False))
        raise ProviderError(Fault.INVALID, f"providers.{instance.name}: {faults}") from None


def variables_of(instance_name: str, plugin: str, setting: str, field: FieldInfo | None) -> list[str]:
    """The variables in which an instance's setting may stand, the first that is set wins."""
    names = [f"SHUNTER_{_upper(instance_name)}_{_upper(setting)}"]
    if instance_name == plugin and field is not None:
        names += [name for entry in field.metadata if isinstance(entry, Variables) for name in entry.names]
    return names


def _from_variables(instance: Instance, model: type[BaseModel]) -> dict[str, str]:
    found = {}
    for setting, field in model.model_fields.items():
        names = variables_of(instance.name, instance.plugin, setting, field)
        value = _first_set(instance.environment, names)
        if value is not None:
            found[setting] = value
    return found


def _first_set(environment: Mapping[str, str], names: list[str]) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)


def _sentence(instance: Instance, model: type[BaseModel], fault: Any) -> str:
    path = ".".join(str(part) for part in fault["loc"])
    if fault["type"] != "missing" or len(fault["loc"]) != 1:
        told = fault["msg"].removeprefix("Value error, ")
        return f"{path}: {told}" if path else told  # what several settings say together has no place
    names = variables_of(instance.name, instance.plugin, path, model.model_fields.get(path))
    return f"{path} is missing: set it in [providers.{instance.name}.settings], or the variable {' or '.join(names)}"


def _upper(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", name.upper())
