"""What ranks of a node prepare for each other."""

import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from shunter_trainer.data.build import build_data
from shunter_trainer.data.once import digest_of_files, prepared
from shunter_trainer.data.samples import Unindexed
from shunter_trainer.failures import UserFault
from shunter_trainer.places import Places
from support.trainings import parsed


def nothing() -> None:
    """No watchdog is there."""


def test_ranks_that_ask_together_prepare_once_and_all_get_it(tmp_path: Path) -> None:
    built: list[int] = []
    waited = threading.Event()

    def build(folder: Path) -> None:
        waited.wait(10)
        built.append(1)
        (folder / "x").write_text("whole")

    found: list[Path] = []
    ranks = [
        threading.Thread(target=lambda: found.append(prepared(tmp_path, {"a": 1}, build, waited.set))) for _ in range(4)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(20)

    assert built == [1]
    assert [(folder / "x").read_text() for folder in found] == ["whole"] * 4


def test_what_a_killed_or_failed_rank_left_is_made_anew(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise UserFault("/x", "no")

    with pytest.raises(UserFault):
        prepared(tmp_path, {}, fail, nothing)
    folder = prepared(tmp_path, {}, lambda folder: (folder / "whole").touch(), nothing)

    assert [entry.name for entry in folder.iterdir()] == ["whole"]


def test_a_full_disk_is_named_with_the_way_out(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(UserFault, match=r"/resources/disk_gib: the node's disk is full"):
        prepared(tmp_path, {}, fill, nothing)


def test_a_digest_follows_content_and_names_only(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("one")
    first = digest_of_files(tmp_path / "scratch", [file], nothing)

    file.touch()
    same = digest_of_files(tmp_path / "scratch", [file], nothing)
    file.write_text("two")
    other = digest_of_files(tmp_path / "scratch", [file], nothing)

    assert first == same
    assert first != other


def test_changed_data_are_read_anew_and_a_restart_reads_what_is_there(places: Places, tmp_path: Path) -> None:
    data = {"kind": "text", "path": "input:*.txt", "sequence_length": 4}
    places.inputs.mkdir()
    (places.inputs / "a.txt").write_text("four")
    beats: list[int] = []

    def build() -> bytes:
        samples: Any = build_data(parsed(data=data), places, lambda: beats.append(1)).train
        return bytes(samples.take(*[_first()] * 2)["input_ids"][0].tolist())

    assert build() == b"four"
    (places.inputs / "a.txt").write_text("five")
    assert build() == b"five"
    beats.clear()
    assert build() == b"five"
    assert beats == []


def test_a_long_text_takes_no_more_memory_than_a_short_one(places: Places) -> None:
    places.inputs.mkdir()
    with (places.inputs / "long.txt").open("w") as file:
        for number in range(400_000):
            file.write(f"line {number} of a text that goes on and on, to its end\n")
    size = (places.inputs / "long.txt").stat().st_size

    tracemalloc.start()
    samples = build_data(parsed(data={"kind": "text", "path": "input:long.txt", "sequence_length": 32}), places).train
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert not isinstance(samples, Unindexed)
    assert len(samples) == (size + 1) // 32
    assert size > 20_000_000
    assert peak < 12 << 20


def _first() -> Any:
    import numpy as np

    return np.array([0], dtype=np.int64)
