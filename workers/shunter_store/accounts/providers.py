"""What the workers last found out about each configured provider instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, Connection, bindparam, case, null, select

from shunter_store.sql.rows import all_of, columns_of
from shunter_store.sql.sqltypes import PerDialect, db_now
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
    """As they were last read, which is `offers_at`; None: never."""
    updated_at: datetime
    offers_at: datetime | None = None
    limits: dict[str, Any] | None = None
    """What the account may have, in the provider's own words."""
    refusal: dict[str, Any] | None = None
    """Why the account was refused a node when it last asked for one (`at`, `fault`, `scope`, `detail`, and `until`
    where it keeps jobs away so long, see `refusals`); None: it was not."""


def _upsert(insert: Any) -> Any:
    """Offers that cannot be read now stay as they were, with their age. A refusal goes when the credentials work
    again, or are others."""
    statement = insert(providers).values(
        updated_at=db_now(), offers_at=case((bindparam("was_read", type_=Boolean), db_now()))
    )
    new = statement.excluded
    fresh = {name: new[name] for name in ("plugin", "ok", "detail", "account", "capabilities", "limits")}
    kept = {name: case((new["ok"], new[name]), else_=providers.c[name]) for name in ("offers", "offers_at")}
    mended = new["ok"] & (~providers.c.ok | (providers.c.account != new["account"]))
    rest = {"refusal": case((mended, null()), else_=providers.c.refusal), "updated_at": db_now()}
    return statement.on_conflict_do_update(index_elements=["instance"], set_={**fresh, **kept, **rest})


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
    limits: Mapping[str, Any] | None = None,
    offers: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Put the newest findings in the place of the former ones."""
    row = {
        "instance": instance,
        "plugin": plugin,
        "ok": ok,
        "was_read": ok,
        "detail": detail,
        "account": account,
        "capabilities": capabilities or {},
        "limits": limits or {},
        "offers": list(offers),
    }
    conn.execute(_RECORD.on(conn), row)


def list_all(conn: Connection) -> list[ProviderRow]:
    """Every instance, by name."""
    return all_of(ProviderRow, conn.execute(_ALL))
