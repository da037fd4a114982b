"""On-demand prices as AWS lists them. They change seldom, and whoever may not read the list has the catalogue's."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.clouds.aws.ec2 import Ec2
from shunter_providers.contract import ProviderError

_KEPT_S: Final = 6 * 3600.0
_AGAIN_AFTER_S: Final = 600.0
"""Where the list could not be read."""
_PLAIN_LINUX: Final = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "instanceFamily": "GPU instance",
}
_log = logging.getLogger(__name__)


class _Kept(NamedTuple):
    until: float
    usd_per_hour: Mapping[str, float]


class PriceList:
    """Of one account. For several threads: at worst two of them read the same list."""

    def __init__(self, instance: str) -> None:
        """`instance`: whose name stands in the log."""
        self._instance = instance
        self._kept: dict[str, _Kept] = {}

    def of(self, client: Ec2, region: str) -> Mapping[str, float]:
        """USD an hour by type with GPUs; without those that are not known, and never an error."""
        kept = self._kept.get(region)
        now = time.monotonic()
        if kept is not None and now < kept.until:
            return kept.usd_per_hour
        try:
            found = _Kept(now + _KEPT_S, _prices(client.products({"regionCode": region, **_PLAIN_LINUX})))
        except ProviderError as exc:
            _log.warning("provider %s: no price list of %s, the catalogue's is taken: %s", self._instance, region, exc)
            found = _Kept(now + _AGAIN_AFTER_S, kept.usd_per_hour if kept is not None else {})
        self._kept[region] = found
        return found.usd_per_hour


def _prices(products: Iterable[Fields]) -> dict[str, float]:
    """The dearest where a type is listed twice: an offer never costs more than it says."""
    found: dict[str, float] = {}
    for product in products:
        try:
            name = product.inside("product").inside("attributes").text("instanceType")
            usd = max(_amounts(product))
        except (ProviderError, ValueError):
            continue  # one row that cannot be read hides no other
        found[name] = max(usd, found.get(name, 0.0))
    return found


def _amounts(product: Fields) -> Iterable[float]:
    for _, term in product.inside("terms").inside("OnDemand").named():
        for _, dimension in term.inside("priceDimensions").named():
            if dimension.text("unit") == "Hrs":
                yield dimension.inside("pricePerUnit").money("USD")
