"""Where a place lies in law: ISO 3166 countries, and the classes EU and EEA that documents may name.

`US` is a country like any other. An unknown place (empty) lies in no class: a job that demands one never runs there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

# fmt: off
EU: Final = frozenset({
    "AT", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GR", "HR", "HU",
    "IE", "IT", "LT", "LU", "LV", "MT", "NL", "PL", "PT", "RO", "SE", "SI", "SK",
})
"""Members of the European Union. The United Kingdom and Switzerland are in neither class."""
# fmt: on
EEA: Final = EU | {"IS", "LI", "NO"}

CLASSES: Final[Mapping[str, frozenset[str]]] = {"EU": EU | {"EU"}, "EEA": EEA | {"EU", "EEA"}}
"""What lies in a class: countries, and classes that lie in it whole."""


def lies_in(wanted: Collection[str], jurisdiction: str) -> bool:
    """Whether a place lies in one of the wanted ones."""
    return any(jurisdiction in CLASSES.get(place, frozenset({place})) for place in wanted)


def is_jurisdiction(text: str) -> bool:
    """Whether it has the form of one: `EU`, `EEA`, two capitals, or empty for unknown."""
    return re.fullmatch(r"(EEA|[A-Z]{2})?", text) is not None


def of_region(region: str, table: Mapping[str, str]) -> str:
    """The jurisdiction of a region by a plugin's table of whole names and of beginnings (`eu-de-*`).

    A whole name wins, then the longest beginning; empty where the table says nothing: better unknown than wrong.
    """
    if region in table:
        return table[region]
    fits = [name for name in table if name.endswith("*") and region.startswith(name[:-1])]
    return table[max(fits, key=len)] if fits else ""
