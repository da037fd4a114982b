"""The same document, seed and global batch give the same loss curve under every strategy and number of ranks."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.gangs import Trained
from support.parity import REFERENCE, TOLERANCE, apart, run
from support.strategies import ALL, VARIANTS

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Trained]:
    """Every kind of strategy on one rank."""
    return run(tmp_path_factory.mktemp("alone"), 1, ALL, ("fp32",), timeout_s=300.0)


@pytest.mark.parametrize(("world_size", "names"), [(2, (*ALL, *VARIANTS)), (4, (*ALL, "fsdp, by twos", "hsdp, kept"))])
def test_losses_do_not_depend_on_the_strategy_or_on_the_number_of_ranks(
    alone: Mapping[str, Trained], tmp_path: Path, world_size: int, names: tuple[str, ...]
) -> None:
    expected = alone[f"fp32 {REFERENCE}"]

    together = run(tmp_path, world_size, names, ("fp32",), timeout_s=500.0)

    found = {name: apart(expected.losses, trained.losses) for name, trained in {**alone, **together}.items()}
    assert max(found.values()) <= TOLERANCE["fp32"], found
    assert expected.losses[60] < expected.losses[1] - 1.0
    assert max(expected.values("grad_norm").values()) > 0.5


def test_bf16_is_the_same_within_its_precision(alone: Mapping[str, Trained], tmp_path: Path) -> None:
    together = run(tmp_path, 2, ("ddp", "fsdp", "hsdp", "zero-2", "zero-3"), ("bf16",), timeout_s=300.0)

    expected = together[f"bf16 {REFERENCE}"].losses
    found = {name: apart(expected, trained.losses) for name, trained in together.items()}
    assert max(found.values()) <= TOLERANCE["bf16"], found
    assert expected != alone[f"fp32 {REFERENCE}"].losses
