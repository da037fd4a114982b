"""Settings that the service and the workers share: where the data lies, and the pace of things."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from shunter_store.installation.setting_names import FILE, SERVICE_TABLE, WORKER_NAMES, check_table, unknown_variables


def default_data_dir() -> Path:
    """`$SHUNTER_DATA_DIR`, else `./.shunter` where that exists, else `~/.shunter`."""
    if named := os.environ.get("SHUNTER_DATA_DIR"):
        return Path(named).expanduser()
    here = Path(".shunter")
    return here.absolute() if here.is_dir() else Path.home() / ".shunter"


def settings_file(data_dir: Path) -> dict[str, Any]:
    """What `shunter.toml` in the data directory says; nothing where there is none.

    Raises:
        ValueError: it is no TOML.
    """
    path = data_dir.expanduser() / FILE
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{FILE}: {error}") from None


def in_words(error: ValueError) -> str:
    """What is wrong with the settings: each fault by the setting's name, and never a value, which may be secret."""
    if not isinstance(error, ValidationError):
        return str(error)
    faults = error.errors(include_input=False, include_url=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'settings'}: {fault['msg']}" for fault in faults)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Hold(NamedTuple):
    """Why an instance makes no nodes."""

    words: str
    of_everything: bool
    """False: only of nodes that bill."""


class ProviderSettings(_Frozen):
    """One configured instance of a provider plugin."""

    plugin: str = ""
    """Name of the entry point in the group `shunter.providers`. Empty: the instance's own name."""
    settings: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Checked by the plugin itself."""
    paused: bool = False
    """Takes no new nodes; those that it has are scanned and released as ever."""
    spend_frozen: bool = False
    """Takes no new nodes that bill; those that it has go on, and are scanned and released as ever."""

    @property
    def hold(self) -> Hold | None:
        """Why it makes no nodes; None: it does."""
        if self.paused:
            return Hold("the operator has paused it", of_everything=True)
        return Hold("the operator has frozen its spending", of_everything=False) if self.spend_frozen else None


class Pace(_Frozen):
    """How soon a node comes again. Shorter shows sooner what it does, and costs more exchanges."""

    changing_s: float = Field(default=0.2, gt=0)
    """While the job starts, stops or recovers."""
    watched_s: float = Field(default=1.0, gt=0)
    """While somebody looks at the job."""
    quiet_s: float = Field(default=5.0, gt=0)
    """Otherwise."""
    slowest_s: float = Field(default=10.0, gt=0, le=14.0)
    """While the service is busy it asks nodes to come less often, down to this. Of a cancel they hear at once all the
    same; one that cannot listen (an older agent, a proxy that cuts what waits) hears of it so late then."""


class Timing(_Frozen):
    """Leases and heartbeats."""

    step_lease_s: float = Field(default=30.0, gt=0)
    """A claim is another worker's after this; a step gives up 5 s earlier."""
    singleton_lease_s: float = Field(default=15.0, gt=0)
    """Relay, sweep, scanners and reaper move to another process after this."""
    unreachable_after_s: float = Field(default=60.0, gt=0)
    """A node that did not sync for so long makes its job `unreachable`: a condition, never a failure."""
    stop_grace_s: float = Field(default=30.0, gt=0, le=3600)
    """Ranks that are stopped get so long for a last checkpoint before they are killed."""
    watch_s: float = Field(default=30.0, gt=0)
    """A look at a job counts as watching for so long."""


class DataSettings(BaseSettings):
    """Everything that both roles must agree on. Environment `SHUNTER_…`, then `shunter.toml` in the data directory.

    Raises:
        UnknownSetting: the file holds a key that no setting has.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        env_prefix="SHUNTER_",
        env_nested_delimiter="__",
        extra="ignore",
        nested_model_default_partial_update=True,
    )

    data_dir: Path = Field(default_factory=default_data_dir)
    """Everything that is kept on this machine. Empty: `.shunter` here where it exists, else `~/.shunter`."""
    database_url: str = ""
    """SQLAlchemy URL of SQLite or PostgreSQL; empty: `shunter.db` in the data directory."""
    objects_url: str = ""
    """fsspec URL of the object store; empty: `objects/` in the data directory."""
    redis_url: str = ""
    """Broker; empty: the embedded server's socket in the data directory."""
    providers: dict[str, ProviderSettings] = Field(default_factory=lambda: {"local": ProviderSettings(plugin="local")})
    """Configured instances of provider plugins, by name."""
    reaping: Literal["end", "report"] = "end"
    """What becomes of nodes of this deployment that the ledger does not know: `end` them (after a restore only once
    an operator has confirmed), or `report` them and no more."""
    correct_predictions: bool = False
    """Whether plans are corrected by what past jobs measured: of each kind of GPU, strategy and model with at least
    three runs, within bounds, and named in the plan's notes."""
    pace: Pace = Pace()
    timing: Timing = Timing()

    @classmethod
    def unknown_variables(cls, environ: Mapping[str, str]) -> list[str]:
        """Variables that look like settings and are none, each as a sentence."""
        return unknown_variables(environ, cls)

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: dict[str, Any]) -> dict[str, Any]:
        data_dir = Path(values.get("data_dir") or default_data_dir()).expanduser().absolute()
        filled = {
            "database_url": f"sqlite:///{data_dir / 'shunter.db'}",
            "objects_url": f"file://{data_dir / 'objects'}",
            "redis_url": f"redis+socket://{data_dir / 'run' / 'redis.sock'}?virtual_host=0",
        }
        named = {"providers": _named(values["providers"])} if isinstance(values.get("providers"), dict) else {}
        return {**values, **named, "data_dir": data_dir, **{k: v for k, v in filled.items() if not values.get(k)}}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        table = settings_file(Path(init_settings().get("data_dir") or default_data_dir()))
        check_table(table, settings_cls, also=(*WORKER_NAMES, SERVICE_TABLE))
        return init_settings, env_settings, InitSettingsSource(settings_cls, table)


def _named(providers: Mapping[str, Any]) -> dict[str, Any]:
    """Instances with their plugin's name filled in. A variable's name holds no hyphen: what `SHUNTER_PROVIDERS__A_B__…`
    says is the instance `a-b` where the file has one of that name, and before what the file says of it."""
    found: dict[str, Any] = {name: value for name, value in providers.items() if not _is_variant(name, providers)}
    for name, value in providers.items():
        if _is_variant(name, providers):
            hyphened = name.replace("_", "-")
            found[hyphened] = _over(found[hyphened], value)
    return {
        name: {**value, "plugin": value.get("plugin") or name} if isinstance(value, dict) else value
        for name, value in found.items()
    }


def _is_variant(name: str, providers: Mapping[str, Any]) -> bool:
    return "_" in name and name.replace("_", "-") in providers


def _over(base: Any, more: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(more, dict)):
        return more
    return {**base, **{name: _over(base.get(name), value) for name, value in more.items()}}
