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


def mix(*values: int) -> int:
    """64 well-mixed bits of several integers (splitmix64 over each in turn)."""
    state = 0x9E3779B97F4A7C15
    for value in values:
        state = (state ^ value) & _MASK
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
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

    def seed_step(step: int) -> None:
        value = mix(base, step) & _POSITIVE
        for generator in generators:
            generator.manual_seed(value)

    return seed_step
