"""The bundled prices as candidates, for plans without a service: dated, and without a word on what is free now."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from shunter_providers.catalogue import ANYWHERE, Listed, listed, names
from shunter_providers.contract import Offer

from shunter_planner.values import Candidate

_CAPACITIES = ("on_demand", "spot")


@cache
def bundled_candidates() -> tuple[Candidate, ...]:
    """Every instance type with a price in USD, by provider."""
    return tuple(candidate for provider in names() for row in listed(provider) for candidate in _of_row(row))


def _of_row(row: Listed) -> Iterator[Candidate]:
    for capacity in _CAPACITIES:
        price = row.price(capacity)
        if price is None:
            continue
        yield Candidate(
            row.provider,
            Offer(
                instance_type=row.instance_type,
                region="" if row.region == ANYWHERE else row.region,
                jurisdiction="",
                price=price,
                gpu_model=row.gpu_model,
                gpus=row.gpus,
                gpu_memory_gib=row.gpu_memory_gib,
                cpus=row.cpus or 0,
                memory_gib=row.memory_gib or 0.0,
                capacity=capacity,
            ),
        )
