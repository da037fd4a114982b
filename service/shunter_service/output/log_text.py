"""Bytes of output as lines that people read, and the search for a text in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

LONGEST_LINE_BYTES: Final = 64 << 10
"""What is longer is cut, and ends in `CUT`: nobody reads it, and a page of such lines would not fit anywhere."""
CUT: Final = " … (the line goes on)"
_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], "\N{REPLACEMENT CHARACTER}") | {0x09: "\t"}


def shown(line: bytes) -> str:
    """A line as a terminal would leave it (a progress bar's last state), with nothing in it that steers a terminal."""
    kept = line.rstrip(b"\r").rpartition(b"\r")[2]
    if len(kept) > LONGEST_LINE_BYTES:
        return shown(kept[: LONGEST_LINE_BYTES - len(CUT)]) + CUT
    return kept.decode("utf-8", "replace").translate(_CONTROLS)


class Needle:
    """A text that is looked for in lines as they are shown."""

    def __init__(self, text: str, *, case_counts: bool) -> None:
        self._case_counts = case_counts
        self._text = self._folded(text)
        # Bytes of ASCII are compared as they are; a replaced control character is the one case where they lie.
        self._bytes = self._text.encode() if self._text.isascii() else None
        self._may_be_ascii = self._bytes is not None or "\N{REPLACEMENT CHARACTER}" in self._text

    def is_in(self, text: str) -> bool:
        """Whether a line as it is shown holds the text."""
        return self._text in self._folded(text)

    def lines(self, data: bytes, first: int, last: int) -> Iterator[tuple[int, str]]:
        """Lines that hold the text, by their place from 0, among the whole lines `first … last - 1` of some bytes."""
        if not data.isascii():
            return self._in_lines(data.split(b"\n")[first:last], first)
        if self._bytes is not None:
            return self._in_ascii(data, first, last)
        return self._in_lines(data.split(b"\n")[first:last], first) if self._may_be_ascii else iter(())

    def _in_lines(self, lines: list[bytes], first: int) -> Iterator[tuple[int, str]]:
        for place, line in enumerate(lines, first):
            if line.isascii() and not self._may_be_in(line):
                continue
            text = shown(line)
            if self.is_in(text):
                yield place, text

    def _in_ascii(self, data: bytes, first: int, last: int) -> Iterator[tuple[int, str]]:
        """From find to find: most lines are never looked at."""
        assert self._bytes is not None
        folded = data if self._case_counts else data.lower()
        place = begin = 0
        at = folded.find(self._bytes)
        while at >= 0 and place < last:
            place += data.count(b"\n", begin, at)
            begin = data.rfind(b"\n", 0, at) + 1
            end = data.find(b"\n", at)
            if end < 0:
                return
            if first <= place < last:
                text = shown(data[begin:end])
                if self.is_in(text):
                    yield place, text
            place, begin = place + 1, end + 1
            at = folded.find(self._bytes, begin)

    def _may_be_in(self, line: bytes) -> bool:
        if self._bytes is None:
            return self._may_be_ascii
        return self._bytes in (line if self._case_counts else line.lower())

    def _folded(self, text: str) -> str:
        return text if self._case_counts else text.casefold()
