"""Whether a plugin's answer is of the kind that its verb promises. What is not is refused, in words that name it.

A listing that is no listing is an error and never an empty one: nodes that are not listed count as gone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from shunter_providers.contract import Fault, Identity, NodeView, Offer, Price, Scope


class Sane(NamedTuple):
    """Offers that can be ranked, and what was wrong with the others."""

    offers: Sequence[Offer]
    faults: Sequence[str]


def check_identity(got: Any) -> Identity:
    """Raises TypeError, as all checks here do."""
    if not isinstance(got, Identity) or not isinstance(got.account, str) or not got.account:
        raise TypeError(f"answered {_kind(got)}, not an Identity with an account")
    return got


def check_handle(got: Any) -> str:
    """A handle that can be kept: a string of 1 to 1000 characters."""
    if not isinstance(got, str) or not 0 < len(got) <= 1000:
        raise TypeError(f"answered {_kind(got)}, not a handle")
    return got


def check_text(got: Any) -> str:
    """Text for people."""
    if not isinstance(got, str):
        raise TypeError(f"answered {_kind(got)}, not text")
    return got


def check_view(got: Any) -> NodeView:
    """A node with a handle, and a fault of the contract if any."""
    if not isinstance(got, NodeView) or not isinstance(got.handle, str):
        raise TypeError(f"answered {_kind(got)}, not a NodeView")
    if not isinstance(got.fault, Fault | None) or not isinstance(got.scope, Scope):
        raise TypeError(f"answered a NodeView with the fault {got.fault!r} of the scope {got.scope!r}")
    return got


def check_views(got: Any) -> Sequence[NodeView]:
    """A list of nodes, each with a handle of its own."""
    if not isinstance(got, list | tuple):
        raise TypeError(f"answered {_kind(got)}, not a list of NodeView")
    return [check_view(view) for view in got]


def check_verdict(got: Any) -> bool:
    """Gone, or not yet."""
    if not isinstance(got, bool):
        raise TypeError(f"answered {_kind(got)}, not True or False")
    return got


def sane_offers(got: Any, bills: bool) -> Sane:
    """The offers with a price that can be: above 0 where nodes are billed, a number in any case."""
    if not isinstance(got, list | tuple) or not all(isinstance(offer, Offer) for offer in got):
        raise TypeError(f"answered {_kind(got)}, not a list of Offer")
    faults = {id(offer): _price_fault(offer.price, bills) for offer in got}
    return Sane(
        [offer for offer in got if faults[id(offer)] is None],
        [
            f"{offer.instance_type} in {offer.region} is left out: {fault}"
            for offer in got
            if (fault := faults[id(offer)])
        ],
    )


def _price_fault(price: Price, bills: bool) -> str | None:
    parts = (price.gpu_usd_per_hour, price.disk_usd_per_hour, price.setup_usd)
    if not all(isinstance(part, int | float) and math.isfinite(part) and part >= 0 for part in parts):
        return f"a price of {parts} is none"
    if bills and price.billed and price.usd_per_hour <= 0:
        return "a price of 0 is none"
    return None


def _kind(got: Any) -> str:
    return "nothing" if got is None else f"{type(got).__name__}"
