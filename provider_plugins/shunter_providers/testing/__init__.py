"""What plugin authors test with: the conformance kit (`ProviderConformance`, `CloudConformance`), and a base for fakes
that speak a vendor's wire format (`WireCloud`). The kit needs pytest and pytest-asyncio, the fakes need nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shunter_providers.testing.faults import CloudFault, Strike, Unpaced, Verb
from shunter_providers.testing.machines import Machine, Machines, Phase, new_hex_id
from shunter_providers.testing.wire import Refusal, Reply, Request, Route, WireCloud

if TYPE_CHECKING:
    from shunter_providers.testing.cloud_conformance import CloudConformance
    from shunter_providers.testing.conformance import ProviderConformance, make_intent

__all__ = [
    "CloudConformance",
    "CloudFault",
    "Machine",
    "Machines",
    "Phase",
    "ProviderConformance",
    "Refusal",
    "Reply",
    "Request",
    "Route",
    "Strike",
    "Unpaced",
    "Verb",
    "WireCloud",
    "make_intent",
    "new_hex_id",
]


def __getattr__(name: str) -> Any:
    """The kit's own part is loaded when it is asked for: a fake that serves needs no pytest."""
    if name == "CloudConformance":
        from shunter_providers.testing import cloud_conformance

        return cloud_conformance.CloudConformance
    if name in ("ProviderConformance", "make_intent"):
        from shunter_providers.testing import conformance

        return getattr(conformance, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
