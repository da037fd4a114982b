"""The journal: append-only records with gapless sequence numbers, durable before anything is told to the service.

One file of JSON lines. The first line is a header (`journal_id`, `first_seq`); every other line is a record in the
very shape in which it is sent. A line is handed out for sending only after it was synced to the disk, so whatever a
crash leaves torn at the end was never seen by anybody and is cut off.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any, Iterable, Iterator, NamedTuple, Sequence

from shunter_agent.files import sync_folder, to_json, write_all

BATCH_RECORDS = 500
BATCH_BYTES = 1 << 20


class Entry(NamedTuple):
    """What is to be recorded; `at` is the moment it is written unless given."""

    type: str
    generation: int
    data: dict[str, Any]
    at: float | None = None


class Batch(NamedTuple):
    """Records as JSON, and the journal that they belong to."""

    journal_id: str
    records: list[bytes]


class Journal:
    """Written by one thread, read and acknowledged by another."""

    def __init__(self, folder: str) -> None:
        """Open the journal of this folder, or begin one; a torn last line is cut off."""
        os.makedirs(folder, exist_ok=True)
        self._path = os.path.join(folder, "journal.jsonl")
        self.journal_id = ""
        self._first_seq = self._next_seq = 1
        self._cursor_seq = self._cursor_offset = self._header_size = self._size = 0
        self._lock = threading.Lock()
        self.dropped = 0
        """Records that could not be written since this object was made."""
        if not os.path.exists(self._path):
            self._create(os.urandom(16).hex(), first_seq=1)
        self._open()

    @property
    def last_seq(self) -> int:
        return self._next_seq - 1

    @property
    def acknowledged(self) -> int:
        """The service has every record up to this one."""
        return self._cursor_seq

    @property
    def pending(self) -> bool:
        """Whether there is a record that the service has not acknowledged."""
        return self._cursor_seq < self.last_seq

    def worth_cutting(self, limit: int) -> bool:
        """Whether more than `limit` bytes are acknowledged, and no more would have to be copied than is freed."""
        freed = self._cursor_offset - self._header_size
        return freed > limit and freed >= self._size - self._cursor_offset

    def append(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """Write the records and sync them to the disk; all or none.

        Returns:
            The records as written.

        Raises:
            OSError: they could not be written (a full disk); for every reader the journal is as before.
        """
        records = [
            {
                "seq": self._next_seq + index,
                "at": time.time() if entry.at is None else entry.at,
                "type": entry.type,
                "generation": entry.generation,
                "data": entry.data,
            }
            for index, entry in enumerate(entries)
        ]
        lines = b"".join(to_json(record) + b"\n" for record in records)
        if os.fstat(self._descriptor).st_size != self._size:
            os.ftruncate(self._descriptor, self._size)  # what a write that failed has left
        write_all(self._descriptor, lines)
        os.fdatasync(self._descriptor)
        with self._lock:
            self._size += len(lines)
            self._next_seq += len(records)
        return records

    def batch(self, records: int = BATCH_RECORDS, size: int = BATCH_BYTES) -> Batch:
        """The next unacknowledged records, at most so many and so many bytes, but at least one if any."""
        with self._lock:
            found: list[bytes] = []
            for line in self._lines(self._cursor_offset):
                size -= len(line) + 1
                if found and size < 0:
                    break
                found.append(line)
                if len(found) == records:
                    break
            return Batch(self.journal_id, found)

    def acknowledge(self, journal_id: str, seq: int) -> bool:
        """Move the cursor to `seq`, back as well as forth; what was said of an earlier journal is passed over.

        Returns:
            False when the service knows records that this journal never wrote: the disk lost some, so `begin_anew`.
        """
        with self._lock:
            if journal_id != self.journal_id:
                return True
            if seq > self.last_seq:
                return False
            if seq < self._cursor_seq:
                self._cursor_seq, self._cursor_offset = self._first_seq - 1, self._header_size
            for line in self._lines(self._cursor_offset):
                if self._cursor_seq >= seq:
                    break
                self._cursor_seq += 1
                self._cursor_offset += len(line) + 1
            return True

    def begin_anew(self) -> None:
        """Start an empty journal with a new id, from sequence number 1."""
        with self._lock:
            old = self._descriptor
            self._create(os.urandom(16).hex(), first_seq=1)
            os.close(old)
            self._open()

    def compact(self) -> None:
        """Cut off the acknowledged records.

        Raises:
            OSError: there is no room for what is kept; the journal is as before.
        """
        with self._lock:
            old = self._descriptor
            self._create(self.journal_id, self._cursor_seq + 1, self._blocks(self._cursor_offset))
            os.close(old)
            self._open()

    def records(self) -> Iterator[dict[str, Any]]:
        """Every record that the file still holds, oldest first."""
        for line in self._lines(self._header_size):
            yield json.loads(line)

    def _create(self, journal_id: str, first_seq: int, rest: Iterable[bytes] = ()) -> None:
        partial = self._path + ".tmp"
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(descriptor, to_json({"journal_id": journal_id, "first_seq": first_seq}) + b"\n")
            for block in rest:
                write_all(descriptor, block)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(partial, self._path)
        sync_folder(os.path.dirname(self._path))

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self._size = os.fstat(self._descriptor).st_size
        header = next(self._lines(0), b"")
        try:
            found = json.loads(header)
            self.journal_id = str(found["journal_id"])
            self._first_seq = int(found["first_seq"])
        except (ValueError, TypeError, KeyError):
            os.close(self._descriptor)
            os.replace(self._path, f"{self._path}.unreadable-{int(time.time())}")
            self._create(os.urandom(16).hex(), first_seq=1)
            self._open()
            return
        self._header_size = len(header) + 1
        self._next_seq, whole = self._scan()
        if whole < self._size:
            os.ftruncate(self._descriptor, whole)
            os.fsync(self._descriptor)
            self._size = whole
        self._cursor_seq, self._cursor_offset = self._first_seq - 1, self._header_size

    def _scan(self) -> tuple[int, int]:
        """The sequence number after the last good record, and where that record ends."""
        seq, offset = self._first_seq, self._header_size
        for line in self._lines(offset):
            try:
                record = json.loads(line)
            except ValueError:
                break
            if not isinstance(record, dict) or record.get("seq") != seq:
                break
            seq += 1
            offset += len(line) + 1
        return seq, offset

    def _lines(self, offset: int) -> Iterator[bytes]:
        """Whole lines from `offset` to the end of what is durable."""
        rest = b""
        for block in self._blocks(offset):
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            yield from lines

    def _blocks(self, offset: int) -> Iterator[bytes]:
        while offset < self._size:
            data = os.pread(self._descriptor, min(BATCH_BYTES, self._size - offset), offset)
            if not data:
                return
            offset += len(data)
            yield data
