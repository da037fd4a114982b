"""Texts, tables, splits and the streams of batches made of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shunter_trainer.data.build import build_data
from shunter_trainer.data.geometry import Geometry, cut, total_steps
from shunter_trainer.data.samples import IGNORED, Samples, Unindexed, split
from shunter_trainer.data.stream import Seat, Stream, open_stream
from shunter_trainer.failures import UserFault
from shunter_trainer.places import Places
from support.trainings import parsed

CPU = torch.device("cpu")
LINES = ["a first text", "b", "the second text, a little longer", "third"]


@pytest.fixture
def lines(places: Places) -> Path:
    file = places.inputs / "corpus" / "lines.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps({"text": text, "n": 1}) + "\n" for text in LINES))
    return file


def test_the_built_in_sample_is_real_text_and_the_same_every_time(places: Places) -> None:
    first, again = (indexed(build_data(parsed(), places).train) for _ in range(2))

    text = bytes(rows(first, 0, 1, 2)["input_ids"].flatten().tolist()).decode(errors="replace")
    assert len(first) > 10_000
    assert torch.equal(rows(first, 0, 7)["input_ids"], rows(again, 0, 7)["input_ids"])
    assert sum(character.isalpha() or character in " \n" for character in text) > 0.7 * len(text)


def test_text_files_are_packed_in_the_order_of_their_names(places: Places) -> None:
    places.inputs.mkdir()
    (places.inputs / "b.txt").write_bytes(b"world!")
    (places.inputs / "a.txt").write_bytes(b"hello")

    samples = indexed(
        build_data(parsed(data={"kind": "text", "path": "input:*.txt", "sequence_length": 4}), places).train
    )

    assert [bytes(row) for row in rows(samples, 0, 1, 2)["input_ids"].tolist()] == [b"hell", b"o\0wo", b"rld!"]


def test_unpacked_texts_have_a_row_each_and_padding_is_no_target(places: Places, lines: Path) -> None:
    data = {"kind": "jsonl", "path": "input:corpus/*.jsonl", "sequence_length": 16, "packing": False}

    samples = indexed(build_data(parsed(data=data), places).train)

    labels = rows(samples, 0, 1, 2, 3)["labels"]
    assert len(samples) == 4
    # The first byte is no target, the zero byte behind a text is one, and the third text was cut.
    assert [int((row != IGNORED).sum()) for row in labels] == [12, 1, 15, 5]


@pytest.mark.parametrize(
    ("data", "pointer", "hint"),
    [
        ({"kind": "text", "path": "input:corpus/*.txt"}, "/workload/data/path", "corpus/ holds lines.jsonl"),
        ({"kind": "text", "path": "input:corpus"}, "/workload/data/path", "input:corpus/*"),
        ({"kind": "jsonl", "path": "input:corpus/*", "field": "body"}, "/workload/data/field", "it holds n, text"),
        (
            {"kind": "text", "path": "input:corpus/*", "sequence_length": 33},
            "/workload/data/sequence_length",
            "context",
        ),
        ({"kind": "jsonl", "path": "input:corpus/*", "tokenizer": "model"}, "/workload/data/tokenizer", "bytes"),
        ({"kind": "python", "target": "nowhere:made"}, "/workload/data/target", "no module 'nowhere'"),
        ({"kind": "python", "target": "json:nothing"}, "/workload/data/target", "it has"),
        ({"kind": "python", "target": "json:loads", "arguments": {"x": 1}}, "/workload/data/arguments", "argument"),
        ({"kind": "python", "target": "math:sqrt", "arguments": {}}, "/workload/data/arguments", "missing"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_way_out(
    places: Places, lines: Path, data: dict[str, Any], pointer: str, hint: str
) -> None:
    with pytest.raises(UserFault) as refused:
        build_data(parsed(data=data), places)

    assert refused.value.pointer == pointer
    assert hint in str(refused.value)


def test_a_line_that_is_no_json_is_named_by_file_and_number(places: Places, lines: Path) -> None:
    lines.write_text('{"text": "fine"}\n{"text": \n')

    with pytest.raises(UserFault, match=r"lines.jsonl, line 2 is no JSON"):
        build_data(parsed(data={"kind": "jsonl", "path": "input:corpus/*"}), places)


def test_a_split_shares_no_sample_and_loses_none(places: Places) -> None:
    whole = indexed(build_data(parsed(data={"kind": "synthetic", "samples": 50}), places).train)

    train, validation = split(whole, 0.2, seed=4)

    seen = [samples.take(np.arange(len(samples)), np.zeros(len(samples), np.int64)) for samples in (train, validation)]
    texts = [tuple(row) for part in seen for row in part["input_ids"].tolist()]
    assert (len(train), len(validation)) == (40, 10)
    assert len(set(texts)) == 50


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_a_step_takes_the_same_samples_for_every_world_size(places: Places, world_size: int) -> None:
    samples = indexed(build_data(parsed(), places).train)
    alone = open_stream(samples, seat(Geometry(8, 8, 1), 0), 0)
    gang = [open_stream(samples, seat(Geometry(8, 2, world_size), rank), 0) for rank in range(world_size)]

    expected = [ids(alone) for _ in range(700)]
    together = [torch.cat([ids(stream) for stream in gang]) for _ in range(700)]

    assert all(torch.equal(*pair) for pair in zip(expected, together, strict=True))


@pytest.mark.parametrize("done_steps", [0, 1, 99, 700])
def test_a_stream_goes_on_exactly_where_another_stopped(places: Places, done_steps: int) -> None:
    samples = indexed(build_data(parsed(data={"kind": "synthetic", "samples": 321}), places).train)
    whole = open_stream(samples, seat(Geometry(8, 4, 2), 1), 0)
    for _ in range(done_steps):
        whole.next_step()

    rest = open_stream(samples, seat(Geometry(8, 4, 2), 1, start=8 * done_steps), 0)

    assert all(torch.equal(ids(whole), ids(rest)) for _ in range(30))


def test_micro_batches_of_padded_texts_weigh_by_their_targets(places: Places, lines: Path) -> None:
    data = {"kind": "jsonl", "path": "input:corpus/*", "sequence_length": 16, "packing": False}
    samples = indexed(build_data(parsed(data=data), places).train)
    ranks = [open_stream(samples, seat(Geometry(4, 1, 2), rank), 0) for rank in range(2)]

    for _ in range(10):
        micros = [micro for stream in ranks for micro in stream.next_step()]

        targets = [int((micro.batch["labels"][:, 1:] != IGNORED).sum()) for micro in micros]
        assert [micro.weight for micro in micros] == pytest.approx([2 * count / sum(targets) for count in targets])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_map_style_data_set_is_augmented_alike_wherever_it_is_loaded(
    places: Places, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workers: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "augmented.py").write_text(
        "import random, torch\n"
        "class Noisy:\n"
        "    def __len__(self): return 10\n"
        "    def __getitem__(self, i): return {'x': torch.rand(2) + i, 'y': random.random()}\n"
    )
    samples = build_data(parsed(data={"kind": "python", "target": "augmented:Noisy"}), places).train
    alone = open_stream(samples, seat(Geometry(4, 4, 1), 0), 0)
    other = open_stream(samples, seat(Geometry(4, 2, 1), 0), workers)

    expected = [alone.next_step()[0].batch for _ in range(6)]
    loaded = [other.next_step() for _ in range(6)]
    other.close()

    for whole, halves in zip(expected, loaded, strict=True):
        assert torch.equal(whole["x"], torch.cat([half.batch["x"] for half in halves]))
        assert torch.equal(whole["y"], torch.cat([half.batch["y"] for half in halves]))
    assert not torch.equal(expected[0]["x"], expected[1]["x"])


def test_an_iterable_is_shared_out_and_read_again_at_its_end() -> None:
    items = [{"x": torch.tensor(i)} for i in range(5)]
    streams = [open_stream(Unindexed(items, "data:items"), seat(Geometry(4, 1, 2), rank), 0) for rank in range(2)]

    steps = [[int(micro.batch["x"]) for stream in streams for micro in stream.next_step()] for _ in range(3)]

    assert steps == [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4, 0, 1]]


def test_a_generator_that_is_used_up_is_refused_with_the_way_out() -> None:
    stream = open_stream(Unindexed(iter([{"x": 1.0}]), "data:once"), seat(Geometry(2, 2, 1), 0), 0)

    with pytest.raises(UserFault, match="not a generator"):
        stream.next_step()


def test_items_that_are_no_mappings_are_refused() -> None:
    stream = open_stream(Unindexed([(1, 2)], "data:pairs"), seat(Geometry(1, 1, 1), 0), 0)

    with pytest.raises(UserFault, match="each item must be a mapping"):
        stream.next_step()


@pytest.mark.parametrize(
    ("duration", "steps"),
    [({"steps": 7}, 7), ({"epochs": 2}, 25), ({"epochs": 0.001}, 1), ({"tokens": 1000}, 4), ({"tokens": 1024}, 4)],
)
def test_durations_are_rounded_up_to_whole_steps(duration: dict[str, Any], steps: int) -> None:
    training = parsed(duration=duration)

    assert total_steps(training, samples=100) == steps


def test_a_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(UserFault, match="/workload/batch"):
        cut(parsed(batch={"global_size": 8}), world_size=3)


def indexed(samples: Samples | Unindexed) -> Samples:
    assert not isinstance(samples, Unindexed)
    return samples


def rows(samples: Samples, *indices: int) -> dict[str, Any]:
    return dict(samples.take(np.array(indices, dtype=np.int64), np.zeros(len(indices), dtype=np.int64)))


def seat(geometry: Geometry, rank: int, start: int = 0) -> Seat:
    return Seat(geometry, rank, CPU, seed=17, start=start)


def ids(stream: Stream) -> torch.Tensor:
    return torch.cat([micro.batch["input_ids"] for micro in stream.next_step()])
