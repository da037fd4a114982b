"""What bills, what things cost, and what may be ended: over all jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from shunter_schemas.api import Costs, FleetNode, FleetPage, Reaping, rfc3339

from shunter.flows.answers import get, pages, post
from shunter.steps import Flow, ItemFlow, ask


def nodes(*, billing: bool, provider: str | None, state: str | None, job_id: str | None) -> ItemFlow[FleetNode]:
    """Nodes of the ledger, newest first."""
    params = {"provider": provider, "state": state, "job": job_id, "billing": "true" if billing else None, "limit": 500}
    return pages(FleetPage, "/v1/nodes", params)


def billing() -> Flow[FleetPage]:
    """The nodes that bill, all of them, and how sure that is: the pages are one answer, as of the first."""
    params = {"billing": "true", "limit": 500}
    first = page = yield from ask(get(FleetPage, "/v1/nodes", params))
    items = [*page.items]
    while page.next_cursor is not None:
        page = yield from ask(get(FleetPage, "/v1/nodes", {**params, "cursor": page.next_cursor}))
        items += page.items
    return first.model_copy(update={"items": tuple(items), "next_cursor": None})


def costs(*, group_by: Sequence[str], since: datetime | None, until: datetime | None, limit: int) -> Flow[Costs]:
    """What things cost."""
    params = {
        "group_by": ",".join(group_by) or None,
        "from": rfc3339(since) if since else None,
        "to": rfc3339(until) if until else None,
        "limit": limit,
    }
    return ask(get(Costs, "/v1/costs", params))


def reaping() -> Flow[Reaping]:
    """What becomes of nodes that the ledger does not know."""
    return ask(get(Reaping, "/v1/reaping"))


def confirm_reaping() -> Flow[Reaping]:
    """They may be ended."""
    return ask(post(Reaping, "/v1/reaping/confirm"))


def hold_reaping(reason: str) -> Flow[Reaping]:
    """They may not."""
    return ask(post(Reaping, "/v1/reaping/hold", json.dumps({"reason": reason}).encode()))
