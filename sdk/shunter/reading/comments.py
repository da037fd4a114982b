"""JSON as people write it: `//` and `/* */` comments, and a comma behind the last member.

What is taken out is replaced by blanks, so that an error names the line and column of the file as it stands. Everything
else stays what strict JSON says; the service itself takes strict JSON only.
"""

from __future__ import annotations

import re
from typing import Any, Final

from shunter_schemas.faults import DocumentError, Fault
from shunter_schemas.reading import read_json

_TOKENS: Final = re.compile(
    r'(?P<text>"[^"\\]*(?:\\.[^"\\]*)*"?)'
    r"|(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|(?P<endless>/\*)"
    r"|(?P<comma>,)"
    r"|(?P<closing>[\]}])"
    r'|(?P<other>[^\s"/,\]}]+|/)',
    re.DOTALL,
)
_BEFORE_A_VALUE: Final = ("[", "{", ",", ":")


def read_commented_json(body: bytes) -> Any:
    """The value of a JSON document with comments and trailing commas.

    Raises:
        DocumentError: as `read_json`, or a comment has no end.
    """
    text = body.decode("utf-8", "surrogateescape")
    return read_json(without_comments(text).encode("utf-8", "surrogateescape"))


def without_comments(text: str) -> str:
    """The same document in strict JSON, every character at its old line and column."""
    pieces, end = list[str](), 0
    before, comma = "", None
    """The token before, and where in `pieces` the comma is that a closing bracket would make a trailing one."""
    for match in _TOKENS.finditer(text):
        token, kind = match.group(), match.lastgroup
        pieces += [text[end : match.start()], token]
        end = match.end()
        if kind == "comment":
            pieces[-1] = re.sub(r"[^\r\n]", " ", token)
            continue
        if kind == "endless":
            line = text.count("\n", 0, match.start()) + 1
            detail = f"not JSON: the comment that begins in line {line} has no end"
            raise DocumentError([Fault("", detail)], parseable=False)
        if kind == "closing" and comma is not None:
            pieces[comma] = " "
        is_behind_a_value = kind == "comma" and before and not before.endswith(_BEFORE_A_VALUE)
        comma = len(pieces) - 1 if is_behind_a_value else None
        before = token
    return "".join((*pieces, text[end:]))
