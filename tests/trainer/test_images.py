"""Folders of images as samples."""

import os
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
from support.image_folders import write_classes, write_image
from support.trainings import parsed

VIT: dict[str, Any] = {
    "kind": "huggingface",
    "config": {"model_type": "vit", "image_size": 8},
    "task": "image_classification",
}


def test_a_folder_is_a_class_in_the_order_of_names(places: Places) -> None:
    write_classes(places.inputs / "train", ("b odd näme", "a", "c.d"))
    (places.inputs / "train" / ".hidden").mkdir()
    (places.inputs / "train" / "readme.txt").write_text("not an image")

    data = built(places)

    batch = rows(data, range(12))
    assert data.classes == ("a", "b odd näme", "c.d")
    assert batch["labels"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert batch["pixel_values"].shape == (12, 3, 8, 8)
    assert batch["pixel_values"].dtype == torch.float32
    # By the colour that stands out, in the order in which the classes were written.
    assert batch["pixel_values"].mean((2, 3)).argmax(1).tolist() == [1] * 4 + [0] * 4 + [2] * 4


def test_training_sees_other_parts_in_every_epoch_and_evaluation_always_the_middle(places: Places) -> None:
    write_classes(places.inputs / "train")
    data = built(places, validation={"fraction": 0.25})
    assert data.validation is not None

    first, again, later = (indexed(data).take(np.array([1]), np.array([epoch])) for epoch in (0, 0, 1))
    still, same = (data.validation.take(np.array([1]), np.array([epoch])) for epoch in (0, 1))

    assert torch.equal(first["pixel_values"], again["pixel_values"])
    assert not torch.equal(first["pixel_values"], later["pixel_values"])
    assert torch.equal(still["pixel_values"], same["pixel_values"])


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_processes_change_nothing_on_any_number_of_ranks(places: Places, workers: int) -> None:
    write_classes(places.inputs / "train")
    samples = built(places, validation={"fraction": 0.25}).train
    alone = open_stream(samples, seat(Geometry(4, 4, 1), 0), 0)
    gang = [open_stream(samples, seat(Geometry(4, 1, 2), rank, start=8), workers) for rank in range(2)]

    expected = [alone.next_step()[0].batch["pixel_values"] for _ in range(5)][2:]
    found = [torch.cat([m.batch["pixel_values"] for stream in gang for m in stream.next_step()]) for _ in range(3)]
    for stream in gang:
        stream.close()

    assert all(torch.equal(*pair) for pair in zip(expected, found, strict=True))


def test_threads_that_share_an_evaluation_keep_the_order(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    write_classes(places.inputs / "train", each=8)
    validation = built(places, validation={"kind": "image_folder", "path": "input:train"}).validation
    assert validation is not None
    order = np.random.default_rng(0).permutation(24)

    monkeypatch.setattr("os.cpu_count", lambda: 8)
    together = validation.take(order, np.zeros_like(order))
    alone = [validation.take(order[[at]], np.zeros(1, dtype=np.int64)) for at in range(24)]

    for name in ("pixel_values", "labels"):
        assert torch.equal(together[name], torch.cat([row[name] for row in alone]))


def test_colours_and_size_follow_the_files_of_the_weights(places: Places) -> None:
    write_classes(places.inputs / "train")
    (places.inputs / "base").mkdir()
    (places.inputs / "base" / "config.json").write_text('{"model_type": "resnet"}')
    (places.inputs / "base" / "preprocessor_config.json").write_text(
        '{"size": {"shortest_edge": 6}, "image_mean": [0, 0, 0], "image_std": [1, 1, 1]}'
    )
    model = {"kind": "huggingface", "weights": "input:base", "task": "image_classification"}

    batch = rows(built(places, model=model), range(4))

    assert batch["pixel_values"].shape == (4, 3, 6, 6)
    assert 0 <= float(batch["pixel_values"].min()) <= float(batch["pixel_values"].max()) <= 1


def test_a_transform_of_ones_own_gets_the_image(
    places: Places, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_classes(places.inputs / "train")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_transform.py").write_text(
        "import random, torch\n"
        "def sized(image): return {'x': torch.tensor(image.size), 'luck': random.random()}\n"
        "def wrong(image): return image\n"
    )

    data, wrong = (built(places, transform=f"own_transform:{name}") for name in ("sized", "wrong"))

    batch = rows(data, [0, 11])
    assert batch["x"].tolist() == [[24, 16], [24, 16]]
    assert batch["labels"].tolist() == [0, 2]
    assert torch.equal(batch["luck"], rows(data, [0, 11])["luck"])
    with pytest.raises(UserFault, match=r"/workload/data/transform: items of train/ cannot be put into one batch"):
        rows(wrong, [0, 1])


@pytest.mark.parametrize("mode", ["P", "L", "LA", "RGBA", "CMYK", "1", "I;16"])
def test_images_of_every_colour_mode_become_three_channels(places: Places, mode: str) -> None:
    from PIL import Image

    file = write_image(places.inputs / "train" / "only" / "x.png", 0)
    with Image.open(file) as image:
        other = image.convert("L").convert(mode) if mode == "I;16" else image.convert(mode)
        if mode == "P":
            other.info["transparency"] = b"\0\1\2"
        other.save(file.with_suffix(".tif" if mode == "CMYK" else ".png"))
    if mode == "CMYK":
        file.unlink()

    batch = rows(built(places), [0])

    assert batch["pixel_values"].shape == (1, 3, 8, 8)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_image_is_named_with_its_path(places: Places, workers: int) -> None:
    write_classes(places.inputs / "train", ("cats", "dogs"), each=1)
    (places.inputs / "train" / "dogs" / "0.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    stream = open_stream(built(places).train, seat(Geometry(2, 2, 1), 0), workers)

    with pytest.raises(UserFault, match=r"^/workload/data/path: train/dogs/0.png cannot be .* \(of no known format\)"):
        stream.next_step()

    stream.close()


def test_what_is_wrong_with_a_folder_is_said(places: Places, tmp_path: Path) -> None:
    root = places.inputs / "train"
    write_classes(root, ("cats", "dogs"))

    assert "there is no folder 'input:nowhere'" in refusal(places, path="input:nowhere")
    assert "cats/ holds images, but no folders" in refusal(places, path="input:train/cats")
    (root / "empty").mkdir()
    assert "the class folder 'empty' holds no image" in refusal(places)
    (root / "empty").rmdir()
    write_image(tmp_path / "outside" / "x.png", 0)
    (root / "cats" / "z.png").symlink_to(tmp_path / "outside" / "x.png")
    assert "cats/z.png is a link that leads out of the folder" in refusal(places)
    (root / "cats" / "z.png").unlink()
    (root / "birds").symlink_to(tmp_path / "outside")
    assert "birds is a link that leads out" in refusal(places)


def test_a_link_inside_the_folder_is_an_image_like_any_other(places: Places) -> None:
    write_classes(places.inputs / "train", ("cats", "dogs"), each=1)
    os.symlink("0.png", places.inputs / "train" / "cats" / "1.png")

    assert len(indexed(built(places))) == 3


def test_classes_of_validation_data_are_those_of_the_training(places: Places) -> None:
    write_classes(places.inputs / "train", ("a", "b", "c"))
    write_classes(places.inputs / "val", ("c",))
    write_classes(places.inputs / "odd", ("c", "d"))

    data = built(places, validation={"kind": "image_folder", "path": "input:val"})

    assert data.validation is not None
    assert data.validation.take(np.array([0]), np.array([0]))["labels"].tolist() == [2]
    with pytest.raises(UserFault, match=r"validation/path: the class folder 'd' is none of the training data's"):
        built(places, validation={"kind": "image_folder", "path": "input:odd"})


def built(places: Places, model: dict[str, Any] = VIT, **members: Any) -> DataSets:
    data = {"kind": "image_folder", "path": "input:train", **members}
    return build_data(parsed(model=model, data=data), places)


def refusal(places: Places, **members: Any) -> str:
    with pytest.raises(UserFault) as refused:
        built(places, **members)
    assert refused.value.pointer == "/workload/data/path"
    return str(refused.value)


def indexed(data: DataSets) -> Samples:
    assert not isinstance(data.train, Unindexed)
    return data.train


def rows(data: DataSets, indices: Any) -> dict[str, Any]:
    chosen = np.array(list(indices), dtype=np.int64)
    return dict(indexed(data).take(chosen, np.zeros_like(chosen)))


def seat(geometry: Geometry, rank: int, start: int = 0) -> Seat:
    return Seat(geometry, rank, torch.device("cpu"), seed=17, start=start)
