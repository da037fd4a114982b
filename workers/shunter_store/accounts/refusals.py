"""Why accounts were refused nodes: remembered for all jobs, so that not each of them finds it out by itself.

A refusal for want of credentials or money stands for a while, the longer the more often it was met again; until then
no job asks within its reach. A node that is made, credentials that work again, or an operator ends it at once. One for
want of quota is only told of: smaller nodes, or others, may still be had.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, bindparam, null, select, update

from shunter_store.sql.sqltypes import clock_of
from shunter_store.tables import nodes, providers

FIRST_S: Final = 30.0
LONGEST_S: Final = 3600.0
_STANDING: Final = frozenset({"auth", "payment"})

_OF = select(providers.c.refusal).where(providers.c.instance == bindparam("of")).with_for_update()
_ALL = select(providers.c.instance, providers.c.refusal).where(providers.c.refusal.is_not(None))
_REFUSE = update(providers).where(providers.c.instance == bindparam("of")).values(refusal=bindparam("told"))
_LIFT = (
    update(providers)
    .where(providers.c.instance == bindparam("of"), providers.c.refusal.is_not(None))
    .values(refusal=null())
)
_FORGIVE = (
    update(providers)
    .where(providers.c.refusal.is_not(None))
    .where(providers.c.instance == select(nodes.c.instance).where(nodes.c.id == bindparam("node")).scalar_subquery())
    .values(refusal=null())
)


def note(conn: Connection, instance: str, refusal: Mapping[str, Any]) -> None:
    """A create call was refused for what the account is, or may have.

    Args:
        refusal: `at`, `fault`, `scope`, `detail`, and the `instance_type` and `region` that were asked for.
    """
    before, now = conn.execute(_OF, {"of": instance}).scalar() or {}, clock_of(conn)
    told = dict(refusal)
    if told["fault"] in _STANDING:
        times = _times(before, told["fault"], now)
        until = now + timedelta(seconds=min(LONGEST_S, FIRST_S * 2.0 ** (times - 1)))
        told |= {"times": times, "until": until.isoformat()}
    conn.execute(_REFUSE, {"of": instance, "told": told})


def forget(conn: Connection, node_id: str) -> None:
    """The instance of this node makes nodes."""
    conn.execute(_FORGIVE, {"node": node_id})


def lift(conn: Connection, instance: str) -> bool:
    """Let jobs ask this instance again at once; whether anything kept them from it."""
    return conn.execute(_LIFT, {"of": instance}).rowcount > 0


def standing(conn: Connection) -> dict[str, dict[str, Any]]:
    """By instance: the refusals that keep jobs away at this moment, as they were noted."""
    now = clock_of(conn)
    rows = {instance: refusal for instance, refusal in conn.execute(_ALL) if stands(refusal, now)}
    return dict(sorted(rows.items()))


def stands(refusal: Mapping[str, Any], now: datetime) -> bool:
    """Whether it keeps jobs away. One that ends later than any does was noted under a clock that was set back."""
    until = refusal.get("until")
    if until is None:
        return False
    return 0 < (datetime.fromisoformat(until) - now).total_seconds() <= LONGEST_S


def _times(before: Mapping[str, Any], fault: str, now: datetime) -> int:
    """How often the same was met in a row; jobs that met it together count as one."""
    if before.get("fault") != fault:
        return 1
    times = int(before.get("times", 1))
    return times if stands(before, now) else min(times + 1, 32)
