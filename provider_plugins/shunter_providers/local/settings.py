"""Settings of the `local` plugin."""

from __future__ import annotations

import os

from pydantic import BaseModel, ConfigDict, Field

from shunter_providers.contract import Instance
from shunter_providers.plugin_settings import read_plugin_settings


class LocalSettings(BaseModel):
    """How much of this machine jobs may use, and under which name it goes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpu_slots: int = Field(default_factory=lambda: max(2, os.cpu_count() or 1), ge=1, le=4096)
    """CPU ranks at once, over all jobs; the rest of the jobs wait."""
    use_gpus: bool = True
    """Whether GPUs that `nvidia-smi` shows are offered."""
    region: str = Field(default="local", min_length=1)
    jurisdiction: str = ""
    """`EU`, `EEA` or an ISO country code. Empty: unknown, so that jobs which demand one do not run here."""
    keep_folders_s: float = Field(default=86_400.0, ge=0)
    """How long the folder of a dead node stays for inspection."""


def read_settings(instance: Instance) -> LocalSettings:
    """The instance's settings.

    Raises:
        ProviderError: `INVALID`, naming each setting that is wrong.
    """
    return read_plugin_settings(instance, LocalSettings)
