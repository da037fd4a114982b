"""Texts of the document's kinds, as tables of tokens. The only tokenizer is `bytes`: a token is a byte of UTF-8."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

from shunter_trainer.data.samples import PaddedTable, Samples, TokenTable
from shunter_trainer.failures import UserFault
from shunter_trainer.places import Places

BYTES_VOCAB = 256
_SEPARATOR = b"\x00"
"""Stands between texts. The zero byte occurs in no text, so the 256 ids need no special token beside them."""


def text_samples(data: Any, sequence_length: int, places: Places, pointer: str) -> Samples:
    """The samples of `sample`, `text` or `jsonl` data.

    Raises: UserFault when files are missing or broken, or hold less than one sample.
    """
    texts = _READERS[data.kind](data, places, pointer)
    if getattr(data, "packing", True):
        return _packed(texts, sequence_length, pointer)
    return _padded(texts, sequence_length, pointer)


def _packed(texts: Iterable[bytes], length: int, pointer: str) -> Samples:
    stream = np.frombuffer(bytearray(_SEPARATOR.join(texts)), dtype=np.uint8)
    count = len(stream) // length
    if count == 0:
        raise UserFault(pointer, f"the data has {len(stream)} tokens, fewer than one sample of {length}")
    return TokenTable(torch.from_numpy(stream[: count * length].reshape(count, length)))


def _padded(texts: Iterable[bytes], length: int, pointer: str) -> Samples:
    # A text of one byte has nothing to predict.
    rows = [text[:length] for text in texts if len(text) > 1]
    if not rows:
        raise UserFault(pointer, "the data holds no text of two tokens or more")
    table = np.zeros((len(rows), length), dtype=np.uint8)
    for row, text in zip(table, rows, strict=True):
        row[: len(text)] = np.frombuffer(text, dtype=np.uint8)
    return PaddedTable(torch.from_numpy(table), np.array([len(text) for text in rows], dtype=np.int64))


def _sample_texts(data: Any, places: Places, pointer: str) -> Iterator[bytes]:
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield topics[name].encode()


def _file_texts(data: Any, places: Places, pointer: str) -> Iterator[bytes]:
    for file in places.files(data.path, f"{pointer}/path"):
        yield file.read_bytes()


def _line_texts(data: Any, places: Places, pointer: str) -> Iterator[bytes]:
    for file in places.files(data.path, f"{pointer}/path"):
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.isspace():
                    yield _member(line, data.field, f"{file.name}, line {number}", pointer)


def _member(line: bytes, field: str, where: str, pointer: str) -> bytes:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise UserFault(f"{pointer}/path", f"{where} is no JSON: {error}") from error
    text = value.get(field) if isinstance(value, dict) else None
    if not isinstance(text, str):
        names = ", ".join(sorted(value)[:8]) if isinstance(value, dict) else f"a {type(value).__name__}"
        raise UserFault(f"{pointer}/field", f"{where} has no text {field!r} (it holds {names})")
    # Lone surrogates are legal in JSON but have no UTF-8.
    return text.encode(errors="replace")


_READERS: dict[str, Callable[[Any, Places, str], Iterable[bytes]]] = {
    "sample": _sample_texts,
    "text": _file_texts,
    "jsonl": _line_texts,
}
TEXT_KINDS = frozenset(_READERS)
