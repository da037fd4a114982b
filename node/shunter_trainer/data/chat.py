"""Conversations as rows of tokens, of which the assistant's words, or all, are targets."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from shunter_trainer.data.chat_template import ChatTemplate
from shunter_trainer.data.conversations import conversation
from shunter_trainer.data.making import Made, Making
from shunter_trainer.data.model_facts import check_vocab, sequence_length
from shunter_trainer.data.order import Indices
from shunter_trainer.data.packing import best_fit, one_a_row
from shunter_trainer.data.records import records
from shunter_trainer.data.tables import Ids, RowTable, Table, TableWriter
from shunter_trainer.data.tokenizers import Marks, Tokenizer, find_tokenizer
from shunter_trainer.failures import UserFault

_FORMAT = 1
_AT_ONCE = 128  # tokenizers use several cores for many


def chat_samples(data: Any, making: Making) -> Made:
    """Rows of whole conversations. What is longer than a row is cut, what has no target then is left out.

    Raises: UserFault when files are missing or broken, or when nothing is left.
    """
    length = sequence_length(data, making.workload, making.places, making.pointer)
    place = f"{making.pointer}/tokenizer"
    tokenizer = find_tokenizer(data.tokenizer, making.workload, making.places, place)
    files = making.files(data.path)
    key: dict[str, object] = {
        "format": _FORMAT,
        "chat": making.digest(files),
        "tokenizer": tokenizer.digest,
        "template": data.template,
        "train_on": data.train_on,
        "packing": data.packing,
        "length": length,
    }

    def build(folder: Path) -> None:
        check_vocab(tokenizer, making.workload, making.places, making.pointer)
        with TableWriter(folder, tokenizer.vocab, masked=True) as writer:
            _write(_encoded(data, files, tokenizer, making), writer, length, data.packing, tokenizer.padding)

    table = Table(making.once(key, build))
    samples = RowTable(table, length, packed=data.packing, padding=table.meta["padding"])
    dropped = table.meta["dropped"]
    if len(samples) == 0:
        why = f"none of {dropped} conversations has a target within {length} tokens" if dropped else "they are empty"
        raise UserFault(f"{making.pointer}/path", f"there is nothing to train on: {why}")
    return Made(samples, None, _notes(table, len(samples), length))


def _encoded(data: Any, files: list[Path], tokenizer: Tokenizer, making: Making) -> Iterator[tuple[Ids, Marks]]:
    template = ChatTemplate(tokenizer, data.template, making.pointer)
    found = records(files, None, f"{making.pointer}/path")
    while some := list(islice(found, _AT_ONCE)):
        talks = [conversation(record, making.pointer) for record in some]
        if data.train_on == "assistant":
            yield from tokenizer.encode_marked([template.marked(talk) for talk in talks])
        else:
            for ids in tokenizer.encode([template.whole(talk) for talk in talks]):
                yield ids, np.ones(len(ids), dtype=bool)
        making.beat()


def _write(talks: Iterator[tuple[Ids, Marks]], writer: TableWriter, length: int, packing: bool, padding: int) -> None:
    cut = dropped = 0
    lengths, targets = array("q"), array("q")
    for ids, marks in talks:
        count = int(marks[1:length].sum())  # the first token follows nothing
        if count == 0:
            dropped += 1
            continue
        cut += len(ids) > length
        writer.extend(ids[:length], marks[:length])
        writer.end()
        lengths.append(min(len(ids), length))
        targets.append(count)
    sizes = np.array(lengths, dtype=np.int64)
    texts, ends = best_fit(sizes, length) if packing else one_a_row(len(sizes))
    columns = {
        "row_texts": texts,
        "row_ends": ends,
        "row_targets": _sums(np.array(targets, dtype=np.int64), texts, ends),
    }
    writer.finish(columns, padding=padding, cut=cut, dropped=dropped)


def _sums(counts: Indices, texts: Indices, ends: Indices) -> Indices:
    """The targets of each row."""
    upto = np.concatenate([[0], np.cumsum(counts[texts])])[np.concatenate([[0], ends])]
    sums: Indices = np.diff(upto)
    return sums


def _notes(table: Table, rows: int, length: int) -> tuple[str, ...]:
    meta = table.meta
    fill = 100 * meta["tokens"] / (rows * length)
    notes = [f"{meta['texts']} conversations in {rows} samples of {length} tokens, {fill:.0f} % filled"]
    if meta["cut"]:
        notes.append(f"{meta['cut']} conversations were cut to {length} tokens")
    if meta["dropped"]:
        notes.append(f"{meta['dropped']} conversations were left out, since no target is within {length} tokens")
    return tuple(notes)
