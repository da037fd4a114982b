"""Records and texts out of files, one by one: no file is in memory as a whole. Faults name the file and the line."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from shunter_trainer.data.packages import package
from shunter_trainer.failures import UserFault

LONGEST_LINE_BYTES = 256 << 20
PIECE_CHARACTERS = 1 << 20
_LOOK_BACK = 1 << 16
_BATCH_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Record:
    """One line or row."""

    values: Mapping[str, Any]
    where: str
    """For people: the file and the line or row."""


def file_pieces(file: Path, pointer: str) -> Iterator[str]:
    """A text file in pieces of at most about `PIECE_CHARACTERS`, cut where a word begins.

    Raises: UserFault when it is not UTF-8, or binary.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    rest, read_bytes = "", 0
    with _opened(file, pointer) as content:
        while True:
            block = _read(content, PIECE_CHARACTERS, file, pointer)
            waiting = len(decoder.getstate()[0])
            try:
                text = rest + decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                at = read_bytes - waiting + error.start
                raise UserFault(pointer, f"{file.name} is not UTF-8 at byte {at}; convert it first") from error
            if "\0" in text:
                raise UserFault(pointer, f"{file.name} holds a zero byte, so it is no UTF-8 text; convert it first")
            read_bytes += len(block)
            *whole, rest = pieces(text)
            yield from whole
            if not block:
                break
    if rest:
        yield rest


def pieces(text: str) -> list[str]:
    """A text cut where tokenizers cut too, before words; each piece is at most `PIECE_CHARACTERS` long."""
    found = []
    start = 0
    while len(text) - start > PIECE_CHARACTERS:
        stop = _cut(text, start, start + PIECE_CHARACTERS)
        found.append(text[start:stop])
        start = stop
    return [*found, text[start:]]


def records(files: list[Path], columns: list[str] | None, pointer: str, parquet: bool = False) -> Iterator[Record]:
    """The lines of JSON files and the rows of parquet files (told by their names, or all of them with `parquet`).

    `columns`: all that is needed of a row; None: all.

    Raises: UserFault for what cannot be read.
    """
    for file in files:
        if parquet or file.suffix == ".parquet":
            yield from _rows(file, columns, pointer)
        else:
            yield from _lines(file, pointer)


def named(values: Mapping[str, Any]) -> str:
    """The names that a record has, for people."""
    names = sorted(map(str, values))
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "") if names else "nothing"


def _lines(file: Path, pointer: str) -> Iterator[Record]:
    with _opened(file, pointer) as content:
        number = 0
        while line := _read_line(content, file, pointer):
            number += 1
            where = f"{file.name}, line {number}"
            if len(line) > LONGEST_LINE_BYTES:
                detail = f"{where} is longer than {LONGEST_LINE_BYTES >> 20} MiB"
                raise UserFault(pointer, f"{detail}; give one JSON object a line")
            if not line.isspace():
                yield Record(_object(line, where, pointer), where)


def _object(line: bytes, where: str, pointer: str) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except UnicodeDecodeError as error:
        raise UserFault(pointer, f"{where} is not UTF-8 at byte {error.start}; convert the file first") from error
    except ValueError as error:
        raise UserFault(pointer, f"{where} is no JSON ({error}); give one JSON object a line") from error
    except RecursionError as error:
        raise UserFault(pointer, f"{where} is nested too deeply; give one flat JSON object a line") from error
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else f"a {type(value).__name__}"
        raise UserFault(pointer, f"{where} holds {kind}; give one JSON object a line")
    return value


def _rows(file: Path, columns: list[str] | None, pointer: str) -> Iterator[Record]:
    parquet = package("pyarrow.parquet", "pyarrow", pointer)
    arrow = package("pyarrow", "pyarrow", pointer)
    try:
        with parquet.ParquetFile(file) as content:
            there = content.schema_arrow.names
            wanted = None if columns is None else [name for name in columns if name in there]
            number = 0
            if columns and not wanted:
                raise UserFault(
                    pointer, f"{file.name} has no column {columns[0]!r} (it has {named(dict.fromkeys(there))})"
                )
            for batch in content.iter_batches(batch_size=_BATCH_ROWS, columns=wanted):
                for values in batch.to_pylist():
                    number += 1
                    yield Record(values, f"{file.name}, row {number}")
    except (arrow.ArrowException, OSError) as error:
        raise UserFault(pointer, f"{file.name} cannot be read as parquet: {error}") from error


def _opened(file: Path, pointer: str) -> IO[bytes]:
    try:
        return cast(IO[bytes], gzip.open(file)) if file.suffix == ".gz" else file.open("rb")
    except OSError as error:
        raise UserFault(pointer, f"{file.name} cannot be read: {error.strerror}") from error


def _read(content: IO[bytes], size: int, file: Path, pointer: str) -> bytes:
    try:
        return content.read(size)
    except (OSError, EOFError, zlib.error) as error:  # a broken .gz
        raise UserFault(pointer, f"{file.name} cannot be read: {error}") from error


def _read_line(content: IO[bytes], file: Path, pointer: str) -> bytes:
    try:
        return content.readline(LONGEST_LINE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserFault(pointer, f"{file.name} cannot be read: {error}") from error


def _cut(text: str, start: int, limit: int) -> int:
    """Where to cut at `limit` at the latest: behind a line's end, else before a space, else anywhere."""
    least = max(start + 1, limit - _LOOK_BACK)
    for mark, behind in (("\n", 1), (" ", 0)):
        at = text.rfind(mark, least, limit)
        while at >= least:
            if not text[at + 1].isspace() and (behind or not text[at - 1].isspace()):
                return at + behind
            at = text.rfind(mark, least, at)
    return limit
