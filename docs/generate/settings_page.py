"""The settings of the service and the workers, from their models."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from attribute_docs import attribute_docs
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from shunter_providers.local.settings import LocalSettings
from shunter_service.settings import ServiceSettings
from shunter_store.installation.settings import DataSettings, ProviderSettings
from shunter_workers.settings import WorkerSettings
from tables import table

_HEAD = """# Settings

Everything has a default; `shunter up` needs no setting at all. A setting comes from the environment, else from the file
`shunter.toml` in the data directory:

```toml
database_url = "postgresql://shunter@db/shunter"
worker_children = 4

[pace]
quiet_s = 10

[service]
max_bundle_bytes = 4294967296

[providers.local]
plugin = "local"

[providers.local.settings]
cpu_slots = 8
```

The variable of a setting is its name in capitals behind `SHUNTER_`, with `__` before a member: `SHUNTER_PACE__QUIET_S`.
Those of the service alone begin with `SHUNTER_SERVICE_`. Values that are tables may be given as JSON.

**A typing error is seen.** A key of the file that no setting has stops the start, with the nearest known name. A
variable of that kind is told when `shunter up` starts, and in the logs of the roles: it does not stop them, since
orchestrators put variables of their own beside these.
"""


class Group(NamedTuple):
    """Settings that belong together."""

    title: str
    says: str
    model: type[BaseModel]
    table: str
    """Where they stand in the file; empty: on top."""
    variable: str
    """How their variables begin."""
    leave_out: frozenset[str] = frozenset()


_SHARED = frozenset(DataSettings.model_fields)
_GROUPS = (
    Group("Service and workers", "Both roles must agree on these.", DataSettings, "", "SHUNTER_"),
    Group("Workers", "", WorkerSettings, "", "SHUNTER_", _SHARED),
    Group("Service", "The API's processes alone.", ServiceSettings, "service", "SHUNTER_SERVICE_"),
    Group(
        "Providers",
        "One table for each instance of a plugin; `NAME` is what jobs call it in `placement.providers`.",
        ProviderSettings,
        "providers.NAME",
        "SHUNTER_PROVIDERS__NAME__",
    ),
    Group(
        "The plugin `local`",
        "Nodes on this machine.",
        LocalSettings,
        "providers.NAME.settings",
        "SHUNTER_PROVIDERS__NAME__SETTINGS__",
    ),
)


def text() -> str:
    """The page."""
    parts = [_HEAD]
    for group in _GROUPS:
        where = f"In `[{group.table}]`. " if group.table else ""
        parts += [f"## {group.title}\n", f"{where}{group.says}\n" if where or group.says else ""]
        parts += [*table(("setting", "variable", "default", "meaning"), _rows(group)), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def _rows(group: Group) -> Iterator[tuple[str, str, str, str]]:
    says = attribute_docs(group.model)
    for name, field in group.model.model_fields.items():
        if name in group.leave_out:
            continue
        inner = _members(field)
        if inner is None:
            yield _row(group, name, default_of(field), says.get(name, ""))
            continue
        for member, default, meaning in inner:
            yield _row(group, f"{name}.{member}", default, meaning)


def _row(group: Group, name: str, default: str, meaning: str) -> tuple[str, str, str, str]:
    return f"`{name}`", f"`{group.variable}{name.replace('.', '__').upper()}`", default, meaning


def _members(field: FieldInfo) -> list[tuple[str, str, str]] | None:
    """Members of a setting that is a group of its own: name, default, meaning."""
    kind: Any = field.annotation
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        says = attribute_docs(kind)
        return [(name, default_of(one), says.get(name, "")) for name, one in kind.model_fields.items()]
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        says = attribute_docs(kind)
        return [(one.name, f"`{one.default}`", says.get(one.name, "")) for one in dataclasses.fields(kind)]
    return None


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    if field.default_factory is not None:
        made = field.get_default(call_default_factory=True, validated_data={})
        return f"`{json.dumps(_plain(made))}`" if isinstance(made, dict) and made else "(worked out)"
    if field.default in ("", None):
        return ""
    return f"`{json.dumps(field.default, default=str)}`"


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_defaults=True)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return str(value) if isinstance(value, Path) else value
