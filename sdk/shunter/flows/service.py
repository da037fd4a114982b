"""The service about itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from shunter_schemas.api import Me, OfferPage, ProviderInfo, ProviderPage, Readiness

from shunter.flows.answers import get, post
from shunter.steps import Flow, ask


def me() -> Flow[Me]:
    """The key that is sent, and what it allows."""
    return ask(get(Me, "/v1/me"))


def providers() -> Flow[Sequence[ProviderInfo]]:
    """The configured provider instances."""
    return (yield from ask(get(ProviderPage, "/v1/providers"))).items


def retry_provider(name: str) -> Flow[ProviderInfo]:
    """An instance that refused nodes may be asked for them again."""
    return ask(post(ProviderInfo, f"/v1/providers/{quote(name, safe='')}/retry"))


def offers(**where: Any) -> Flow[OfferPage]:
    """What all instances offer, by the parameters of `GET /v1/offers`."""
    given = {name: value for name, value in where.items() if value is not None and value is not False}
    return ask(get(OfferPage, "/v1/offers", given))


def readiness(*, tries: int | None = None) -> Flow[Readiness]:
    """Whether the service can serve."""
    return ask(get(Readiness, "/readyz", tries=tries))
