"""Texts of `sample`, `text`, `jsonl`, `parquet` and `huggingface` data as tables of tokens."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shunter_trainer.data.hub_folder import saved_data_set, split_files
from shunter_trainer.data.labels import Labels
from shunter_trainer.data.making import Made, Making
from shunter_trainer.data.model_facts import check_vocab, model_vocab, sequence_length
from shunter_trainer.data.packing import one_a_row
from shunter_trainer.data.records import PIECE_CHARACTERS, Record, file_pieces, named, pieces, records
from shunter_trainer.data.tables import Ids, LabelledTable, RowTable, Table, TableWriter, TokenTable
from shunter_trainer.data.tokenizers import Frame, Tokenizer, find_tokenizer
from shunter_trainer.failures import UserFault

_FORMAT = 1
_LARGEST_ID = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a text: characters, or ids that need no tokenizer."""

    content: str | Ids
    begins: bool = True
    ends: bool = True
    where: str = ""
    label: Any = None


@dataclass(frozen=True, slots=True)
class _Source:
    """Texts, and what their ids depend on."""

    key: dict[str, object]
    pieces: Iterable[_Piece]
    classes: tuple[str, ...] | None = None


def text_samples(data: Any, making: Making) -> Made:
    """Packed, padded or labelled texts.

    Raises: UserFault when files are missing or broken, or hold less than one sample.
    """
    length = sequence_length(data, making.workload, making.places, making.pointer)
    place = f"{making.pointer}/tokenizer"
    tokenizer = find_tokenizer(data.tokenizer, making.workload, making.places, place)
    label = getattr(data, "label", None)
    flat = getattr(data, "packing", True) and label is None
    source = _source(data, making)
    key = {
        "format": _FORMAT,
        "source": source.key,
        "tokenizer": tokenizer.digest,
        "length": None if flat else length,
        "vocab": model_vocab(making.workload, making.places),
        "classes": making.classes,
    }

    def build(folder: Path) -> None:
        check_vocab(tokenizer, making.workload, making.places, making.pointer)
        ids = _ids(source.pieces, tokenizer, making, ends=label is None)
        vocab = model_vocab(making.workload, making.places) or _LARGEST_ID + 1
        # Lists of ids may hold all that the model has; texts only what the tokenizer gives.
        with TableWriter(folder, vocab if hasattr(data, "field") else tokenizer.vocab) as writer:
            if flat:
                _write_flat(ids, writer)
            elif label is None:
                _write_rows(ids, writer, length, tokenizer.padding)
            else:
                labels = Labels(f"{making.pointer}/label", making.classes or source.classes)
                _write_labelled(ids, writer, length, labels, tokenizer.padding)

    table = Table(making.once(key, build))
    if flat:
        return _packed(table, length, making)
    if table.meta["texts"] == 0:
        raise UserFault(making.pointer, "the data hold no text of two tokens or more")
    padding = table.meta["padding"]
    if label is not None:
        return Made(LabelledTable(table, length, padding), tuple(table.meta["classes"]), _notes(table, length))
    return Made(RowTable(table, length, packed=False, padding=padding), None, _notes(table, length))


def _packed(table: Table, length: int, making: Making) -> Made:
    samples = TokenTable(table, length)
    if len(samples) == 0:
        tokens = table.meta["tokens"]
        raise UserFault(making.pointer, f"the data has {tokens} tokens, fewer than one sample of {length}")
    return Made(samples)


