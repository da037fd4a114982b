"""Small images whose class can be seen, and folders of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_image(file: Path, colour: int, size: tuple[int, int] = (24, 16), seed: int = 0) -> Path:
    """A noisy image of `(width, height)` in which one of the three colours stands out."""
    from PIL import Image

    values = np.random.default_rng(seed).integers(0, 96, (size[1], size[0], 3), dtype=np.uint8)
    values[..., colour] += 128
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(file)
    return file


def write_classes(root: Path, names: tuple[str, ...] = ("blue", "green", "red"), each: int = 4) -> Path:
    """A folder a class, named in the order of their colours, each with so many images."""
    for colour, name in enumerate(names):
        for number in range(each):
            write_image(root / name / f"{number}.png", colour % 3, seed=100 * colour + number)
    return root
