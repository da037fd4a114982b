"""Which parts of a model become units, by their structure and by the names of their classes."""

from typing import Any

import pytest
import torch
from shunter_trainer.failures import UserFault
from shunter_trainer.models.build import build_model
from shunter_trainer.strategies.axes import check_axes
from shunter_trainer.strategies.units import units_of
from support.trainings import TINY, parsed
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.down(self.up(x))
        return out


class Deep(nn.Module):
    def __init__(self, width: int, tied: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(4, width)
        self.stages = nn.ModuleList(nn.Sequential(Block(width), Block(width), nn.ReLU()) for _ in range(2))
        self.heads = nn.ModuleList([nn.Linear(width, 2), nn.Linear(width, 2)])
        if tied:
            self.stages[0][0].up.weight = self.stages[1][1].up.weight  # type: ignore[index]


def names(model: nn.Module, wrap: Any = "auto") -> list[str]:
    where = {id(module): name for name, module in model.named_modules()}
    return [where[id(unit.module)] for unit in units_of(model, wrap)]


def meta(width: int, tied: bool = False) -> Deep:
    with torch.device("meta"):
        return Deep(width, tied)


def test_a_model_that_names_its_blocks_is_split_at_them() -> None:
    model = build_model(parsed()).module

    assert names(model) == ["model.layers.1", "model.layers.0", ""]


def test_without_names_the_repeated_elements_of_containers_are_units_when_they_are_large_enough() -> None:
    assert names(meta(256)) == ["stages.1", "stages.0", ""]
    assert names(meta(8)) == [""]


def test_elements_that_are_repeated_inside_others_are_found_where_the_others_are_not_repeated() -> None:
    model = nn.Sequential(nn.Linear(4, 256, device="meta"), meta(256).stages[0])

    assert names(model) == ["1.1", "1.0", ""]


def test_class_names_choose_units_from_the_inside_out() -> None:
    assert names(meta(8), ("Block", "Sequential")) == [
        "stages.1.1",
        "stages.1.0",
        "stages.1",
        "stages.0.1",
        "stages.0.0",
        "stages.0",
        "",
    ]


def test_each_part_of_the_model_is_in_one_unit_the_innermost() -> None:
    model = meta(8)

    units = units_of(model, ("Block", "Sequential"))

    parts = [name for unit in units for name, _ in unit.parts]
    assert sorted(parts) == sorted(name for name, _ in model.named_modules())
    assert [name for name, _ in units[-1].parts] == ["", "first", "stages", "heads", "heads.0", "heads.1"]
    assert [name for name, _ in units[2].parts] == ["stages.1", "stages.1.2"]


def test_parts_that_share_a_parameter_stay_in_one_unit() -> None:
    assert names(meta(8, tied=True), ("Block",)) == ["stages.1.0", "stages.0.1", ""]
    tied = build_model(parsed(model={**TINY, "tied_embeddings": True})).module
    assert names(tied, ("Embedding", "Block")) == ["model.layers.1", "model.layers.0", ""]


@pytest.mark.parametrize(
    ("wrap", "pointer", "message"),
    [
        (
            ("Block", "Blok"),
            "/strategy/wrap/1",
            "no part of class 'Blok'; it has Block, Deep, Linear, ModuleList, ReLU",
        ),
        (("ModuleList",), "/strategy/wrap/0", "ModuleList only contains others and is never called"),
    ],
)
def test_a_class_that_cannot_be_a_unit_is_named(wrap: tuple[str, ...], pointer: str, message: str) -> None:
    with pytest.raises(UserFault) as refused:
        units_of(meta(8), wrap)

    assert refused.value.pointer == pointer
    assert message in str(refused.value)


def test_a_parameter_without_an_axis_is_named_with_the_way_out() -> None:
    model = nn.Linear(2, 2)
    check_axes(model)
    model.register_parameter("logit_scale", nn.Parameter(torch.tensor(1.0)))

    with pytest.raises(
        UserFault, match=r"^/workload/model: logit_scale is a single number .*; give it the shape \(1,\)"
    ):
        check_axes(model)
