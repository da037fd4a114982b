"""Ids: their form, and that they sort by the time they were made."""

from __future__ import annotations

import time
from unittest.mock import patch

import pytest
from shunter_schemas.ids import is_id, new_deployment_id, new_id, new_node_token


def test_a_new_id_has_the_form_of_its_kind_only() -> None:
    made = new_id("job")

    assert is_id("job", made)
    assert not is_id("bun", made)
    assert len(made) == 30


@pytest.mark.parametrize("text", ["", "job", "job_", "job_01", "job_" + "8" * 26, "job_" + "i" * 26, "JOB_" + "0" * 26])
def test_other_texts_are_no_ids(text: str) -> None:
    assert not is_id("job", text)


def test_ids_sort_by_the_millisecond_they_were_made_in() -> None:
    start = time.time_ns()
    moments = [start + step * 1_000_000 for step in range(50)]

    with patch("time.time_ns", side_effect=moments):
        made = [new_id("job") for _ in moments]

    assert made == sorted(made)


def test_a_node_token_is_a_name_that_every_cloud_takes() -> None:
    token = new_node_token(new_deployment_id())

    assert token.startswith("shn-")
    assert len(token) == 27
    assert token == token.lower()
    assert token.replace("-", "").isalnum()
