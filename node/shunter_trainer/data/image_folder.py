"""`image_folder` data: a folder of folders, one a class, named in alphabetical order."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from shunter_trainer.data.items import Items, Key
from shunter_trainer.data.making import Made, Making
from shunter_trainer.data.model_facts import model_config, picture_config
from shunter_trainer.data.order import Indices
from shunter_trainer.data.pictures import Look, look_of, opened, prepared_picture
from shunter_trainer.failures import UserFault
from shunter_trainer.seeds import mix, seed_everything
from shunter_trainer.targets import load_target

IMAGE_SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".jfif")
)


def image_samples(data: Any, making: Making) -> Made:
    """Raises: UserFault when there are no class folders, or no images in one of them."""
    root = making.places.folder(data.path, f"{making.pointer}/path")
    found = _Found(root, f"{making.pointer}/path")
    names = found.class_names()
    classes = making.classes or names
    _check_classes(names, classes, making)
    for name in names:
        found.add(name, classes.index(name), needed=not making.evaluates)
    if len(found) == 0:
        raise UserFault(f"{making.pointer}/path", f"there is no image in the folders of {data.path!r}")
    config, preparation = model_config(making.workload, making.places), picture_config(making.workload, making.places)
    transform = load_target(data.transform, f"{making.pointer}/transform") if data.transform else None
    preparer = Preparer(look_of(data.image_size, config, preparation), transform, not making.evaluates)
    counted = f"{len(found)} images in {len(names)} classes"
    return Made(Pictures(found, preparer, making), classes, (counted,))


class Preparer:
    """From a Pillow image to what the model takes."""

    def __init__(self, look: Look, transform: Callable[..., Any] | None, at_random: bool) -> None:
        """`transform`: the user's own way, in place of ours."""
        self.look = look
        self._transform = transform
        self._at_random = at_random

    def __call__(self, image: Any) -> Any:
        """A tensor, or whatever the user's transform makes of it."""
        if self._transform is not None:
            return self._transform(image)
        return prepared_picture(image, self.look, self._at_random)

    @property
    def settled(self) -> bool:
        """Whether it draws no random numbers and runs no code of the user."""
        return self._transform is None and not self._at_random

    def still(self) -> Preparer:
        """Without our own changes at random."""
        return Preparer(self.look, self._transform, at_random=False)


class _Found:
    """Paths and classes of images, packed: a path is some thirty bytes, not an object."""

    def __init__(self, root: Path, pointer: str) -> None:
        self.root = root
        self._pointer = pointer
        self._real = os.path.realpath(root)
        self._names = bytearray()
        self._ends = array("q")
        self._labels = array("q")

    def __len__(self) -> int:
        return len(self._ends)

    def class_names(self) -> tuple[str, ...]:
        """Raises: UserFault when there is no class."""
        with os.scandir(self.root) as entries:
            there = list(entries)
        names = sorted(entry.name for entry in there if entry.is_dir() and not entry.name.startswith("."))
        if not names:
            loose = any(os.path.splitext(entry.name)[1].lower() in IMAGE_SUFFIXES for entry in there)
            what = "holds images, but no folders" if loose else "holds no folders"
            raise UserFault(self._pointer, f"{self.root.name}/ {what}; give a folder with one folder of images a class")
        return tuple(names)

    def add(self, name: str, label: int, needed: bool) -> None:
        """All images below a class folder, in the order of their names.

        Raises: UserFault when there is none and one is `needed`, or when a link leads out of the folder.
        """
        before = len(self)
        for path in self._images(os.path.join(self.root, name)):
            self._names += os.fsencode(os.path.relpath(path, self.root))
            self._ends.append(len(self._names))
            self._labels.append(label)
        if needed and len(self) == before:
            known = ", ".join(sorted(IMAGE_SUFFIXES))
            raise UserFault(
                self._pointer, f"the class folder {name!r} holds no image ({known}); remove it, or add images"
            )

    def arrays(self) -> tuple[bytes, Indices, Indices]:
        """Names on end, where each ends, and the classes."""
        return bytes(self._names), np.array(self._ends, dtype=np.int64), np.array(self._labels, dtype=np.int64)

    def _images(self, folder: str) -> Iterator[str]:
        self._stay_inside(folder)
        with os.scandir(folder) as found:
            entries = sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from self._images(entry.path)
            elif os.path.splitext(entry.name)[1].lower() in IMAGE_SUFFIXES:
                if entry.is_symlink():
                    self._stay_inside(entry.path)
                yield entry.path

    def _stay_inside(self, path: str) -> None:
        if os.path.commonpath((os.path.realpath(path), self._real)) != self._real:
            shown = os.path.relpath(path, self.root)
            raise UserFault(self._pointer, f"{shown} is a link that leads out of the folder; put the file itself there")


class Pictures(Items):
    """Images by their place in the folder."""

    def __init__(self, found: _Found, preparer: Preparer, making: Making) -> None:
        self._root = os.fsencode(found.root)
        self._folder = found.root.name
        self._names, self._ends, self._labels = found.arrays()
        self._preparer = preparer
        self._making = making

    def __len__(self) -> int:
        return len(self._ends)

    def __str__(self) -> str:
        return f"{self._folder}/"

    @property
    def pointer(self) -> str:
        return f"{self._making.pointer}/transform"

    def item(self, key: Key) -> Any:
        epoch, index = key
        name = self._names[int(self._ends[index - 1]) if index else 0 : int(self._ends[index])]
        if not self.settled:
            seed_everything(mix(self._making.workload.seed, epoch, index))
        path, where = os.path.join(self._root, name), f"{self._folder}/{os.fsdecode(name)}"
        try:
            with open(path, "rb") as content:
                image = opened(content, self._preparer.look.mode, where, f"{self._making.pointer}/path")
        except OSError as error:
            raise UserFault(f"{self._making.pointer}/path", f"{where} cannot be read: {error.strerror}") from error
        made = self._preparer(image)
        values = dict(made) if isinstance(made, dict) else {"pixel_values": made}
        return {"labels": int(self._labels[index]), **values}

    def still(self) -> Items:
        other = copy(self)
        other._preparer = self._preparer.still()
        return other

    @property
    def settled(self) -> bool:
        return self._preparer.settled


def _check_classes(names: tuple[str, ...], classes: tuple[str, ...], making: Making) -> None:
    unknown = sorted(set(names) - set(classes))
    if unknown:
        shown = ", ".join(classes[:8]) + (", …" if len(classes) > 8 else "")
        raise UserFault(
            f"{making.pointer}/path", f"the class folder {unknown[0]!r} is none of the training data's ({shown})"
        )
