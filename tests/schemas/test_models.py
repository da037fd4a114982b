"""The models of the job document as a surface: documented, strict, frozen, and light."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
import pytest
import shunter_schemas
from pydantic import BaseModel, ValidationError
from shunter_schemas import api
from shunter_schemas.base import Part
from shunter_schemas.faults import DocumentError
from shunter_schemas.inputs import Input
from shunter_schemas.job import JobSpec, load_job
from shunter_schemas.parse import parse_job
from shunter_schemas.resources import GangShape, Resources
from shunter_schemas.script import ScriptWorkload
from shunter_schemas.training import TrainingWorkload
from support.documents import ABSENT, body, changed, everything, script, tiny_lm


def _kinds_of(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for kind in model.__subclasses__():
        if not kind.__name__.startswith("_"):
            yield kind
        yield from _kinds_of(kind)


DOCUMENT = list(_kinds_of(Part))
PUBLIC = [*DOCUMENT, *_kinds_of(api.Answer)]
FIELDS = [
    pytest.param(model, str(field.validation_alias or name), id=f"{model.__name__}.{name}")
    for model in PUBLIC
    for name, field in model.model_fields.items()
]


def test_the_whole_document_is_covered_by_what_is_checked_here() -> None:
    names = {model.__name__ for model in PUBLIC}

    assert {"JobSpec", "SampleData", "HsdpStrategy", "SyntheticField", "GpuRange", "Job", "Problem"} <= names


@pytest.mark.parametrize(("model", "name"), FIELDS)
def test_every_field_has_a_description_and_examples_that_hold(model: type[BaseModel], name: str) -> None:
    schema = schema_of(model)
    field = schema["properties"][name]
    reader = jsonschema.Draft202012Validator({**field, "$defs": schema.get("$defs", {})})

    assert field["description"]
    assert field["examples"]
    for example in field["examples"]:
        reader.validate(example)


@functools.cache
def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    if "$ref" in schema:
        return {**schema["$defs"][schema["$ref"].rpartition("/")[2]], "$defs": schema["$defs"]}
    return schema


@pytest.mark.parametrize("model", PUBLIC, ids=lambda model: model.__name__)
def test_every_model_is_frozen_and_has_a_docstring(model: type[BaseModel]) -> None:
    assert model.model_config.get("frozen")
    assert model.__doc__


@pytest.mark.parametrize("model", DOCUMENT, ids=lambda model: model.__name__)
def test_every_part_of_the_document_is_closed_and_strict(model: type[BaseModel]) -> None:
    assert model.model_config.get("extra") == "forbid"
    assert model.model_config.get("strict")
    assert model.model_config.get("allow_inf_nan") is False


@pytest.mark.parametrize("document", [tiny_lm(), script(), everything()])
def test_a_document_that_is_written_out_reads_back_the_same(document: dict[str, Any]) -> None:
    job = load_job(document)

    again = JobSpec.model_validate_json(job.model_dump_json())

    assert again == job
    assert load_job(job.model_dump(mode="json")) == job


def test_a_document_that_uses_everything_lacks_nothing_but_availability() -> None:
    with pytest.raises(DocumentError) as refusal:
        parse_job(body(everything()))

    assert {fault.detail.partition(":")[0] for fault in refusal.value.faults} == {"not available yet"}


def test_a_stored_document_keeps_the_users_name_for_the_place_of_an_input() -> None:
    item = Input.model_validate({"from": "./data"})

    assert item.model_dump(mode="json") == {"from": "./data", "mode": "copy", "secret": None}


def test_nothing_of_a_document_can_be_changed() -> None:
    job = load_job(tiny_lm())

    with pytest.raises(ValidationError, match="frozen"):
        job.name = "other"  # type: ignore[misc]  # that is the point


def test_a_default_can_be_told_from_a_choice() -> None:
    job = load_job(changed(tiny_lm(), {"strategy": ABSENT}))

    assert job.strategy.kind == "auto"
    assert "strategy" not in job.model_fields_set
    assert "strategy" in load_job(tiny_lm()).model_fields_set


@pytest.mark.parametrize(
    ("resources", "gang"),
    [
        ({"cpu_processes": 2}, GangShape(1, 2, 2)),
        ({"cpu_processes": 2, "nodes": 3}, GangShape(3, 2, 6)),
        ({"gpus": 16}, GangShape(None, None, 16)),
        ({"gpus": 16, "nodes": 2}, GangShape(2, 8, 16)),
        ({"gpus": 16, "gpus_per_node": 4}, GangShape(4, 4, 16)),
        ({"nodes": 2, "gpus_per_node": 8}, GangShape(2, 8, 16)),
        ({"gpus": 16, "nodes": 2, "gpus_per_node": 8}, GangShape(2, 8, 16)),
    ],
)
def test_resources_say_how_the_ranks_lie_on_nodes(resources: dict[str, Any], gang: GangShape) -> None:
    assert Resources.model_validate_json(json.dumps(resources)).gang() == gang


@pytest.mark.parametrize(
    "resources",
    [
        {},
        {"nodes": 2},
        {"gpus_per_node": 2},
        {"gpus": {"min": 1, "max": 2}},
        {"gpus": 5, "nodes": 2},
        {"gpus": 5, "gpus_per_node": 2},
        {"gpus": 5, "nodes": 2, "gpus_per_node": 2},
    ],
)
def test_resources_that_leave_the_ranks_open_give_no_gang(resources: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"GPUs is a range|not given|do not agree"):
        Resources.model_validate_json(json.dumps(resources)).gang()


def test_a_training_knows_its_sequence_length_and_types() -> None:
    job = load_job(changed(tiny_lm(), {"workload.data.sequence_length": ABSENT, "workload.precision": "bf16"}))

    assert isinstance(job.workload, TrainingWorkload)
    assert job.workload.sequence_length == 128
    assert job.workload.dtypes.model_dump() == {"parameters": "fp32", "compute": "bf16", "reduce": "fp32"}


def test_a_script_is_spread_by_itself_unless_it_says_otherwise() -> None:
    job = load_job(script())

    assert isinstance(job.workload, ScriptWorkload)
    assert job.strategy.kind == "own"


def test_the_models_load_from_an_archive_with_pydantic_alone(tmp_path: Path) -> None:
    folder = Path(shunter_schemas.__file__).parent
    archive = tmp_path / "trainer.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in folder.rglob("*.py"):
            packed.write(path, path.relative_to(folder.parent))
    code = (
        "import sys\n"
        f"sys.path = [{str(archive)!r}, *(path for path in sys.path if not path.endswith('schemas'))]\n"
        "import shunter_schemas.job as job, shunter_schemas.parse\n"
        f"assert job.__file__.startswith({str(archive)!r}), job.__file__\n"
        "job.load_job(__import__('json').load(sys.stdin))\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names))\n"
    )

    ended = subprocess.run(
        [sys.executable, "-c", code], input=body(tiny_lm()), capture_output=True, check=False, timeout=60
    )

    assert ended.stderr.decode() == ""
    loaded = set(ended.stdout.decode().split())
    assert {"shunter_schemas", "pydantic"} <= loaded
    assert loaded.isdisjoint({"torch", "numpy", "httpx", "litestar", "sqlalchemy", "celery", "msgspec"})
