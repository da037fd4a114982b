"""The order of samples: a pure function of (seed, epoch, position), the same for every world size.

A keyed permutation of `range(count)` that needs no table: a Feistel network over the smallest even number of bits that
holds `count`, walked until it lands inside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). Training
can therefore resume at any sample, and a rank computes only its own indices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shunter_trainer.seeds import mix

Indices = NDArray[np.int64]
_Words = NDArray[np.uint64]

_ROUNDS = 6


def permute(positions: Indices, count: int, *key: int) -> Indices:
    """Where each position of `range(count)` goes under the permutation that `key` names."""
    if count <= 1:
        return np.zeros_like(positions)
    half_bits = ((count - 1).bit_length() + 1) // 2
    keys = [np.uint64(mix(*key, round_)) for round_ in range(_ROUNDS)]
    out = _feistel(positions.astype(np.uint64), half_bits, keys)
    while (outside := out >= count).any():
        out[outside] = _feistel(out[outside], half_bits, keys)
    return out.astype(np.int64)


def sample_indices(positions: Indices, count: int, seed: int) -> Indices:
    """The samples at these global positions (0, 1, 2 … over all epochs) of a data set of `count` samples."""
    epochs = positions // count
    within = positions - epochs * count
    first, last = int(epochs.min(initial=0)), int(epochs.max(initial=0))
    if first == last:
        return permute(within, count, seed, first)
    out = np.empty_like(positions)
    for epoch in range(first, last + 1):
        chosen = epochs == epoch
        out[chosen] = permute(within[chosen], count, seed, epoch)
    return out


def _feistel(words: _Words, half_bits: int, keys: list[Any]) -> _Words:
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = words >> shift, words & mask
    for key in keys:
        left, right = right, left ^ (_scramble(right ^ key) & mask)
    return (left << shift) | right


def _scramble(words: _Words) -> _Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
