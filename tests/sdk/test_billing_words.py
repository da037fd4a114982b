"""What bills, in sentences: none of them claims more than was seen."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from shunter.billing_words import sentences
from shunter_schemas.api import FleetNode, FleetPage, ProviderReading, Stranger
from shunter_schemas.states import NodeState

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)


def provider(name: str = "lambda", **given: Any) -> ProviderReading:
    values = {"bills": True, "status": "good", "read_at": AT, "age_s": 14.2}
    return ProviderReading.model_validate({"provider": name, **values, **given})


def node(usd_per_hour: float) -> FleetNode:
    return FleetNode(
        token="shn-a-b",
        provider="lambda",
        instance_type="h100",
        state=NodeState.READY,
        job="job_1",
        rank=0,
        created_at=AT,
        age_s=60.0,
        usd_per_hour=usd_per_hour,
        cost_usd=1.0,
    )


def page(*providers: ProviderReading, nodes: tuple[FleetNode, ...] = (), **given: Any) -> FleetPage:
    sure = all(one.status == "good" and not one.strangers for one in providers if one.bills)
    return FleetPage.model_validate(
        {"items": nodes, "as_of": AT, "confirmed": sure, "providers": providers, "reaping": "ends", **given}
    )


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (page(provider()), ["nothing is billing: lambda read 14 s ago"]),
        (
            page(provider(), provider("local", bills=False, age_s=2.0)),
            ["nothing is billing: lambda read 14 s ago; local read 2 s ago (costs nothing)"],
        ),
        (page(), ["nothing is billing: no provider is configured"]),
        (page(provider(), nodes=(node(2.0), node(1.5))), ["2 nodes bill 3.50 USD an hour"]),
        (
            page(provider(status="stale", age_s=900.0)),
            [
                "it is not known whether anything is billing",
                "lambda: last read 15 min ago, at 2026-11-30T12:00:00.000Z: no worker has read it since",
            ],
        ),
        (
            page(provider(status="failing", failing_since=AT, error="auth: refused", age_s=7200.0)),
            [
                "it is not known whether anything is billing",
                "lambda: cannot be read since 2026-11-30T12:00:00.000Z (auth: refused); last read 2.0 h ago, at "
                "2026-11-30T12:00:00.000Z",
            ],
        ),
        (
            page(provider(status="never_read", read_at=None, age_s=None)),
            ["it is not known whether anything is billing", "lambda: never read; does a worker run?"],
        ),
        (
            page(provider(status="not_configured", billing_nodes=1), nodes=(node(2.0),)),
            [
                "1 node bills 2.00 USD an hour",
                "lambda: is not configured any more, and 1 row of the ledger cannot be closed without it; last read "
                "14 s ago, at 2026-11-30T12:00:00.000Z",
            ],
        ),
        (
            page(provider(strangers=(Stranger(provider="lambda", handle="i-1"),))),
            [
                "it is not known whether anything is billing",
                "1 node that the ledger does not know: about to be ended",
            ],
        ),
        (
            page(provider(), reaping="reports"),
            [
                "nothing is billing: lambda read 14 s ago",
                "nodes that the ledger does not know are only reported, until: shunter reaping --confirm",
            ],
        ),
    ],
)
def test_what_bills_is_told_as_far_as_it_is_known(shown: FleetPage, said: list[str]) -> None:
    assert list(sentences(shown)) == said
