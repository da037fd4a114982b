"""Where a stream over many topics stands, as a text that fits a `Last-Event-ID`.

A letter for the layout, then for each topic five bytes of a digest of its name and its position as a varint, then two
bytes that tell a cursor from other text; all in base64url. At most 512 characters.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Iterable, Mapping
from typing import Final

from shunter_service.streams.topics import unreadable

LONGEST: Final = 640
_LAYOUT = b"a"
_NAME_BYTES = 5
_LARGEST = 2**63


def key_of(name: str) -> bytes:
    """What stands for a topic in a cursor."""
    return hashlib.blake2s(name.encode(), digest_size=_NAME_BYTES).digest()


def encode(positions: Iterable[tuple[bytes, int]]) -> str:
    """A cursor over topics, each by `key_of` its name."""
    body = _LAYOUT + b"".join(key + _varint(position) for key, position in positions)
    return base64.urlsafe_b64encode(body + _check(body)).decode().rstrip("=")


def decode(cursor: str) -> Mapping[bytes, int]:
    """The positions in a cursor.

    Raises:
        ProblemError: 400: it was not made by `encode`.
    """
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise unreadable() from None
    body, check = data[:-2], data[-2:]
    if len(cursor) > LONGEST or body[:1] != _LAYOUT or check != _check(body):
        raise unreadable()
    found: dict[bytes, int] = {}
    at = len(_LAYOUT)
    while at < len(body):
        key = body[at : at + _NAME_BYTES]
        position, at = _read_varint(body, at + _NAME_BYTES)
        found[key] = position
    return found


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 64:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            break
    else:
        raise unreadable()
    if number >= _LARGEST:
        raise unreadable()
    return number, at


def _check(body: bytes) -> bytes:
    return (zlib.crc32(body) & 0xFFFF).to_bytes(2, "big")
