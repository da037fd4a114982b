"""Files that grow while they are read: new whole lines, from where the last look ended."""

from __future__ import annotations

import os
import re

_ENDS = re.compile(rb"[\r\n]+")


class LineTail:
    """Reads one growing file; it need not exist yet."""

    def __init__(self, path: str, longest_line: int = 1 << 16) -> None:
        """A longer line is dropped: no line of ours is that long."""
        self.path = path
        self._longest_line = longest_line
        self._offset = 0
        self._rest = b""

    def read(self, limit: int = 1 << 20) -> list[str]:
        """Lines that were ended since the last call, from at most `limit` new bytes; a carriage return ends one too."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                data = file.read(limit)
        except OSError:
            data = b""
        self._offset += len(data)
        parts = _ENDS.split(self._rest + data)
        self._rest = parts.pop()
        if len(self._rest) > self._longest_line:
            self._rest = b""
        return [part.decode("utf-8", "replace") for part in parts if 0 < len(part) <= self._longest_line]

    def read_all(self) -> list[str]:
        """Every line up to the end of the file, a last one without a line end too; for when nobody writes any more."""
        lines: list[str] = []
        before = -1
        while before != self._offset:
            before = self._offset
            lines += self.read()
        if self._rest:
            lines.append(self._rest.decode("utf-8", "replace"))
            self._rest = b""
        return lines

    def skip_to(self, distance: int) -> None:
        """Pass over what lies more than `distance` bytes before the end: prints are worth no backlog."""
        try:
            size = os.stat(self.path).st_size
        except OSError:
            return
        if size - self._offset > distance:
            self._offset, self._rest = size - distance, b""
