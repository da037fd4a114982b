"""The generated JSON Schema: current, valid, and of one mind with the parser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
import pytest
from shunter_schemas import generate
from support.documents import changed, everything, script, tiny_lm

SCHEMA: dict[str, Any] = json.loads((generate.FOLDER / "job.schema.json").read_text(encoding="utf-8"))


def test_the_committed_schemas_are_what_the_models_say() -> None:
    assert generate.stale() == []
    assert {path.name for path in generate.FOLDER.iterdir()} == set(generate.SCHEMAS)


def test_the_schema_of_the_job_document_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)

    assert SCHEMA["$id"] == "/v1/schemas/job.json"
    assert SCHEMA["title"] == "Shunter job document, version 1"


@pytest.mark.parametrize("document", [tiny_lm(), script(), everything()])
def test_the_schema_accepts_what_the_parser_accepts(document: dict[str, Any]) -> None:
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid(document)


@pytest.mark.parametrize(
    "changes",
    [
        {"nmae": "x"},
        {"workload.batch.micro_size": "aut"},
        {"workload.seed": "17"},
        {"strategy": {"kind": "dpd"}},
        {"resources": {"gpus": 0}},
        {"inputs": {"a": {"from_": "x"}}},
        {"labels": {"/": "x"}},
    ],
)
def test_the_schema_refuses_what_the_models_refuse(changes: dict[str, Any]) -> None:
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(changed(tiny_lm(), changes))


def test_check_names_a_stale_file_and_writing_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "FOLDER", tmp_path / "json")

    before = generate.main(["--check"])
    written = generate.main([])
    after = generate.main(["--check"])

    assert (before, written, after) == (1, 0, 0)
    assert "job.schema.json is stale" in capsys.readouterr().err


def test_unknown_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--chek"]) == 2
    assert "usage:" in capsys.readouterr().err
