"""Gangs of ranks that end with the test that started them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shunter_trainer.places import Places
from support.ranks import Ranks

StartRanks = Callable[..., Ranks]


@pytest.fixture
def start_ranks(tmp_path: Path) -> Iterator[StartRanks]:
    """`start_ranks(document, world_size, name=…, nodes=…, **variables)`; every gang has a folder of its own."""
    started: list[Ranks] = []

    def start(document: dict[str, Any], world_size: int = 1, name: str = "gang", **options: Any) -> Ranks:
        ranks = Ranks(tmp_path / name, document, world_size, **options)
        started.append(ranks)
        return ranks

    yield start
    for ranks in started:
        ranks.close()


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Places in a temporary folder."""
    return Places.from_environment(
        {
            "SHUNTER_DOCUMENT": str(tmp_path / "document.json"),
            "SHUNTER_INPUTS_DIR": str(tmp_path / "inputs"),
            "SHUNTER_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
            "SHUNTER_OUTPUT_DIR": str(tmp_path / "output"),
        }
    )
