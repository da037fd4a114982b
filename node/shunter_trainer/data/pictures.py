"""Images as tensors: how one is cut, scaled and normalised."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from shunter_trainer.data.packages import package
from shunter_trainer.failures import UserFault

_SIZE = 224
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, per channel of values from 0 to 1
_CROPPED_SHARE = 0.875
_AREA, _RATIO, _TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10  # Szegedy et al., "Going deeper with convolutions", 2015


@dataclass(frozen=True, slots=True)
class Look:
    """What every image becomes: `(channels, height, width)` float32, normalised."""

    height: int = _SIZE
    width: int = _SIZE
    mean: tuple[float, ...] = _MEAN
    std: tuple[float, ...] = _STD

    @property
    def mode(self) -> str:
        """Pillow's name of the colours."""
        return "L" if len(self.mean) == 1 else "RGB"


def look_of(size: int | None, model: Mapping[str, Any], preparation: Mapping[str, Any]) -> Look:
    """As the document says, else as the model's own files do, else 224 x 224 in ImageNet's colours."""
    height, width = (
        _sides(size)
        or _sides(model.get("image_size"))
        or _sides(preparation.get("crop_size"))
        or (_sides(preparation.get("size")) or (_SIZE, _SIZE))
    )
    mean, std = _floats(preparation.get("image_mean")), _floats(preparation.get("image_std"))
    if not mean or not std or len(mean) != len(std):
        mean, std = ((0.5,), (0.5,)) if model.get("num_channels") == 1 else (_MEAN, _STD)
    return Look(height, width, mean, std)


def opened(content: IO[bytes], mode: str, where: str, pointer: str) -> Any:
    """A Pillow image, decoded.

    Raises: UserFault naming it, when it is none.
    """
    image_module = package("PIL.Image", "pillow", pointer)
    try:
        with image_module.open(content) as image:
            if image.mode == "P" and "transparency" in image.info:
                image = image.convert("RGBA")  # as Pillow asks for it
            return image.convert(mode)
    except Exception as error:  # broken images raise nearly anything
        unknown = type(error).__name__ == "UnidentifiedImageError"  # whose text is an address in memory
        first = "of no known format" if unknown else str(error).partition("\n")[0] or type(error).__name__
        raise UserFault(pointer, f"{where} cannot be read as an image ({first}); mend or remove it") from error


def prepared_picture(image: Any, look: Look, at_random: bool) -> Tensor:
    """Cut and scaled: at random (any part, either way round), else the middle. Draws from `random`."""
    bilinear = package("PIL.Image", "pillow", "").Resampling.BILINEAR
    box = _random_box(image.size, look) if at_random else _middle_box(image.size, look)
    scaled = image.resize((look.width, look.height), bilinear, box=box, reducing_gap=None)
    values = np.asarray(scaled, dtype=np.float32).reshape(look.height, look.width, -1) / 255.0
    if at_random and random.random() < 0.5:
        values = values[:, ::-1]
    mean, std = np.array(look.mean, dtype=np.float32), np.array(look.std, dtype=np.float32)
    return torch.from_numpy(np.ascontiguousarray(((values - mean) / std).transpose(2, 0, 1)))


_Box = tuple[float, float, float, float]


def _random_box(size: tuple[int, int], look: Look) -> _Box:
    width, height = size
    for _ in range(_TRIES):
        area = width * height * random.uniform(*_AREA)
        ratio = math.exp(random.uniform(*map(math.log, _RATIO))) * look.width / look.height
        cut_width, cut_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < cut_width <= width and 0 < cut_height <= height:
            left, top = random.randint(0, width - cut_width), random.randint(0, height - cut_height)
            return left, top, left + cut_width, top + cut_height
    return _middle_box(size, look, 1.0)


def _middle_box(size: tuple[int, int], look: Look, share: float = _CROPPED_SHARE) -> _Box:
    """The middle part of the look's proportions: `share` of the longest side that fits."""
    width, height = size
    scale = min(width / look.width, height / look.height) * share
    cut_width, cut_height = look.width * scale, look.height * scale
    left, top = (width - cut_width) / 2, (height - cut_height) / 2
    return left, top, left + cut_width, top + cut_height


def _sides(value: Any) -> tuple[int, int] | None:
    """Height and width, in any of the forms that configurations have."""
    if isinstance(value, Mapping):
        edge = value.get("shortest_edge")
        value = (value.get("height", edge), value.get("width", edge))
    sides: Sequence[Any] = value if isinstance(value, list | tuple) else (value, value)
    if len(sides) == 2 and all(isinstance(side, int) and side > 0 for side in sides):
        return int(sides[0]), int(sides[1])
    return None


def _floats(value: Any) -> tuple[float, ...]:
    if isinstance(value, list) and len(value) in (1, 3) and all(isinstance(item, int | float) for item in value):
        return tuple(float(item) for item in value)
    return ()
