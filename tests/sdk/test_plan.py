"""`shunter plan`: without a service, and as lines for people."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shunter.cli.plan_words import memory_bar, plan_lines
from shunter.document import Document
from shunter.errors import InvalidDocument
from shunter.model_config import with_model_config
from shunter.offline import plan_offline
from shunter_schemas.api import PlanAnswer, PlannedMemory
from support.documents import changed, tiny_lm

CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
WEIGHTS = {"kind": "huggingface", "weights": "input:base"}


def document(**changes: Any) -> Document:
    """A training of an 8 B model whose folder of weights lies in `base`."""
    return changed(
        tiny_lm(),
        {
            "strategy": {"kind": "auto"},
            "resources": {"gpus": 8, "gpu_models": ["H100"]},
            "limits": {},
            "workload.model": WEIGHTS,
            "workload.data.sequence_length": 4096,
            "workload.batch": {"global_size": 64},
            "workload.duration": {"steps": 1000},
            "workload.precision": "bf16",
            "inputs": {"base": {"from": "./base"}},
            **changes,
        },
    )


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder with weights' configuration."""
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def answered(base: Path, **changes: Any) -> PlanAnswer:
    return plan_offline(with_model_config(document(**changes), base), base)


def test_a_plan_needs_no_service_but_the_document_and_the_models_configuration(base: Path) -> None:
    answer = answered(base)

    assert answer.chosen is not None
    assert answer.chosen.strategy == {"kind": "fsdp"}
    assert answer.chosen.gpu_model is not None
    assert answer.chosen.gpu_model.startswith("H100")
    assert answer.chosen.cost.usd is not None
    assert "bundled catalogue" in answer.notes[0]


def test_the_configuration_of_weights_goes_under_what_the_document_says(base: Path) -> None:
    asked = {**WEIGHTS, "config": {"num_hidden_layers": 2}}

    merged = with_model_config(document(**{"workload.model": asked}), base)

    assert merged["workload"]["model"]["config"] == {**CONFIG, "num_hidden_layers": 2}


def test_a_configuration_that_is_named_is_taken_and_must_be_there(base: Path) -> None:
    with pytest.raises(InvalidDocument, match=r"nowhere\.json: No such file"):
        with_model_config(document(), base, base / "nowhere.json")


def test_weights_without_a_configuration_are_planned_as_unknown(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()

    answer = answered(tmp_path)

    assert answer.chosen is not None
    assert answer.chosen.memory is None
    assert "`config.json` of input:base could not be read" in answer.chosen.why


def test_lines_show_the_bar_the_interval_and_why_others_were_not_taken(base: Path) -> None:
    text = "\n".join(plan_lines(answered(base)))

    assert "strategy    fsdp  (nothing simpler fits: needs 52.6 of 79.1 GiB)" in text
    assert "A activations 24.6" in text
    assert "1,000 steps, 4:00 to start up" in text
    assert "alternatives" in text
    assert "not taken (" in text


def test_what_nothing_takes_is_said_first(base: Path) -> None:
    lines = plan_lines(answered(base, strategy={"kind": "ddp"}))

    assert lines[0] == "nothing takes this job (does_not_fit)"
    assert "strategy fsdp would need 52.6" in lines[1]


def test_the_bar_has_a_letter_for_each_part_and_points_for_what_is_free() -> None:
    memory = PlannedMemory(need_gib=30.0, available_gib=40.0, parts_gib={"parameters": 10.0, "activations": 20.0})

    assert memory_bar(memory, width=8) == "[PPAAAA..]"


def test_a_plan_is_printed_by_the_command_as_json_too(base: Path) -> None:
    file = base / "job.json"
    file.write_text(json.dumps(document()))

    ran = subprocess.run(
        [sys.executable, "-m", "shunter", "plan", str(file), "--offline", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["chosen"]["strategy"] == {"kind": "fsdp"}
