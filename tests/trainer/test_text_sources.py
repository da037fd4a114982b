"""Texts out of parquet files, JSON lines and Hugging Face folders, with tokenizers, classes and ready-made ids."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shunter_trainer.data.build import DataSets, build_data
from shunter_trainer.data.samples import IGNORED, Samples, Unindexed
from shunter_trainer.failures import UserFault
from shunter_trainer.places import Places
from support.tokenizer_folders import write_tokenizer
from support.trainings import TINY, parsed

TEXTS = ["the quick brown fox", "hello", "how are you today, dog?"]
MODEL = {**TINY, "vocab": 512}
CLASSIFIER = {"kind": "huggingface", "config": {"model_type": "bert"}, "task": "sequence_classification"}
Make = Callable[..., DataSets]


@pytest.fixture
def made(places: Places) -> Make:
    """`made(columns, kind=…, data members…)`: data in `inputs/a`, as rows of parquet or lines of JSON."""

    def make(columns: dict[str, list[Any]], kind: str = "parquet", model: Any = MODEL, **members: Any) -> DataSets:
        folder = places.inputs / "a"
        folder.mkdir(parents=True, exist_ok=True)
        if kind == "jsonl":
            lines = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
            (folder / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        else:
            pq.write_table(pa.table(columns), folder / "x.parquet", row_group_size=2)
        data = {"kind": kind, "path": f"input:a/x.{kind}", "sequence_length": 8, **members}
        return build_data(parsed(model=model, data=data), places)

    return make


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_texts_of_a_column_are_packed_with_an_end_between_them(made: Make, places: Places, kind: str) -> None:
    write_tokenizer(places.inputs / "tok")

    data = made({"other": [1, 2, 3], "body": TEXTS}, kind, field="body", tokenizer="input:tok", sequence_length=2)

    ids = rows(data)["input_ids"].flatten().tolist()
    assert decoded(places, ids).split("</s>")[:3] == TEXTS


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_lists_of_ids_are_taken_as_they_are(made: Make, kind: str) -> None:
    data = made({"ids": [[1, 2, 3], [500], [4, 5, 6, 7]]}, kind, field="ids", sequence_length=4)

    assert rows(data)["input_ids"].tolist() == [[1, 2, 3, 500], [4, 5, 6, 7]]


def test_ids_of_a_model_that_tells_no_vocabulary_are_kept_whole(made: Make) -> None:
    model = {"kind": "python", "target": "models:any"}

    data = made({"ids": [[1, 70_000, 2**32 - 1]]}, model=model, field="ids", packing=False, sequence_length=3)

    assert rows(data)["input_ids"].tolist() == [[1, 70_000, 2**32 - 1]]


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_texts_with_classes_are_samples_of_their_own(made: Make, places: Places, kind: str) -> None:
    write_tokenizer(places.inputs / "tok")
    columns = {"text": [*TEXTS, ""], "mood": ["good", "bad", "good", "odd"]}

    data = made(columns, kind, CLASSIFIER, label="mood", tokenizer="input:tok", sequence_length=6)

    batch = rows(data)
    assert data.classes == ("bad", "good", "odd")
    assert batch["labels"].tolist() == [1, 0, 1, 2]
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (4, 6)
    first = batch["input_ids"][1][batch["attention_mask"][1] == 1]
    assert decoded(places, first.tolist()) == "hello"
    assert "of 4 texts were cut to 6 tokens" in data.notes[0]


def test_numbers_stay_the_classes_that_they_are(made: Make) -> None:
    data = made({"text": TEXTS, "y": [2, 0, 2]}, model=CLASSIFIER, label="y")

    assert data.classes == ("0", "1", "2")
    assert rows(data)["labels"].tolist() == [2, 0, 2]


@pytest.mark.parametrize(
    ("columns", "members", "place", "hint"),
    [
        ({"text": TEXTS}, {"label": "y"}, "label", "x.jsonl, line 1 has no 'y' (it holds text)"),
        ({"text": TEXTS, "y": ["a", 1, "b"]}, {"label": "y"}, "label", "line 2 has a number for a class, those before"),
        (
            {"text": TEXTS, "y": [0, -1, 0]},
            {"label": "y"},
            "label",
            "line 2 has the class -1; classes are counted",
        ),
        ({"text": TEXTS, "y": [0, None, 0]}, {"label": "y"}, "label", "line 2 has nothing for a class"),
        ({"text": TEXTS, "y": [0.5, 1, 0]}, {"label": "y"}, "label", "line 1 has a float for a class"),
        ({"text": ["fine", None, "x"]}, {}, "field", "line 2 has no text in 'text'"),
        ({"text": ["fine", 3, "x"]}, {}, "field", "line 2 has no text in 'text'"),
        ({"text": ["fine", [1, "x"], "x"]}, {}, "field", "line 2: the list 'text' holds something else than token ids"),
        ({"text": [[1, 512]]}, {}, "field", "line 1 holds ids outside the model's vocabulary of 512"),
        ({"text": ["x"]}, {}, "", "the data has 2 tokens, fewer than one sample of 8"),
        ({"text": [""]}, {"packing": False}, "", "hold no text of two tokens or more"),
    ],
)
def test_lines_that_do_not_fit_are_named(
    made: Make, columns: dict[str, list[Any]], members: dict[str, Any], place: str, hint: str
) -> None:
    with pytest.raises(UserFault) as refused:
        made(columns, "jsonl", **members)

    assert refused.value.pointer == f"/workload/data/{place}".rstrip("/")
    assert hint in str(refused.value)


def test_what_is_wrong_with_a_parquet_file_is_said(made: Make, places: Places) -> None:
    with pytest.raises(UserFault, match=r"path: x.parquet has no column 'body' \(it has n, text\)"):
        made({"text": TEXTS, "n": [1, 2, 3]}, field="body")
    with pytest.raises(UserFault, match=r"field: x.parquet, row 3 has no text in 'text'"):
        made({"text": ["a", "b", None]})
    (places.inputs / "a" / "y.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(UserFault, match=r"path: y.parquet cannot be read as parquet"):
        build_data(parsed(data={"kind": "parquet", "path": "input:a/y.parquet"}), places)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b'{"text": "caf\xe9"}\n', "x.jsonl, line 1 is not UTF-8 at byte 13"),
        (b'[{"text": "a"}]', "x.jsonl, line 1 holds a list; give one JSON object a line"),
        (b'{"text": "a"}\n\n{"text": \x00}', "x.jsonl, line 3 is no JSON"),
        (b'{"text": ' + b"[" * 100_000, "x.jsonl, line 1 is"),
        (b"", "the data has 0 tokens"),
    ],
)
def test_lines_that_are_no_json_are_named(places: Places, content: bytes, hint: str) -> None:
    (places.inputs / "a").mkdir(parents=True)
    (places.inputs / "a" / "x.jsonl").write_bytes(content)

    with pytest.raises(UserFault) as refused:
        build_data(parsed(data={"kind": "jsonl", "path": "input:a/x.jsonl"}), places)

    assert hint in str(refused.value)


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shunter_trainer.data.records.LONGEST_LINE_BYTES", 1 << 20)
    (places.inputs / "a").mkdir(parents=True)
    (places.inputs / "a" / "x.jsonl").write_bytes(b'{"text": "' + b"x" * (2 << 20))

    with pytest.raises(UserFault, match=r"x.jsonl, line 1 is longer than 1 MiB; give one JSON object a line"):
        build_data(parsed(data={"kind": "jsonl", "path": "input:a/x.jsonl"}), places)


def test_compressed_lines_are_unpacked(made: Make, places: Places) -> None:
    plain = made({"text": TEXTS}, "jsonl")
    (places.inputs / "a" / "y.jsonl.gz").write_bytes(gzip.compress((places.inputs / "a" / "x.jsonl").read_bytes()))
    (places.inputs / "a" / "z.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}')[:-9])

    packed = build_data(parsed(data={"kind": "jsonl", "path": "input:a/y*", "sequence_length": 8}), places)

    assert rows(packed)["input_ids"].tolist() == rows(plain)["input_ids"].tolist()
    with pytest.raises(UserFault, match=r"path: z.jsonl.gz cannot be read"):
        build_data(parsed(data={"kind": "jsonl", "path": "input:a/z*"}), places)


def test_a_saved_data_set_gives_its_split_and_the_names_of_its_classes(places: Places) -> None:
    import datasets

    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    split = datasets.Dataset.from_dict({"text": TEXTS, "label": [1, 0, 1]}, features=features)
    datasets.DatasetDict({"train": split, "test": split.select([0])}).save_to_disk(str(places.inputs / "d"))
    data = {"kind": "huggingface", "name": "input:d", "label": "label", "sequence_length": 8}

    found = build_data(parsed(model=CLASSIFIER, data=data), places)
    test = build_data(parsed(model=CLASSIFIER, data={**data, "split": "test"}), places)

    assert found.classes == ("no", "yes")
    assert rows(found)["labels"].tolist() == [1, 0, 1]
    assert bytes(rows(test)["input_ids"][0].tolist()) == TEXTS[0].encode()[:8]
    with pytest.raises(UserFault, match=r"data/split: there is no split 'dev' \(there is train, test\)"):
        build_data(parsed(model=CLASSIFIER, data={**data, "split": "dev"}), places)
    with pytest.raises(UserFault, match=r"data/field: the data set has no column 'body' \(it has label, text\)"):
        build_data(parsed(data={"kind": "huggingface", "name": "input:d", "field": "body"}), places)


def test_files_of_a_repository_are_told_apart_by_their_split(places: Places) -> None:
    for name, text in (("data/train-0-of-2", "aaaa"), ("data/train-1-of-2", "bbbb"), ("data/test-0-of-1", "cccc")):
        file = places.inputs / "d" / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"text": [text]}), file)
    data = {"kind": "huggingface", "name": "input:d", "sequence_length": 5}

    train, test = (build_data(parsed(data={**data, "split": split}), places) for split in ("train", "test"))

    assert [bytes(row) for row in rows(train)["input_ids"].tolist()] == [b"aaaa\0", b"bbbb\0"]
    assert [bytes(row) for row in rows(test)["input_ids"].tolist()] == [b"cccc\0"]
    with pytest.raises(UserFault, match=r"data/split: there is no split 'dev' \(test, train\)"):
        build_data(parsed(data={**data, "split": "dev"}), places)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("acme/corpus", "there is no folder 'acme/corpus'; nodes do not reach the hub"),
        ("input:e", "'input:e' is no saved data set and has no parquet or JSON-lines files (it holds readme.md)"),
    ],
)
def test_names_that_lead_to_no_data_set_are_refused(places: Places, name: str, hint: str) -> None:
    (places.inputs / "e").mkdir(parents=True)
    (places.inputs / "e" / "readme.md").write_text("x")

    with pytest.raises(UserFault) as refused:
        build_data(parsed(data={"kind": "huggingface", "name": name}), places)

    assert refused.value.pointer == "/workload/data/name"
    assert hint in str(refused.value)


def test_validation_data_of_another_kind_share_the_classes(made: Make, places: Places) -> None:
    (places.inputs / "v.jsonl").parent.mkdir(parents=True, exist_ok=True)
    (places.inputs / "v.jsonl").write_text('{"text": "x y", "mood": "good"}\n')
    columns = {"text": TEXTS, "mood": ["good", "bad", "good"]}
    other = {"kind": "jsonl", "path": "input:v.jsonl", "label": "mood", "sequence_length": 8}

    data = made(columns, model=CLASSIFIER, label="mood", validation=other)

    assert data.validation is not None
    assert data.validation.take(np.array([0]), np.array([0]))["labels"].tolist() == [1]
    (places.inputs / "v.jsonl").write_text('{"text": "x y", "mood": "new"}\n')
    with pytest.raises(UserFault, match=r"validation/label: v.jsonl, line 1 has the class 'new', which no training"):
        made(columns, model=CLASSIFIER, label="mood", validation=other)


def test_padding_is_neither_seen_nor_learned(made: Make, places: Places) -> None:
    data = made({"text": TEXTS}, packing=False, sequence_length=16)

    batch = rows(data)
    assert batch["attention_mask"].sum(1).tolist() == [16, 6, 16]
    assert (batch["labels"] != IGNORED).sum(1).tolist() == [15, 5, 15]


def rows(data: DataSets) -> dict[str, Any]:
    samples: Samples | Unindexed = data.train
    assert not isinstance(samples, Unindexed)
    everything = np.arange(len(samples))
    return dict(samples.take(everything, np.zeros_like(everything)))


def decoded(places: Places, ids: list[int]) -> str:
    from transformers import AutoTokenizer

    return str(AutoTokenizer.from_pretrained(str(places.inputs / "tok")).decode(ids))


def test_a_link_out_of_an_input_is_refused(places: Places, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("not of this job")
    (places.inputs / "t").mkdir(parents=True)
    (places.inputs / "t" / "a.txt").symlink_to(tmp_path / "outside.txt")

    with pytest.raises(UserFault, match=r"data/path: a.txt is a link that leads out of the input"):
        build_data(parsed(data={"kind": "text", "path": "input:t/*.txt"}), places)


def test_text_files_are_told_apart_from_binary_ones(places: Places) -> None:
    folder: Path = places.inputs / "t"
    folder.mkdir(parents=True)
    data = {"kind": "text", "path": "input:t/*.txt", "sequence_length": 4}
    for content, hint in (
        (b"fine, and then caf\xe9", "a.txt is not UTF-8 at byte 18"),
        (b"zero \x00 byte", "a.txt holds a zero byte"),
        (b"\xff\xfeh\x00i\x00", "a.txt is not UTF-8 at byte 0"),
    ):
        (folder / "a.txt").write_bytes(content)
        with pytest.raises(UserFault, match=hint):
            build_data(parsed(data=data), places)
    (folder / "a.txt").write_bytes(b"\xef\xbb\xbfmark")

    found = build_data(parsed(data=data), places)

    assert bytes(rows(found)["input_ids"][0].tolist()) == b"mark"
