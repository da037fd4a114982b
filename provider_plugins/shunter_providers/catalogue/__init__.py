"""Prices and shapes of instance types as they stood on a day, for what a vendor's API does not tell.

They are dated and of known confidence, and marked so wherever they appear; a live price always wins. A row without a
price gives the shape only. Amounts in another currency than USD need a rate that the operator names.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from shunter_providers.contract import Price
from shunter_providers.gpu_names import gpu_model

ANYWHERE: Final = "*"
CONFIDENCES: Final = ("high", "medium", "low", "derived", "average", "stale", "specs")
_USD_ONLY: Final[Mapping[str, float]] = {}


@dataclass(frozen=True, slots=True)
class Listed:
    """One instance type in one region (or in all of them)."""

    provider: str
    instance_type: str
    gpu_model: str
    gpus: int
    gpu_memory_gib: float
    cpus: int | None
    memory_gib: float | None
    region: str
    per_hour: float | None
    """In `currency`; None: not known."""
    spot_per_hour: float | None
    currency: str
    as_of: str
    """A day, or a year where no more is known."""
    confidence: str
    note: str
    source: str

    def price(self, capacity: str = "on_demand", rates: Mapping[str, float] = _USD_ONLY) -> Price | None:
        """The price for offers; None: not listed for this capacity, or in a currency without a rate.

        Args:
            rates: USD for one unit of a currency.
        """
        amount = self.spot_per_hour if capacity == "spot" else self.per_hour
        usd_per_unit = 1.0 if self.currency == "USD" else rates.get(self.currency)
        if amount is None or usd_per_unit is None:
            return None
        return Price(
            gpu_usd_per_hour=round(amount * usd_per_unit, 6),
            as_of=self.as_of,
            live=False,
            currency=self.currency,
            usd_per_unit=usd_per_unit,
            confidence=self.confidence,
        )


def listed(provider: str) -> Sequence[Listed]:
    """Everything that is known of a provider, in the catalogue's order."""
    return _by_provider().get(provider, ())


def names() -> Sequence[str]:
    """The providers of which something is known."""
    return tuple(_by_provider())


def find(provider: str, instance_type: str, region: str) -> Listed | None:
    """The row of an instance type: of that region, else of all regions."""
    rows = [row for row in listed(provider) if row.instance_type == instance_type]
    here = [row for row in rows if row.region == region]
    return next(iter(here or [row for row in rows if row.region == ANYWHERE]), None)


def read(lines: Iterator[str]) -> Iterator[Listed]:
    """The rows of a catalogue in CSV.

    Raises:
        ValueError: a row that cannot be right, by its number: a price of 0 would look like the best offer.
    """
    for number, row in enumerate(csv.DictReader(lines), start=2):
        try:
            yield _listed(row)
        except (KeyError, TypeError, ValueError) as exc:
            raise ValueError(f"row {number}: {exc}") from exc


@cache
def _by_provider() -> Mapping[str, Sequence[Listed]]:
    found: dict[str, list[Listed]] = {}
    with files(__name__).joinpath("prices.csv").open(encoding="utf-8") as lines:
        for row in read(iter(lines)):
            found.setdefault(row.provider, []).append(row)
    return found


def _listed(row: Mapping[str, str]) -> Listed:
    if row["confidence"] not in CONFIDENCES:
        raise ValueError(f"{row['confidence']!r} is no confidence")
    return Listed(
        provider=row["provider"],
        instance_type=row["instance_type"],
        gpu_model=gpu_model(row["gpu_model"]),
        gpus=int(row["gpus"]),
        gpu_memory_gib=float(row["gpu_memory_gib"]),
        cpus=int(row["cpus"]) if row["cpus"] else None,
        memory_gib=float(row["memory_gib"]) if row["memory_gib"] else None,
        region=row["region"],
        per_hour=_amount(row["price_per_hour"]),
        spot_per_hour=_amount(row["spot_price_per_hour"]),
        currency=row["currency"],
        as_of=row["as_of"],
        confidence=row["confidence"],
        note=row["note"],
        source=row["source"],
    )


def _amount(text: str) -> float | None:
    if not text:
        return None
    amount = float(text)
    if not 0 < amount < 1e6:
        raise ValueError(f"{text} is no price")
    return amount
