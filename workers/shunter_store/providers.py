"""What the workers last found out about each configured provider instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from shunter_store.rows import all_of, columns_of
from shunter_store.sqltypes import PerDialect, db_now
from shunter_store.tables import providers


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """Health and offers of one instance; `detail` says why when `ok` is false."""

    instance: str
    plugin: str
    ok: bool
    detail: str
    account: str | None
    capabilities: dict[str, Any]
    offers: list[dict[str, Any]]
    updated_at: datetime


def _upsert(insert: Any) -> Any:
    statement = insert(providers).values(updated_at=db_now())
    fresh = {name: statement.excluded[name] for name in ("plugin", "ok", "detail", "account", "capabilities", "offers")}
    return statement.on_conflict_do_update(index_elements=["instance"], set_={**fresh, "updated_at": db_now()})


_RECORD = PerDialect(_upsert)
_ALL = select(*columns_of(ProviderRow, providers)).order_by(providers.c.instance)


def record_health(  # noqa: PLR0913 - the columns of a row
    conn: Connection,
    instance: str,
    plugin: str,
    ok: bool,
    detail: str = "",
    *,
    account: str | None = None,
    capabilities: Mapping[str, Any] | None = None,
    offers: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Put the newest findings in the place of the former ones."""
    row = {
        "instance": instance,
        "plugin": plugin,
        "ok": ok,
        "detail": detail,
        "account": account,
        "capabilities": capabilities or {},
        "offers": list(offers),
    }
    conn.execute(_RECORD.on(conn), row)


def list_all(conn: Connection) -> list[ProviderRow]:
    """Every instance, by name."""
    return all_of(ProviderRow, conn.execute(_ALL))
