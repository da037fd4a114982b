"""Samples in tar shards."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shunter_trainer.data.build import DataSets, build_data
from shunter_trainer.data.geometry import Geometry
from shunter_trainer.data.samples import Samples, Unindexed
from shunter_trainer.data.stream import Seat, open_stream
from shunter_trainer.failures import UserFault
from shunter_trainer.places import Places
from support.image_folders import write_image
from support.trainings import parsed

PYTHON = {"kind": "python", "target": "models:none"}


@pytest.fixture
def shards(places: Places, tmp_path: Path) -> Path:
    """Two shards with three samples each: an image, its class, a description and a vector."""
    folder = places.inputs / "shards"
    folder.mkdir(parents=True)
    for shard in range(2):
        with tarfile.open(folder / f"{shard}.tar", "w") as tar:
            for number in range(3 * shard, 3 * shard + 3):
                image = write_image(tmp_path / "image.png", number % 3, seed=number).read_bytes()
                vector = io.BytesIO()
                np.save(vector, np.full(2, number, dtype=np.float32))
                add(tar, f"dir.d/{number:03}.png", image)
                add(tar, f"dir.d/{number:03}.cls", str(number % 3).encode())
                add(tar, f"dir.d/{number:03}.meta.json", json.dumps({"n": number}).encode())
                add(tar, f"dir.d/{number:03}.npy", vector.getvalue())
    return folder


def test_samples_are_read_by_name_and_decoded_by_extension(places: Places, shards: Path) -> None:
    usual = built(places)
    chosen = built(places, fields={"jpg;png": "image", "npy": "v", "meta.json": "meta"}, image_size=4)

    assert rows(usual)["labels"].tolist() == [0, 1, 2, 0, 1, 2]
    assert rows(usual)["pixel_values"].shape == (6, 3, 224, 224)
    batch = rows(chosen)
    assert batch["image"].shape == (6, 3, 4, 4)
    assert batch["v"].tolist() == [[n, n] for n in range(6)]
    assert batch["meta"]["n"].tolist() == list(range(6))


def test_names_of_every_tar_dialect_are_understood(places: Places) -> None:
    names = ["short.cls", "d/" * 60 + "long.cls", "näme " + "x" * 150 + ".cls"]
    places.inputs.mkdir()
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(places.inputs / f"{form}.tar", "w", format=form) as tar:
            tar.addfile(directory("d"))
            for number, name in enumerate(names[: 1 if form == tarfile.USTAR_FORMAT else 3]):
                add(tar, name, str(number).encode())

    data = built(places, path="input:*.tar", fields={"cls": "y"}, samples=7)

    assert rows(data)["y"].tolist() == [0, 0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_shards_resume_exactly_on_any_number_of_ranks(places: Places, shards: Path, workers: int) -> None:
    samples = built(places, fields={"png": "x", "npy": "v"}, image_size=4).train
    alone = open_stream(samples, seat(Geometry(4, 4, 1), 0), 0)
    gang = [open_stream(samples, seat(Geometry(4, 1, 2), rank, start=8), workers) for rank in range(2)]

    expected = [alone.next_step()[0].batch for _ in range(5)][2:]
    found = [[micro.batch for stream in gang for micro in stream.next_step()] for _ in range(3)]
    for stream in gang:
        stream.close()

    for whole, parts in zip(expected, found, strict=True):
        assert all(torch.equal(whole[name], torch.cat([part[name] for part in parts])) for name in ("x", "v"))


def test_a_transform_gets_the_sample_with_its_images(
    places: Places, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shard_transform.py").write_text("def size(sample): return {'x': sample['image'].size[0]}\n")

    data = built(places, fields={"png": "image"}, transform="shard_transform:size")

    assert rows(data)["x"].tolist() == [24] * 6


def test_a_split_evaluates_on_the_middle_of_images(places: Places, shards: Path) -> None:
    validation = built(places, fields={"png": "x"}, image_size=8, validation={"fraction": 0.5}).validation
    assert validation is not None

    one, other = (validation.take(np.array([0]), np.array([epoch])) for epoch in (0, 1))

    assert torch.equal(one["x"], other["x"])


def test_what_is_wrong_with_a_shard_is_said(places: Places, shards: Path) -> None:
    whole = (shards / "1.tar").read_bytes()

    assert "the 2 shards hold 6 samples and not 7" in refusal(places, "samples", samples=7)
    assert "the sample 'dir.d/000' has no jpg (it has png, cls, meta.json, npy)" in refusal(
        places, "fields", fields={"jpg": "image"}
    )
    (shards / "1.tar").write_bytes(whole[:700])
    assert "1.tar is cut off within 'dir.d/003.png'" in refusal(places, "path")
    (shards / "1.tar").write_bytes(b"nothing of the kind" * 100)
    assert "1.tar cannot be read as a tar file" in refusal(places, "path")
    (shards / "1.tar").write_bytes(b"")
    assert "1.tar cannot be read as a tar file (empty file)" in refusal(places, "path")
    with tarfile.open(shards / "1.tar", "w:gz") as tar:
        add(tar, "a.cls", b"1")
    assert "unpack it" in refusal(places, "path")


@pytest.mark.parametrize("cut", range(0, 8192, 700))
def test_a_cut_shard_never_passes_for_a_whole_one(places: Places, shards: Path, cut: int) -> None:
    whole = (shards / "0.tar").read_bytes()
    with tarfile.open(shards / "0.tar") as tar:
        end = max(member.offset_data + member.size for member in tar.getmembers())

    (shards / "0.tar").write_bytes(whole[: end - 1 - cut])

    with pytest.raises(UserFault, match=r"0.tar|hold . samples and not 6|has no png"):
        built(places, fields={"png": "x", "cls": "y", "npy": "v"})


def test_a_header_that_is_damaged_in_the_middle_is_no_end(places: Places, shards: Path) -> None:
    content = bytearray((shards / "0.tar").read_bytes())
    with tarfile.open(shards / "0.tar") as tar:
        third = tar.getmembers()[2]
    content[third.offset : third.offset + 300] = b"\xff" * 300
    (shards / "0.tar").write_bytes(content)

    assert f"0.tar is damaged or cut off at byte {third.offset}" in refusal(places, "path")


def test_broken_content_is_named_with_shard_and_sample(places: Places) -> None:
    places.inputs.mkdir()
    with tarfile.open(places.inputs / "a.tar", "w") as tar:
        add(tar, "7.cls", b"three")

    data = built(places, path="input:a.tar", samples=1, fields={"cls": "y"})

    with pytest.raises(UserFault, match=r"data/path: a.tar: 7.cls cannot be read \(invalid literal"):
        rows(data)


def built(places: Places, **members: Any) -> DataSets:
    data = {"kind": "webdataset", "path": "input:shards/*.tar", "samples": 6, **members}
    return build_data(parsed(model=PYTHON, data=data), places)


def refusal(places: Places, place: str, **members: Any) -> str:
    with pytest.raises(UserFault) as refused:
        built(places, **members)
    assert refused.value.pointer == f"/workload/data/{place}"
    return str(refused.value)


def rows(data: DataSets) -> dict[str, Any]:
    samples: Samples | Unindexed = data.train
    assert not isinstance(samples, Unindexed)
    everything = np.arange(len(samples))
    return dict(samples.take(everything, np.zeros_like(everything)))


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def directory(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = tarfile.DIRTYPE
    return member


def seat(geometry: Geometry, rank: int, start: int = 0) -> Seat:
    return Seat(geometry, rank, torch.device("cpu"), seed=17, start=start)
