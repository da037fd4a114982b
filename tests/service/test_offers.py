"""Offers of all instances in one answer, with the age and the error of those that could not be read."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from shunter_providers.contract import Availability, Offer, Price
from shunter_service.showing.offer_views import OfferFilter, offer_page
from shunter_store.accounts import providers
from shunter_store.accounts.providers import ProviderRow
from shunter_store.installation.settings import ProviderSettings
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import providers as table
from sqlalchemy import update
from support.service_app import App

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def offer(name: str, usd: float, place: str = "DE", **more: Any) -> Offer:
    chosen = {"gpu_model": "H100", "gpus": 8, "gpu_memory_gib": 80, "availability": Availability.AVAILABLE, **more}
    price = Price(gpu_usd_per_hour=usd, live=False, as_of="2026-09-20", confidence="high")
    return Offer(name, f"{place.lower()}-1", place, price, **chosen)


def record(app: App, instance: str, *offers: Offer, ok: bool = True, detail: str = "") -> None:
    stored = [asdict(one) for one in offers]
    app.database.write(lambda conn: providers.record_health(conn, instance, "acme", ok, detail, offers=stored))


def three(app: App) -> None:
    record(app, "cloud", offer("dear", 40.0), offer("cheap", 20.0, "US", capacity="spot"))
    taken = offer("taken", 3.0, "NO", gpus=1, gpu_model="RTX-4090", availability=Availability.NONE)
    record(app, "local", taken)


async def shown(app: App, **query: Any) -> dict[str, Any]:
    answer = await app.http.get("/v1/offers", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_offers_of_all_instances_come_in_one_answer_cheapest_first_and_taken_ones_last(app: App) -> None:
    three(app)

    found = await shown(app)

    assert [(item["provider"], item["instance_type"]) for item in found["items"]] == [
        ("cloud", "cheap"),
        ("cloud", "dear"),
        ("local", "taken"),
    ]
    assert found["total"] == 3
    assert found["items"][0]["price"] == {
        "usd_per_hour": 20.0,
        "gpu_usd_per_hour": 20.0,
        "disk_usd_per_hour": 0.0,
        "setup_usd": 0.0,
        "billed": True,
        "live": False,
        "as_of": "2026-09-20",
        "confidence": "high",
        "currency": "USD",
        "usd_per_unit": 1.0,
    }


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"provider": "local"}, ["taken"]),
        ({"gpu_model": "rtx 4090"}, ["taken"]),
        ({"min_gpus": 2}, ["cheap", "dear"]),
        ({"region": "de-1"}, ["dear"]),
        ({"jurisdiction": "EU"}, ["dear"]),
        ({"jurisdiction": "EEA"}, ["dear", "taken"]),
        ({"jurisdiction": "US"}, ["cheap"]),
        ({"capacity": "spot"}, ["cheap"]),
        ({"available": True}, ["cheap", "dear"]),
        ({"limit": 1}, ["cheap"]),
        ({"provider": "nobody"}, []),
    ],
)
async def test_offers_are_filtered(lite: App, query: dict[str, Any], names: list[str]) -> None:
    three(lite)

    found = await shown(lite, **query)

    assert [item["instance_type"] for item in found["items"]] == names
    assert found["total"] == (3 if "limit" in query else len(names))


@pytest.mark.parametrize("query", [{"jurisdiction": "Germany"}, {"capacity": "cheap"}, {"limit": 0}, {"gpu": "H100"}])
async def test_a_filter_that_makes_no_sense_is_named(lite: App, query: dict[str, Any]) -> None:
    answer = await lite.http.get("/v1/offers", params=query)

    assert answer.status_code == 422
    assert next(iter(query)) in answer.text


async def test_a_broken_instance_is_shown_with_its_error_and_its_older_offers_and_hides_no_other(app: App) -> None:
    three(app)
    record(app, "cloud", ok=False, detail="the token was refused")
    app.database.write(lambda conn: conn.execute(update(table).values(offers_at=db_now() - 100)))

    found = await shown(app)

    sources = {source["name"]: source for source in found["sources"]}
    assert found["total"] == 3
    assert (sources["cloud"]["status"], sources["cloud"]["detail"]) == ("error", "the token was refused")
    assert 99 < sources["cloud"]["age_s"] < 130
    assert sources["local"]["status"] == "ok"


async def test_an_instance_that_nobody_has_read_yet_is_shown_as_that(lite: App) -> None:
    found = await shown(lite)

    assert found["items"] == []
    assert {(source["name"], source["status"]) for source in found["sources"]} == {
        ("cloud", "unknown"),
        ("local", "unknown"),
    }


@pytest.mark.parametrize("hold", ["paused", "spend_frozen"])
def test_an_instance_that_is_held_says_by_whom(hold: str) -> None:
    row = ProviderRow("far", "acme", True, "", "me", {}, [asdict(offer("a", 1.0))], NOW, NOW - timedelta(seconds=5))
    settings = {"far": ProviderSettings.model_validate({"plugin": "acme", hold: True})}

    (source,) = offer_page(settings, [row], OfferFilter(), NOW, 10).sources

    assert (source.status, source.age_s) == (hold, 5.0)
    assert "the operator has" in source.detail


def test_an_instance_that_is_no_longer_configured_offers_nothing() -> None:
    row = ProviderRow("gone", "acme", True, "", "me", {}, [asdict(offer("a", 1.0))], NOW, NOW)

    page = offer_page({}, [row], OfferFilter(), NOW, 10)

    assert (page.items, page.sources) == ((), ())


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"capacity": "foo"}, "query parameter `capacity`: must be one of on_demand, spot, reserved"),
        ({"jurisdiction": "Europe"}, "query parameter `jurisdiction`: must be EU, EEA or an ISO country code of two"),
    ],
)
async def test_a_wrong_choice_is_told_the_right_ones(app: App, query: dict[str, str], words: str) -> None:
    answer = await app.http.get("/v1/offers", params=query)

    assert answer.status_code == 422
    assert words in answer.json()["detail"]
