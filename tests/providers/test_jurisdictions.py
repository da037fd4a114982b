"""Where a place lies in law."""

from __future__ import annotations

import pytest
from shunter_planner.matching import in_jurisdiction
from shunter_providers.jurisdictions import EEA, EU, is_jurisdiction, lies_in, of_region


@pytest.mark.parametrize(
    ("wanted", "place", "lies"),
    [
        (["EU"], "DE", True),
        (["EU"], "EU", True),
        (["EU"], "NO", False),
        (["EEA"], "NO", True),
        (["EEA"], "EU", True),
        (["EU"], "EEA", False),
        (["EU"], "GB", False),
        (["EU"], "CH", False),
        (["US"], "US", True),
        (["US", "CA"], "CA", True),
        (["EU"], "", False),
        (["EU", "US"], "RO", True),
    ],
)
def test_a_place_lies_in_its_country_and_in_the_classes_of_that(wanted: list[str], place: str, lies: bool) -> None:
    assert lies_in(wanted, place) is lies
    assert in_jurisdiction(wanted, place) is lies


def test_there_are_27_members_and_the_economic_area_has_three_more() -> None:
    assert (len(EU), len(EEA)) == (27, 30)


@pytest.mark.parametrize(
    ("region", "place"),
    [("eu-de-1", "DE"), ("eu-de-2", "FR"), ("eu-xx-1", "EU"), ("us-1", "US"), ("ap-1", "")],
)
def test_a_table_of_regions_knows_whole_names_before_beginnings_and_guesses_nothing(region: str, place: str) -> None:
    table = {"eu-*": "EU", "eu-de-*": "DE", "eu-de-2": "FR", "us-*": "US"}

    assert of_region(region, table) == place


@pytest.mark.parametrize(
    ("text", "is_one"), [("DE", True), ("EEA", True), ("", True), ("de", False), ("Germany", False)]
)
def test_a_jurisdiction_has_a_form(text: str, is_one: bool) -> None:
    assert is_jurisdiction(text) is is_one
