"""`${…}` without a shell."""

from __future__ import annotations

import pytest
from shunter_agent.preparing.substitution import UnknownName, substitute, substitute_all, substitute_values

VALUES = {
    "inputs.base": "/n/inputs/base",
    "output_dir": "/n/out put",
    "latest_checkpoint": "",
    "job_id": "${world_size}",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("${inputs.base}", "/n/inputs/base"),
        ("--dir=${output_dir}/${inputs.base}", "--dir=/n/out put//n/inputs/base"),
        ("[${latest_checkpoint}]", "[]"),
        ("$HOME $(rm -rf /) `x` $inputs.base", "$HOME $(rm -rf /) `x` $inputs.base"),
        ("${job_id}", "${world_size}"),
        ("$${output_dir}", "$/n/out put"),
        ("${", "${"),
    ],
)
def test_known_names_are_replaced_once_and_nothing_else(text: str, expected: str) -> None:
    assert substitute(text, VALUES) == expected


@pytest.mark.parametrize("text", ["${HOME}", "${}", "${inputs.other}", "${ output_dir}", "${OUTPUT_DIR}"])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(text: str) -> None:
    with pytest.raises(UnknownName, match=r"known: inputs\.base, job_id"):
        substitute(text, VALUES)


def test_lists_and_mappings_are_replaced_item_by_item() -> None:
    assert substitute_all(["a", "${output_dir}"], VALUES) == ["a", "/n/out put"]
    assert substitute_values({"${output_dir}": "${output_dir}"}, VALUES) == {"${output_dir}": "/n/out put"}
