"""The fleet's rows to what the API shows: nodes, readings of providers, costs, reaping. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from shunter_schemas.api import CostGroup, Costs, FleetNode, Notice, ProviderReading, Reaping, Stranger
from shunter_store.accounts import money
from shunter_store.accounts.money import MICRO, Sum
from shunter_store.accounts.readings import Reading
from shunter_store.installation import notices
from shunter_store.installation.deployment import Deployment
from shunter_store.node import fleet
from shunter_store.node.fleet import Billing

_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet would take for a formula; a label may begin so."""


def node_view(node: fleet.FleetNode, read_at: datetime | None, now: datetime) -> FleetNode:
    """One node."""
    row = node.row
    return FleetNode(
        token=row.token,
        handle=row.handle,
        provider=row.instance,
        instance_type=str(row.offer.get("instance_type", "")),
        region=str(row.offer.get("region", "")),
        state=row.state,
        condition=row.condition,
        job=row.job_id,
        job_name=node.job_name,
        project=node.project,
        rank=row.rank,
        created_at=row.intended_at,
        released_at=row.gone_at,
        age_s=round(max(0.0, ((row.gone_at or now) - row.intended_at).total_seconds()), 3),
        usd_per_hour=row.billed_usd_per_hour,
        cost_usd=node.cost_usd,
        read_at=read_at,
    )


def readings_view(
    readings: Mapping[str, Reading],
    billing: Mapping[str, Billing],
    configured: Collection[str],
    now: datetime,
    *,
    all_strangers: bool,
) -> list[ProviderReading]:
    """Every instance that is configured or that open rows name, by name."""
    names = sorted({*configured, *billing, *(one.instance for one in readings.values() if one.strangers)})
    return [
        _reading(name, readings.get(name), billing.get(name), now, name in configured, all_strangers) for name in names
    ]


def is_confirmed(found: Sequence[ProviderReading], readings: Mapping[str, Reading]) -> bool:
    """Whether an empty list of nodes that bill means that nothing bills."""
    sure = all(one.status == "good" or not one.bills for one in found)
    return sure and not any(reading.strangers for reading in readings.values() if reading.bills)


def costs_view(
    found: money.Costs, group_by: Sequence[str], since: datetime | None, until: datetime, limit: int
) -> Costs:
    """The groups that cost the most, those of one day together; the rest in one."""
    ordered = sorted(found.groups.items(), key=lambda one: (-one[1].micro_usd, tuple(map(str, one[0]))))
    shown, rest = ordered[:limit], ordered[limit:]
    if "day" in group_by:
        place = group_by.index("day")
        shown.sort(key=lambda one: str(one[0][place]))
    others = Sum()
    for _, part in rest:
        others.add(part)
    return Costs(
        from_=since,
        to=until,
        group_by=tuple(group_by),
        total_usd=found.total.micro_usd / MICRO,
        unconfirmed_usd=found.total.unconfirmed / MICRO,
        node_hours=_hours(found.total),
        groups=tuple(_group(dict(zip(group_by, key, strict=True)), part) for key, part in shown),
        others=_group({}, others) if rest else None,
    )


def costs_csv(found: money.Costs, group_by: Sequence[str]) -> str:
    """Every group as a line, the dearest first; the total where nothing was grouped by."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*group_by, "usd", "unconfirmed_usd", "node_hours"])
    groups = found.groups if group_by else {(): found.total}
    for key, part in sorted(groups.items(), key=lambda one: (-one[1].micro_usd, tuple(map(str, one[0])))):
        amounts = (f"{part.micro_usd / MICRO:.6f}", f"{part.unconfirmed / MICRO:.6f}", f"{_hours(part):.4f}")
        writer.writerow([*(_plain(value or "") for value in key), *amounts])
    return text.getvalue()


def reaping_view(
    deployment: Deployment, readings: Sequence[Reading], told: Sequence[notices.Notice], *, only_reports: bool
) -> Reaping:
    """What becomes of strangers.

    Args:
        only_reports: the setting says so, whatever is confirmed.
    """
    reason = deployment.held_reason if deployment.reaping_is_held else None
    return Reaping(
        mode=mode_of(deployment, only_reports=only_reports),
        reason=reason or ("the setting `reaping` is `report`" if only_reports else None),
        since=deployment.held_at,
        confirmed_at=deployment.confirmed_at,
        confirmed_by=deployment.confirmed_by,
        strangers=tuple(stranger for reading in readings for stranger in _strangers(reading)),
        notices=tuple(Notice(at=one.at, type=one.type, data=one.data) for one in told),
    )


def mode_of(deployment: Deployment | None, *, only_reports: bool) -> Literal["ends", "reports"]:
    """Whether strangers are ended."""
    held = deployment is not None and deployment.reaping_is_held
    return "reports" if held or only_reports else "ends"


def _reading(
    name: str,
    reading: Reading | None,
    billing: Billing | None,
    now: datetime,
    configured: bool,
    all_strangers: bool,
) -> ProviderReading:
    at = reading.read_at if reading else None
    return ProviderReading(
        provider=name,
        bills=reading.bills if reading else True,
        status=_status(reading, now, configured=configured),
        read_at=at,
        age_s=None if at is None else round(max(0.0, (now - at).total_seconds()), 3),
        failing_since=reading.failing_since if reading else None,
        error=reading.error if reading else None,
        billing_nodes=billing.nodes if billing else 0,
        usd_per_hour=billing.usd_per_hour if billing else 0.0,
        strangers=tuple(_strangers(reading)) if reading and all_strangers else (),
    )


def _status(
    reading: Reading | None, now: datetime, *, configured: bool
) -> Literal["good", "stale", "failing", "never_read", "not_configured"]:
    if not configured:
        return "not_configured"
    if reading is None:
        return "never_read"
    if reading.failing_since is not None:
        return "failing"
    return "good" if reading.is_good(now) else "stale"


def _strangers(reading: Reading) -> Iterator[Stranger]:
    for one in reading.strangers:
        yield Stranger.model_validate({"provider": reading.instance, **one})


def _group(by: dict[str, Any], part: Sum) -> CostGroup:
    return CostGroup(
        by=by,
        usd=part.micro_usd / MICRO,
        unconfirmed_usd=part.unconfirmed / MICRO,
        node_hours=_hours(part),
    )


def _hours(part: Sum) -> float:
    return round(part.node_s / 3600, 4)


def _plain(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULAS) else text
