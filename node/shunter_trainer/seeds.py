"""Random numbers are derived where they are used, so that none of their state needs to be saved."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

import numpy as np
import torch

from shunter_trainer.gang import Gang

_MASK = (1 << 64) - 1
_POSITIVE = (1 << 63) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_STEPS_AT_ONCE = 256


def mix(*values: int) -> int:
    """64 well-mixed bits of several integers (splitmix64 over each in turn)."""
    state = _GOLDEN
    for value in values:
        state = (state ^ value) & _MASK
        state = (state + _GOLDEN) & _MASK
        state = ((state ^ (state >> 30)) * _FACTORS[0]) & _MASK
        state = ((state ^ (state >> 27)) * _FACTORS[1]) & _MASK
        state ^= state >> 31
    return state


def named_generator(seed: int, name: str, device: torch.device) -> torch.Generator:
    """A generator of its own for a named thing, the same whatever else was drawn."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return torch.Generator(device).manual_seed(mix(seed, int.from_bytes(digest)) & _POSITIVE)


def seed_everything(seed: int) -> None:
    """Python's, numpy's and torch's global generators on this thread's CPU."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    # Not torch.manual_seed: it also visits every accelerator, at a hundred times the cost.
    torch.default_generator.manual_seed(seed & ((1 << 63) - 1))


def step_seeder(seed: int, gang: Gang) -> Callable[[int], None]:
    """Seeds dropout and the like by (seed, step, rank), on this rank's device."""
    generators = [torch.default_generator]
    if gang.device.type == "cuda":
        generators.append(torch.cuda.default_generators[gang.device.index or 0])
    base = mix(seed, gang.rank)
    first, values = 0, list[int]()

    def seed_step(step: int) -> None:
        nonlocal first, values
        place = step - first
        if not 0 <= place < len(values):  # many at once: the arithmetic costs more in single numbers
            first, values, place = step, _mixed_with_each(base, step, _STEPS_AT_ONCE), 0
        for generator in generators:
            generator.manual_seed(values[place])

    return seed_step


def _mixed_with_each(first: int, start: int, count: int) -> list[int]:
    """`mix(first, v) & _POSITIVE` for each of the `count` integers `v` from `start` on."""
    state = np.uint64(mix(first)) ^ np.arange(start, start + count, dtype=np.uint64)
    state += np.uint64(_GOLDEN)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_FACTORS[0])
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_FACTORS[1])
    state ^= state >> np.uint64(31)
    return [int(value) for value in (state & np.uint64(_POSITIVE)).tolist()]
