"""Names of settings that nobody knows: a typing error in a setting is seen, never passed over.

An unknown key of `shunter.toml` is refused, since the file is ours alone. An unknown variable is told and no more:
orchestrators put variables of their own beside ours (a Kubernetes service named `shunter` makes `SHUNTER_PORT`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel
from shunter_providers.registry import installed_plugins
from shunter_schemas.nearest import did_you_mean, nearest

FILE: Final = "shunter.toml"
PREFIX: Final = "SHUNTER_"
WORKER_NAMES: Final = ("worker_children", "public_url", "price_tolerance", "log_level")
"""Settings of the worker alone, which the service passes by; a guard holds this to the worker's model."""
SERVICE_TABLE: Final = "service"
"""The table of `shunter.toml` and the part of variables' names that belong to the service alone."""
_OTHERS: Final = (
    *("SHUNTER_URL", "SHUNTER_API_KEY", "SHUNTER_TEST_", "SHUNTER_AGENT_", "SHUNTER_COMPLETE"),
    *("SHUNTER_JOB_ID", "SHUNTER_GENERATION", "SHUNTER_NODE", "SHUNTER_NUM_NODES", "SHUNTER_RANKS_PER_NODE"),
    *("SHUNTER_WORLD_SIZE", "SHUNTER_DOCUMENT", "SHUNTER_CHECKPOINT_DIR", "SHUNTER_INPUTS_DIR"),
    *("SHUNTER_METRICS_FILE", "SHUNTER_OUTPUT_DIR", "SHUNTER_RESUME_DIR"),
)
"""Beginnings of variables that are for clients, tests and programs on nodes."""


class UnknownSetting(ValueError):
    """A key that no setting has; the text names it and the nearest known one."""


def check_table(table: Mapping[str, Any], model: type[BaseModel], *, also: Iterable[str] = ()) -> None:
    """Refuse keys of a table of `shunter.toml` that the model of its settings does not have.

    Raises:
        UnknownSetting: with every such key.
    """
    if unknown := list(_unknown_keys(table, model, "", tuple(also))):
        raise UnknownSetting(f"{FILE}: {'; '.join(unknown)}")


def unknown_variables(environ: Mapping[str, str], model: type[BaseModel], *, prefix: str = PREFIX) -> list[str]:
    """Variables that begin like a setting of the model and are none, each as a sentence with the nearest known name."""
    known = {name.upper() for name in (*model.model_fields, *(WORKER_NAMES if prefix == PREFIX else ()))}
    return [
        f"{name} is no setting that is known, and does nothing{_nearest(_top(name, prefix), known, prefix)}"
        for name in sorted(environ)
        if name.upper().startswith(prefix) and _top(name, prefix) not in known and not _is_others(name.upper(), prefix)
    ]


def _unknown_keys(table: Mapping[str, Any], model: type[BaseModel], path: str, also: tuple[str, ...]) -> Iterator[str]:
    fields = model.model_fields
    for key, value in table.items():
        if key not in fields and key not in also:
            yield f"unknown setting `{path}{key}`{did_you_mean(key, [*fields, *also])}"
            continue
        annotation: Any = fields[key].annotation if key in fields else None
        inner = _model_in(annotation)
        if inner is None or not isinstance(value, dict):
            continue
        if annotation == inner:
            yield from _unknown_keys(value, inner, f"{path}{key}.", ())
        else:  # a mapping of names to models
            for name, item in value.items():
                if isinstance(item, dict):
                    yield from _unknown_keys(item, inner, f"{path}{key}.{name}.", ())


def _model_in(annotation: Any) -> type[BaseModel] | None:
    candidates = (annotation, *get_args(annotation))
    return next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)


def _top(name: str, prefix: str) -> str:
    """The part of a variable's name that names the setting itself, without members of it."""
    return name.upper().removeprefix(prefix).partition("__")[0]


def _nearest(name: str, known: Iterable[str], prefix: str) -> str:
    guess = nearest(name, known)
    return f"; did you mean `{prefix}{guess}`?" if guess else ""


def _is_others(name: str, prefix: str) -> bool:
    """Credentials of provider instances stand in `SHUNTER_<NAME>_…`, and a name begins with its plugin's by custom."""
    if prefix != PREFIX:
        return False
    plugins = (f"{PREFIX}{plugin.upper().replace('-', '_')}_" for plugin in installed_plugins())
    return name.startswith((*_OTHERS, f"{PREFIX}{SERVICE_TABLE.upper()}_", *plugins))
