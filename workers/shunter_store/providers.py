"""What the workers last found out about each configured provider instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, Connection, bindparam, case, null, select, update

from shunter_store.rows import all_of, columns_of
from shunter_store.sqltypes import PerDialect, db_now
from shunter_store.tables import nodes, providers


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
    """Why the account was refused a node when it last asked for one (`at`, `fault`, `scope`, `detail`); None: it was
    not."""


def _upsert(insert: Any) -> Any:
    """Offers that cannot be read now stay as they were, with their age."""
    statement = insert(providers).values(
        updated_at=db_now(), offers_at=case((bindparam("was_read", type_=Boolean), db_now()))
    )
    new = statement.excluded
    fresh = {name: new[name] for name in ("plugin", "ok", "detail", "account", "capabilities", "limits")}
    kept = {name: case((new["ok"], new[name]), else_=providers.c[name]) for name in ("offers", "offers_at")}
    return statement.on_conflict_do_update(index_elements=["instance"], set_={**fresh, **kept, "updated_at": db_now()})


_RECORD = PerDialect(_upsert)
_REFUSE = update(providers).where(providers.c.instance == bindparam("of")).values(refusal=bindparam("told"))
_FORGIVE = (
    update(providers)
    .where(providers.c.refusal.is_not(None))
    .where(providers.c.instance == select(nodes.c.instance).where(nodes.c.id == bindparam("node")).scalar_subquery())
    .values(refusal=null())
)
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


def note_refusal(conn: Connection, instance: str, refusal: Mapping[str, Any]) -> None:
    """A create call was refused for what the account is, or may have."""
    conn.execute(_REFUSE, {"of": instance, "told": dict(refusal)})


def forget_refusal(conn: Connection, node_id: str) -> None:
    """The instance of this node makes nodes."""
    conn.execute(_FORGIVE, {"node": node_id})


def list_all(conn: Connection) -> list[ProviderRow]:
    """Every instance, by name."""
    return all_of(ProviderRow, conn.execute(_ALL))
