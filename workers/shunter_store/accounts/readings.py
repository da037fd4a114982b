"""When each provider instance was last read, why it cannot be, and what it shows that the ledger does not know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, bindparam, func, null, select

from shunter_store.sql.rows import all_of, columns_of
from shunter_store.sql.sqltypes import Json, PerDialect, UtcTime, db_now
from shunter_store.tables import readings


@dataclass(frozen=True, slots=True)
class Reading:
    """What the scanner of one instance last saw. `strangers`: nodes of this deployment that no row knows."""

    instance: str
    account: str | None
    bills: bool
    stale_after_s: float
    read_at: datetime | None
    """When the last complete listing began; None: there was none yet."""
    failing_since: datetime | None
    """Since when every attempt has failed; None: the last one succeeded."""
    error: str | None
    strangers: list[dict[str, Any]]

    def is_good(self, now: datetime) -> bool:
        """Whether what it says can be relied on at this moment."""
        fresh = self.read_at is not None and now - self.read_at <= timedelta(seconds=self.stale_after_s)
        return fresh and self.failing_since is None


def _reading(insert: Any) -> Any:
    row = {
        "instance": bindparam("of"),
        "account": bindparam("whose"),
        "bills": bindparam("costs"),
        "stale_after_s": bindparam("for_s"),
        "read_at": bindparam("at", type_=UtcTime),
        "failing_since": null(),
        "error": null(),
        "strangers": bindparam("found", type_=Json),
    }
    fresh = {name: value for name, value in row.items() if name != "instance"}
    return insert(readings).values(row).on_conflict_do_update(index_elements=["instance"], set_=fresh)


def _failing(insert: Any) -> Any:
    failed = {
        "bills": bindparam("costs"),
        "stale_after_s": bindparam("for_s"),
        "failing_since": func.coalesce(readings.c.failing_since, db_now()),
        "error": bindparam("why"),
    }
    first = {
        **failed,
        "instance": bindparam("of"),
        "failing_since": db_now(),
        "strangers": bindparam("none", type_=Json),
    }
    return insert(readings).values(first).on_conflict_do_update(index_elements=["instance"], set_=failed)


_READ = PerDialect(_reading)
_FAILED = PerDialect(_failing)
_ALL = select(*columns_of(Reading, readings)).order_by(readings.c.instance)


def record(  # noqa: PLR0913 - the columns of a row, by keyword
    conn: Connection,
    instance: str,
    *,
    account: str,
    bills: bool,
    stale_after_s: float,
    at: datetime,
    strangers: Sequence[dict[str, Any]],
) -> None:
    """A complete listing that began at `at` was folded into the ledger.

    Args:
        stale_after_s: so much later nothing can be claimed by it any more.
    """
    row = {"of": instance, "whose": account, "costs": bills, "for_s": stale_after_s, "at": at}
    conn.execute(_READ.on(conn), {**row, "found": list(strangers)})


def record_failure(conn: Connection, instance: str, *, bills: bool, stale_after_s: float, error: str) -> None:
    """The instance could not be read."""
    row = {"of": instance, "costs": bills, "for_s": stale_after_s, "why": error, "none": []}
    conn.execute(_FAILED.on(conn), row)


def list_all(conn: Connection) -> list[Reading]:
    """Every instance that was ever read, or tried, by name."""
    return all_of(Reading, conn.execute(_ALL))
