"""Settings of the HTTP service, read once when the process starts and passed down."""

from __future__ import annotations

import os
from typing import Any, Final

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from shunter_store.installation.setting_names import FILE, SERVICE_TABLE, UnknownSetting, check_table, unknown_variables
from shunter_store.installation.settings import DataSettings, in_words, settings_file

from shunter_service.accepting.bundle_check import BundleLimits

_PREFIX: Final = "SHUNTER_SERVICE_"


class ServiceSettings(BaseSettings):
    """What only this role needs; `DataSettings` of the store holds what it shares with the workers.

    Environment `SHUNTER_SERVICE_…`, then the table `[service]` of `shunter.toml`.
    """

    model_config = SettingsConfigDict(frozen=True, env_prefix=_PREFIX, env_nested_delimiter="__")

    max_document_bytes: int = Field(default=1 << 20, gt=0)
    """A larger job document is refused before it is read."""
    max_sync_bytes: int = Field(default=8 << 20, gt=0)
    """A larger sync of a node is refused; an agent sends about 1 MiB at once."""
    max_bundle_bytes: int = Field(default=1 << 30, gt=0)
    """A larger source archive is refused while it arrives."""
    bundle_limits: BundleLimits = BundleLimits()
    """What a source archive may hold."""
    tail_every_s: float = Field(default=0.25, gt=0)
    """How often watched jobs are looked at: the delay of streams and long polls."""
    keep_alive_s: float = Field(default=15.0, gt=0)
    """A stream without news sends a comment this often, so that proxies and dropped clients are noticed."""
    stalled_s: float = Field(default=60.0, ge=1)
    """A connection whose client takes nothing for so long is cut: it is gone, or hangs."""
    key_cache_s: float = Field(default=10.0, ge=0)
    """A key that was taken back may be let in for this long."""
    grant_s: float = Field(default=3600.0, gt=0)
    """How long a signed object URL holds."""
    upload_threads: int = Field(default=16, gt=0)
    """Uploads and downloads that may move bytes at the same time in this process."""


class BadSettings(Exception):
    """The settings cannot be used; the text names each fault, and never a value, which may be secret."""


def load_settings() -> tuple[DataSettings, ServiceSettings]:
    """The settings of this process, from the environment and `shunter.toml`.

    Raises:
        BadSettings
    """
    try:
        data = DataSettings()
        return data, _service_settings(data)
    except ValueError as error:  # a value that a setting does not take, a key that nobody knows, or no TOML
        raise BadSettings(in_words(error)) from None


def unknown_settings() -> list[str]:
    """Variables of this process that look like settings and are none, each as a sentence."""
    return [
        *DataSettings.unknown_variables(os.environ),
        *unknown_variables(os.environ, ServiceSettings, prefix=_PREFIX),
    ]


def _service_settings(data: DataSettings) -> ServiceSettings:
    """The environment's, before those of the file."""
    table: dict[str, Any] = settings_file(data.data_dir).get(SERVICE_TABLE, {})
    if not isinstance(table, dict):
        raise UnknownSetting(f"{FILE}: `{SERVICE_TABLE}` is a table: [{SERVICE_TABLE}]")
    check_table(table, ServiceSettings)
    named = ServiceSettings().model_fields_set
    return ServiceSettings(**{name: value for name, value in table.items() if name not in named})
