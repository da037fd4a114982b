"""Retail prices as Azure tells them to anybody. They change seldom, spot ones by the hour; the catalogue stands in."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.clouds.azure.arm import Arm
from shunter_providers.contract import ProviderError

_KEPT_S: Final = 3600.0
_AGAIN_AFTER_S: Final = 600.0
"""Where they could not be read."""
_OTHERS: Final = re.compile(r"Windows|Dedicated|Cloud ?Services|Low Priority", re.IGNORECASE)
"""Products and meters that are no virtual machine with Linux, for oneself, as it is sold today."""
_GPU_TYPES: Final = "contains(armSkuName, 'Standard_N')"

_log = logging.getLogger(__name__)


class _Kept(NamedTuple):
    until: float
    usd_per_hour: Mapping[tuple[str, str], float]


class RetailPrices:
    """Of one account. For several threads: at worst two of them read the same."""

    def __init__(self, instance: str, cpu_types: Sequence[str]) -> None:
        """`instance`: whose name stands in the log."""
        self._instance = instance
        self._wanted = " or ".join([_GPU_TYPES, *(f"armSkuName eq '{name}'" for name in cpu_types)])
        self._kept: dict[str, _Kept] = {}

    def of(self, client: Arm, region: str) -> Mapping[tuple[str, str], float]:
        """USD an hour by type and capacity; without those that are not known, and never an error."""
        kept, now = self._kept.get(region), time.monotonic()
        if kept is not None and now < kept.until:
            return kept.usd_per_hour
        place = f"serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and armRegionName eq '{region}'"
        try:
            found = _Kept(now + _KEPT_S, _prices(client.prices(f"{place} and ({self._wanted})")))
        except ProviderError as exc:
            _log.warning("provider %s: no prices of %s, the catalogue's are taken: %s", self._instance, region, exc)
            found = _Kept(now + _AGAIN_AFTER_S, kept.usd_per_hour if kept is not None else {})
        self._kept[region] = found
        return found.usd_per_hour


def _prices(rows: Iterable[Fields]) -> dict[tuple[str, str], float]:
    """The dearest where a type is listed twice: an offer never costs more than it says."""
    found: dict[tuple[str, str], float] = {}
    for row in rows:
        try:
            key, usd = _price(row)
        except ProviderError:
            continue  # one row that cannot be read hides no other
        if key is not None:
            found[key] = max(usd, found.get(key, 0.0))
    return found


def _price(row: Fields) -> tuple[tuple[str, str] | None, float]:
    meter, product = row.text("meterName"), row.text("productName")
    if (
        _OTHERS.search(f"{product} {meter} {row.text('skuName', '-')}")
        or row.text("type", "Consumption") != "Consumption"
        or row.text("unitOfMeasure") != "1 Hour"
        or row.text("currencyCode") != "USD"
        or not row.flag("isPrimaryMeterRegion", True)
    ):
        return None, 0.0
    capacity = "spot" if "Spot" in f"{meter} {row.text('skuName', '-')}" else "on_demand"
    return (row.text("armSkuName"), capacity), row.money("retailPrice")
