"""HTTP/1.1 as uvicorn speaks it, with two differences: a head has a limit, and what is no HTTP gets a problem document.

uvicorn keeps headers in memory until they are complete, however long they are, and before anybody looks at a key.
"""

from __future__ import annotations

import json
from typing import Final

from shunter_schemas.ids import new_id
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from shunter_service.web.problems import PROBLEMS, TYPE_PREFIX

LARGEST_HEAD_BYTES: Final = 64 << 10
_LINGER_S: Final = 2.0
"""What a client still sends after a refusal is taken and dropped for so long: a close would make its kernel throw the
answer away before anybody has read it."""


class HeadTooLarge(Exception):
    """Raised into the parser, which gives the connection up."""


class BoundedHeads(HttpToolsProtocol):
    """One connection."""

    _in_head = True
    _received_bytes = 0
    """Of this head, before the parser has made a header of them."""
    _parsed_bytes = 0
    _is_too_large = False
    _is_refused = False

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._is_refused:
            return
        super().data_received(data)
        self._received_bytes += len(data)
        if self._in_head and not self._is_refused and self._received_bytes > LARGEST_HEAD_BYTES:
            self._is_too_large = True
            self.send_400_response("")

    def eof_received(self) -> None:
        """The client has said all that it wants to."""
        if self._is_refused:
            self.transport.close()

    def on_message_begin(self) -> None:
        """The parser: a request begins."""
        super().on_message_begin()
        self._in_head, self._received_bytes, self._parsed_bytes = True, 0, 0

    def on_url(self, url: bytes) -> None:
        """The parser: a part of the address."""
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser: one header."""
        self._count(name, value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The parser: the head is whole."""
        self._in_head = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser cannot read, and close soon."""
        self._is_refused = True
        slug = "head_too_large" if self._is_too_large else "bad_request"
        detail = f"address and headers are longer than {LARGEST_HEAD_BYTES} bytes" if self._is_too_large else msg
        kind, request_id = PROBLEMS[slug], new_id("req")
        body = json.dumps(
            {
                "type": TYPE_PREFIX + slug,
                "title": kind.title,
                "status": kind.status,
                "detail": detail,
                "request_id": request_id,
            }
        ).encode()
        head = (
            f"content-type: application/problem+json\r\ncontent-length: {len(body)}\r\n"
            f"x-request-id: {request_id}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(STATUS_LINE[kind.status] + head.encode() + body)
        self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.close)

    def _count(self, *parts: bytes) -> None:
        self._parsed_bytes += sum(map(len, parts))
        if self._parsed_bytes > LARGEST_HEAD_BYTES:
            self._is_too_large = True
            raise HeadTooLarge
