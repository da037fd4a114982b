"""The same document, seed and global batch give the same loss curve under every strategy and number of ranks."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.gangs import Trained
from support.parity import REFERENCE, TOLERANCE, apart, measure, run
from support.strategies import ALL, VARIANTS

pytestmark = [pytest.mark.trainer, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Trained]:
    """Some strategies on one rank."""
    return run(tmp_path_factory.mktemp("alone"), 1, ("ddp", "fsdp", "zero-3"), ("fp32",), timeout_s=300.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world_size", "names"),
    [(2, (*ALL, "fsdp, by class", "hsdp, kept")), (4, ALL)],
)
def test_losses_do_not_depend_on_the_strategy_or_on_the_number_of_ranks(
    alone: Mapping[str, Trained], tmp_path: Path, world_size: int, names: tuple[str, ...]
) -> None:
    expected = alone[f"fp32 {REFERENCE}"]

    together = run(tmp_path, world_size, names, ("fp32",), timeout_s=500.0)

    found = {name: apart(expected.losses, trained.losses) for name, trained in {**alone, **together}.items()}
    assert max(found.values()) <= TOLERANCE["fp32"], found
    assert expected.losses[60] < expected.losses[1] - 1.0
    assert max(expected.values("grad_norm").values()) > 0.5


@pytest.mark.slow
def test_bf16_is_the_same_within_its_precision(alone: Mapping[str, Trained], tmp_path: Path) -> None:
    together = run(tmp_path, 2, ("ddp", "fsdp", "zero-2", "zero-3"), ("bf16",), timeout_s=300.0)

    expected = together[f"bf16 {REFERENCE}"].losses
    found = {name: apart(expected, trained.losses) for name, trained in together.items()}
    assert max(found.values()) <= TOLERANCE["bf16"], found
    assert expected != alone[f"fp32 {REFERENCE}"].losses


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_so_it_is_with_every_setting_and_precision(tmp_path: Path) -> None:
    trained = {world_size: measure(tmp_path, world_size) for world_size in (1, 2, 4)}

    for precision, tolerance in TOLERANCE.items():
        expected = trained[1][f"{precision} {REFERENCE}"].losses
        found = {
            (name, world_size): apart(expected, trained[world_size][f"{precision} {name}"].losses)
            for world_size in trained
            for name in (*ALL, *VARIANTS)
        }
        assert {place: distance for place, distance in found.items() if distance > tolerance} == {}