def _notes(table: Table, length: int) -> tuple[str, ...]:
    cut, dropped, texts = (table.meta[name] for name in ("cut", "dropped", "texts"))
    notes = [f"{cut} of {texts} texts were cut to {length} tokens"] if cut else []
    return (*notes, f"{dropped} texts of less than two tokens were left out") if dropped else tuple(notes)


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece as ids, with what stands around its text."""

    ids: Ids
    piece: _Piece
    frame: Frame


def _ids(source: Iterable[_Piece], tokenizer: Tokenizer, making: Making, ends: bool) -> Iterator[_Part]:
    """Each piece as ids; many at a time, since tokenizers use several cores for many."""
    frame = tokenizer.frame(ends)
    bare = Frame((), ())
    vocab = model_vocab(making.workload, making.places) or _LARGEST_ID + 1
    for batch in _batches(source):
        texts = [piece.content for piece in batch if isinstance(piece.content, str)]
        encoded = iter(tokenizer.encode(texts) if texts else [])
        for piece in batch:
            if isinstance(piece.content, str):
                yield _Part(next(encoded), piece, frame)
            elif len(piece.content) and not 0 <= piece.content.min() <= piece.content.max() < vocab:
                raise UserFault(
                    f"{making.pointer}/field", f"{piece.where} holds ids outside the model's vocabulary of {vocab}"
                )
            else:
                yield _Part(piece.content, piece, bare)
        making.beat()


def _batches(source: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    batch: list[_Piece] = []
    size = 0
    for piece in source:
        batch.append(piece)
        size += len(piece.content) + 64
        if size >= PIECE_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write_flat(parts: Iterable[_Part], writer: TableWriter) -> None:
    # Nobody asks where a packed text ends, and a place for each of very many would fill the memory.
    for part in parts:
        if part.piece.begins:
            writer.extend(_array(part.frame.before))
        writer.extend(part.ids)
        if part.piece.ends:
            writer.extend(_array(part.frame.after))
    writer.finish({})


def _write_rows(parts: Iterable[_Part], writer: TableWriter, length: int, padding: int) -> None:
    cut = dropped = 0
    for ids, part in _whole(parts, length):
        framed = np.concatenate([_array(part.frame.before), ids, _array(part.frame.after)])
        if len(framed) < 2 or not len(ids):
            dropped += 1
            continue
        cut += len(framed) > length
        writer.extend(framed[:length])
        writer.end()
    texts, ends = one_a_row(writer.texts)
    targets = np.diff(writer.ends, prepend=0) - 1
    columns = {"row_texts": texts, "row_ends": ends, "row_targets": targets}
    writer.finish(columns, padding=padding, cut=cut, dropped=dropped)


def _write_labelled(parts: Iterable[_Part], writer: TableWriter, length: int, labels: Labels, padding: int) -> None:
    cut = 0
    for ids, part in _whole(parts, length):
        room = max(length - len(part.frame.before) - len(part.frame.after), 0)
        cut += len(ids) > room
        framed = np.concatenate([_array(part.frame.before), ids[:room], _array(part.frame.after)])[:length]
        # A text of no token at all still has a class.
        writer.extend(framed if len(framed) else _array((padding,)))
        writer.end()
        labels.add(part.piece.label, part.piece.where)
    classes, numbers = labels.finish()
    writer.finish({"labels": numbers}, padding=padding, cut=cut, dropped=0, classes=classes)


def _whole(parts: Iterable[_Part], length: int) -> Iterator[tuple[Ids, _Part]]:
    """The ids of whole texts, as far as a row of `length` shows them, and one token more."""
    held: list[Ids] = []
    count = 0
    for part in parts:
        if count <= length:
            held.append(part.ids[: length + 1])
            count += len(held[-1])
        if part.piece.ends:
            yield np.concatenate(held), part
            held, count = [], 0


def _array(ids: tuple[int, ...]) -> Ids:
    return np.array(ids, dtype=np.int64)


def _source(data: Any, making: Making) -> _Source:
    if data.kind == "sample":
        return _Source({"sample": data.name, "python": platform.python_version()}, _topics())
    if data.kind == "text":
        files = making.files(data.path)
        return _Source({"text": making.digest(files)}, _texts_of(files, f"{making.pointer}/path"))
    label = data.label
    members = {"field": data.field, "label": label}
    columns = [data.field, *([label] if label else [])]
    if data.kind == "huggingface":
        return _hub_source(data, making, members, columns)
    files = making.files(data.path)
    found = records(files, columns, f"{making.pointer}/path", parquet=data.kind == "parquet")
    return _Source({data.kind: making.digest(files), **members}, _members(found, data, making.pointer))


def _hub_source(data: Any, making: Making, members: dict[str, Any], columns: list[str]) -> _Source:
    saved = saved_data_set(data, making)
    if saved is not None:
        pieces_ = _members(saved.records(columns), data, making.pointer)
        return _Source({"saved": making.digest(saved.files), "split": data.split, **members}, pieces_, saved.classes)
    files = split_files(data, making)
    found = records(files, columns, f"{making.pointer}/name")
    return _Source({"files": making.digest(files), **members}, _members(found, data, making.pointer))


def _topics() -> Iterator[_Piece]:
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield _Piece(topics[name])


def _texts_of(files: list[Path], pointer: str) -> Iterator[_Piece]:
    for file in files:
        begins = True
        for text in file_pieces(file, pointer):
            yield _Piece(text, begins=begins, ends=False)
            begins = False
        if not begins:
            yield _Piece("", begins=False)


def _members(found: Iterable[Record], data: Any, pointer: str) -> Iterator[_Piece]:
    for record in found:
        label = _label(record, data.label, pointer) if data.label else None
        content = record.values.get(data.field)
        if isinstance(content, list):
            yield _Piece(_given_ids(content, record, data.field, pointer), where=record.where, label=label)
            continue
        if not isinstance(content, str):
            kind = "no" if data.field not in record.values else "no text in"
            raise UserFault(
                f"{pointer}/field", f"{record.where} has {kind} {data.field!r} (it holds {named(record.values)})"
            )
        parts = pieces(content)
        for number, part in enumerate(parts, 1):
            yield _Piece(part, number == 1, number == len(parts), record.where, label)


def _label(record: Record, name: str, pointer: str) -> Any:
    if name not in record.values:
        raise UserFault(f"{pointer}/label", f"{record.where} has no {name!r} (it holds {named(record.values)})")
    return record.values[name]


def _given_ids(content: list[Any], record: Record, name: str, pointer: str) -> Ids:
    if all(type(item) is int and 0 <= item <= _LARGEST_ID for item in content):
        return np.array(content, dtype=np.int64)
    raise UserFault(f"{pointer}/field", f"{record.where}: the list {name!r} holds something else than token ids")


TEXT_KINDS = ("sample", "text", "jsonl", "parquet", "huggingface")
