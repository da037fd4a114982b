"""Offers as the API shows them: those of all instances as workers last read them, merged, filtered and sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from shunter_planner.values import offer_from_json
from shunter_providers.contract import Offer
from shunter_providers.jurisdictions import lies_in
from shunter_schemas.api import OfferInfo, OfferPage, OfferPrice, OfferSource
from shunter_store.accounts.providers import ProviderRow
from shunter_store.installation.settings import ProviderSettings

Status = Literal["ok", "error", "unknown", "paused", "spend_frozen"]


@dataclass(frozen=True, slots=True)
class OfferFilter:
    """None and empty: any."""

    provider: str | None = None
    gpu_model: str | None = None
    min_gpus: int = 0
    region: str | None = None
    jurisdiction: str | None = None
    capacity: str | None = None
    available: bool = False


def offer_page(
    configured: Mapping[str, ProviderSettings],
    rows: Sequence[ProviderRow],
    where: OfferFilter,
    now: datetime,
    limit: int,
) -> OfferPage:
    """The page; one instance that cannot be read neither delays nor hides the others."""
    known = {row.instance: row for row in rows}
    found = [
        info
        for name in configured
        if where.provider in (None, name) and name in known
        for info in _offers(known[name])
        if all(test(info, where) for test in _TESTS)
    ]
    found.sort(key=_by_price)
    sources = tuple(_source(name, one, known.get(name), now) for name, one in sorted(configured.items()))
    return OfferPage(items=tuple(found[:limit]), total=len(found), sources=sources)


def _offers(row: ProviderRow) -> Iterator[OfferInfo]:
    for stored in row.offers:
        yield _info(row, offer_from_json(stored))


def _info(row: ProviderRow, offer: Offer) -> OfferInfo:
    price = offer.price
    return OfferInfo(
        provider=row.instance,
        instance_type=offer.instance_type,
        region=offer.region,
        jurisdiction=offer.jurisdiction,
        gpu_model=offer.gpu_model,
        gpus=offer.gpus,
        gpu_memory_gib=offer.gpu_memory_gib,
        cpus=offer.cpus,
        memory_gib=offer.memory_gib,
        disk_gib=offer.disk_gib,
        capacity=offer.capacity,
        kind=offer.kind,
        availability=offer.availability.value,
        count=offer.count,
        interconnect=offer.interconnect,
        fabric=offer.fabric,
        network_gbps=offer.network_gbps,
        price=OfferPrice(
            usd_per_hour=price.usd_per_hour,
            gpu_usd_per_hour=price.gpu_usd_per_hour,
            disk_usd_per_hour=price.disk_usd_per_hour,
            setup_usd=price.setup_usd,
            billed=price.billed,
            live=price.live,
            as_of=price.as_of,
            confidence=price.confidence or None,
            currency=price.currency,
            usd_per_unit=price.usd_per_unit,
        ),
        read_at=row.offers_at or row.updated_at,
    )


def _source(name: str, configured: ProviderSettings, row: ProviderRow | None, now: datetime) -> OfferSource:
    read_at = None if row is None else row.offers_at
    status, detail = _status(configured, row)
    return OfferSource(
        name=name,
        status=status,
        detail=detail,
        offers=0 if row is None else len(row.offers),
        read_at=read_at,
        age_s=None if read_at is None else round(max(0.0, (now - read_at).total_seconds()), 3),
    )


def _status(configured: ProviderSettings, row: ProviderRow | None) -> tuple[Status, str]:
    if configured.hold is not None:
        return "paused" if configured.paused else "spend_frozen", configured.hold.words
    if row is None:
        return "unknown", "no worker has read it yet"
    return ("ok", "") if row.ok else ("error", row.detail)


def _by_price(info: OfferInfo) -> tuple[Any, ...]:
    price = info.price.usd_per_hour / max(1, info.gpus)
    return (info.availability in ("none", "no_quota"), info.gpus == 0, price, info.provider, info.instance_type)


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


_TESTS: Final[Sequence[Callable[[OfferInfo, OfferFilter], bool]]] = (
    lambda info, where: where.gpu_model is None or _letters(where.gpu_model) == _letters(info.gpu_model or ""),
    lambda info, where: info.gpus >= where.min_gpus,
    lambda info, where: where.region in (None, info.region),
    lambda info, where: where.jurisdiction is None or lies_in((where.jurisdiction,), info.jurisdiction),
    lambda info, where: where.capacity in (None, info.capacity),
    lambda info, where: not where.available or info.availability == "available",
)
