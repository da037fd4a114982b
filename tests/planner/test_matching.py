"""What counts as a wanted GPU, and as a wanted place."""

from __future__ import annotations

import pytest
from shunter_planner.matching import in_jurisdiction, is_gpu_model
from shunter_providers.contract import Offer, Price


@pytest.mark.parametrize(
    ("wanted", "model", "memory_gib", "same"),
    [
        ("H100", "H100", 80, True),
        ("h100", "H100", 80, True),
        ("A100-80GB", "A100", 80, True),
        ("A100 80GB", "A100", 40, False),
        ("RTX 4090", "RTX-4090", 24, True),
        ("H100", "H200", 141, False),
        ("A10", "A100", 80, False),
    ],
)
def test_gpu_models_are_known_by_their_usual_names(wanted: str, model: str, memory_gib: float, same: bool) -> None:
    offer = Offer("some", "eu-1", "DE", Price(), gpu_model=model, gpus=8, gpu_memory_gib=float(memory_gib))

    assert is_gpu_model(wanted, offer) is same


@pytest.mark.parametrize(
    ("wanted", "place", "inside"),
    [
        (["EU"], "DE", True),
        (["EU"], "NO", False),
        (["EEA"], "NO", True),
        (["EEA"], "EU", True),
        (["EU"], "EEA", False),
        (["US", "DE"], "US", True),
        (["DE"], "EU", False),
        (["EU"], "", False),
    ],
)
def test_jurisdictions_are_sets_of_countries(wanted: list[str], place: str, inside: bool) -> None:
    assert in_jurisdiction(wanted, place) is inside
