"""Reads an instance's settings into a plugin's own model, with every wrong one named."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from shunter_providers.contract import Fault, Instance, ProviderError

_Settings = TypeVar("_Settings", bound=BaseModel)


def read_plugin_settings(instance: Instance, model: type[_Settings]) -> _Settings:
    """The settings, of a plugin that keeps state in the instance's data folder.

    Raises:
        ProviderError: `INVALID`, naming each setting that is wrong, or that there is no absolute data folder.
    """
    try:
        settings = model.model_validate(dict(instance.settings))
    except ValidationError as exc:
        faults = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
            for fault in exc.errors(include_input=False, include_url=False)
        )
        raise ProviderError(Fault.INVALID, f"providers.{instance.name}: {faults}") from exc
    if not instance.data_dir or not Path(instance.data_dir).is_absolute():
        raise ProviderError(Fault.INVALID, f"providers.{instance.name}: needs an absolute data folder")
    return settings
