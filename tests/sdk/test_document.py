import io
import json
from pathlib import Path
from typing import Any

import pytest
from shunter.document import encode, folders, load_document, with_bundle, with_source, with_values
from shunter.errors import InvalidDocument


def test_values_are_read_as_json_and_otherwise_as_text() -> None:
    changed = with_values(
        {"name": "a", "workload": {"batch": {"global_size": 8}}},
        ["workload.batch.global_size=64", "name=run-7", "strategy={\"kind\": \"ddp\"}", "version=\"1\"", "x.y.z=true"],
    )  # fmt: skip

    assert changed == {
        "name": "run-7",
        "version": "1",
        "workload": {"batch": {"global_size": 64}},
        "strategy": {"kind": "ddp"},
        "x": {"y": {"z": True}},
    }


def test_setting_a_value_leaves_the_given_document_alone() -> None:
    document: dict[str, Any] = {"limits": {"max_duration_s": 1}}

    with_values(document, ["limits.max_duration_s=2"])

    assert document == {"limits": {"max_duration_s": 1}}


def test_numbers_are_places_in_lists_and_an_escaped_dot_belongs_to_the_name() -> None:
    changed = with_values(
        {"workload": {"arguments": ["--lr", "1"]}, "labels": {}}, ["workload.arguments.1=2e-4x", r"labels.a\.b=c"]
    )

    assert changed == {"workload": {"arguments": ["--lr", "2e-4x"]}, "labels": {"a.b": "c"}}


def test_a_value_may_hold_equals_signs() -> None:
    assert with_values({}, ["environment.variables.OPTS=a=b"]) == {"environment": {"variables": {"OPTS": "a=b"}}}


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("name", "expected path=value"),
        ("=3", "expected path=value"),
        ("a..b=3", "expected path=value"),
        ("name.first=x", "/name is text"),
        ("list.7=x", "7 is no place in a list of 2"),
        ("list.x=1", "x is no place in a list of 2"),
        ("number.a.b=1", "/number is a number"),
    ],
)
def test_a_setting_that_leads_nowhere_is_refused(setting: str, complaint: str) -> None:
    with pytest.raises(InvalidDocument, match=complaint):
        with_values({"name": "a", "list": [1, 2], "number": 4}, [setting])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", r"job\.json: not JSON: .* at line 1, column 2"),
        ("", "is empty"),
        ("[1]", "holds a list; a job document is an object"),
        ("true", "holds true or false"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key stands here more than once"),
        ('{"a": NaN}', "NaN is no JSON number"),
        ("[" * 100_000, "nested deeper than 64 levels"),
    ],
)
def test_what_is_no_job_document_is_refused_with_the_place(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "job.json"
    file.write_text(text)

    with pytest.raises(InvalidDocument, match=complaint):
        load_document(file)


def test_a_missing_file_and_a_binary_file_are_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "image.json").write_bytes(b"\x89PNG\xff\xfe")

    with pytest.raises(InvalidDocument, match=r"nowhere\.json: No such file"):
        load_document(tmp_path / "nowhere.json")
    with pytest.raises(InvalidDocument, match="not UTF-8 at byte 0"):
        load_document(tmp_path / "image.json")


def test_a_yaml_file_is_the_same_document(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text('version: "1"\nname: a\nresources: {gpus: 2}\n')

    assert load_document(tmp_path / "job.yaml") == {"version": "1", "name": "a", "resources": {"gpus": 2}}


def test_a_json_file_may_hold_comments_and_an_address_of_its_schema(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{\n  // for editors\n  "$schema": "http://x/job.json", "name": "a",\n}')

    assert load_document(tmp_path / "job.json") == {"name": "a"}


@pytest.mark.parametrize("text", ['{"name": "a"}', '// why\n{"name": "a",}', "name: a\n", "# why\nname: a\n"])
def test_standard_input_may_be_json_or_yaml(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    assert load_document("-") == {"name": "a"}


def test_folders_are_found_in_source_and_inputs_but_urls_and_bundles_are_not(tmp_path: Path) -> None:
    document = {
        "source": {"kind": "folder"},
        "inputs": {
            "base": {"from": "./llama"},
            "far": {"from": "s3://acme/x"},
            "sent": {"from": "bundle:bun_1"},
            "abs": {"from": "/data"},
        },
    }

    found = [(folder.place, folder.path) for folder in folders(document, tmp_path)]

    assert found == [
        ("/source", tmp_path),
        ("/inputs/base", tmp_path / "llama"),
        ("/inputs/abs", Path("/data")),
    ]


def test_a_bundle_takes_the_place_of_its_folder(tmp_path: Path) -> None:
    document = {"source": {"kind": "folder"}, "inputs": {"base": {"from": "./llama", "mode": "copy"}}}
    source, base = folders(document, tmp_path)

    changed = with_bundle(with_bundle(document, source, "bun_1"), base, "bun_2")

    assert changed == {
        "source": {"kind": "bundle", "id": "bun_1"},
        "inputs": {"base": {"from": "bundle:bun_2", "mode": "copy"}},
    }


def test_a_source_folder_given_beside_the_document_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    changed = with_source({"source": {"kind": "git", "url": "x"}}, "code")

    assert changed["source"] == {"kind": "folder", "path": str(tmp_path / "code")}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {1, 2}])
def test_what_json_cannot_carry_is_refused_before_it_is_sent(value: object) -> None:
    with pytest.raises(InvalidDocument, match="cannot be written as JSON"):
        encode({"name": value})


def test_text_goes_out_as_utf8() -> None:
    assert json.loads(encode({"name": "größe"})) == {"name": "größe"}


def test_a_program_in_place_of_a_document_is_answered_with_the_command_that_runs_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")

    with pytest.raises(InvalidDocument) as refused:
        load_document(tmp_path / "train.py")

    assert refused.value.hint == f"a program is started with: shunter run {tmp_path / 'train.py'}"
