"""The bundled catalogue: dated, of known confidence, and never a price of nothing."""

from __future__ import annotations

import re

import pytest
from shunter_providers import catalogue
from shunter_providers.catalogue import CONFIDENCES, Listed

HEAD = (
    "provider,instance_type,gpu_model,gpus,gpu_memory_gib,cpus,memory_gib,region,price_per_hour,"
    "spot_price_per_hour,currency,as_of,confidence,note,source"
)
PROVIDERS = (
    *("aws", "azure", "coreweave", "digitalocean", "gcp", "hetzner-robot", "lambda", "ovh", "paperspace", "runpod"),
    "vast",
)


def every_row() -> list[Listed]:
    return [row for provider in PROVIDERS for row in catalogue.listed(provider)]


def test_it_knows_every_cloud_and_says_of_each_price_how_old_and_how_sure_it_is() -> None:
    rows = every_row()

    assert all(catalogue.listed(provider) for provider in PROVIDERS)
    assert all(row.confidence in CONFIDENCES for row in rows)
    assert all(re.fullmatch(r"20\d\d(-\d\d-\d\d)?", row.as_of) for row in rows if row.per_hour is not None)


def test_no_price_is_nothing_and_spot_is_never_dearer() -> None:
    for row in every_row():
        assert row.per_hour is None or row.per_hour > 0
        assert row.spot_per_hour is None or row.per_hour is None or row.spot_per_hour < row.per_hour


def test_a_price_of_the_catalogue_is_marked_as_one() -> None:
    row = catalogue.find("lambda", "gpu_8x_h100_sxm5", "us-west-1")
    assert row is not None

    price = row.price()

    assert price is not None
    assert (price.usd_per_hour, price.live, price.as_of, price.confidence) == (31.92, False, "2026-09-20", "high")


def test_a_row_without_a_price_gives_the_shape_and_no_price() -> None:
    row = catalogue.find("aws", "p5en.48xlarge", "us-east-1")

    assert row is not None
    assert (row.gpu_model, row.gpus, row.price()) == ("H200", 8, None)


def test_another_currency_needs_a_rate_that_somebody_named() -> None:
    row = catalogue.find("ovh", "l4-90", "EU")
    assert row is not None

    price = row.price(rates={"EUR": 1.2})

    assert row.price() is None
    assert price is not None
    assert (price.usd_per_hour, price.currency, price.usd_per_unit) == (0.9, "EUR", 1.2)


def test_spot_has_a_price_of_its_own_or_none() -> None:
    google = catalogue.find("gcp", "a3-ultragpu-8g", "us-central1")
    assert google is not None

    spot = google.price("spot")

    assert spot is not None
    assert spot.usd_per_hour == 50.09
    assert catalogue.listed("lambda")[0].price("spot") is None


@pytest.mark.parametrize("amount", ["0", "-1", "nan", "inf", "1e9", "free"])
def test_a_row_with_a_price_that_is_none_is_refused_by_its_number(amount: str) -> None:
    row = f"acme,a,H100,1,80,,,*,{amount},,USD,2026-01-01,high,,me"

    with pytest.raises(ValueError, match="row 2"):
        list(catalogue.read(iter([HEAD, row])))


def test_a_row_of_unknown_confidence_is_refused() -> None:
    with pytest.raises(ValueError, match="'sure' is no confidence"):
        list(catalogue.read(iter([HEAD, "acme,a,H100,1,80,,,*,1,,USD,2026-01-01,sure,,me"])))
