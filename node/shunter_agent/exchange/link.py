"""HTTP to the service and to object stores, over kept connections; one `Link` per thread.

`http.client` is used directly: `urllib.request` costs more to import and would read whole bodies into memory.
"""

from __future__ import annotations

import http.client
import json
import os
from contextlib import suppress
from typing import IO, Any, Callable, NamedTuple
from urllib.parse import SplitResult, urlsplit

from shunter_agent import __version__
from shunter_agent.files import BLOCK
from shunter_agent.keeping.launchfile import LaunchFile

ANSWER_LIMIT = 64 << 20
_LOST = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


class LinkError(Exception):
    """No usable answer: `status` is the HTTP status, or 0 when nothing came back."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"HTTP {status}: {detail}" if status else detail)
        self.status = status


class Body(NamedTuple):
    """What is uploaded; `open` may be called several times, once for each try."""

    open: Callable[[], IO[bytes]]
    size: int
    sha256: str


class _Request(NamedTuple):
    method: str
    url: SplitResult
    headers: dict[str, str]
    body: Body | bytes | None
    timeout_s: float


class Link:
    """Requests of one thread. Each method raises `LinkError` and nothing else for what goes wrong outside."""

    def __init__(self, launch: LaunchFile, timeout_s: float) -> None:
        self._launch = launch
        self._timeout_s = timeout_s
        self._connections: dict[tuple[str, str], http.client.HTTPConnection] = {}

    def call(self, path: str, message: bytes) -> dict[str, Any]:
        """POST a JSON message to the service and return its JSON answer."""
        url, headers = self._locate(path)
        headers["Content-Type"] = "application/json"
        response = self._send(_Request("POST", url, headers, message, self._timeout_s))
        try:
            answer = json.loads(_read(response))
        except ValueError as error:
            raise LinkError(0, f"{path}: not JSON: {error}") from error
        if not isinstance(answer, dict):
            raise LinkError(0, f"{path}: not an object")
        return answer

    def put(self, url: str, body: Body) -> None:
        """PUT a body to a granted URL."""
        where, headers = self._locate(url)
        headers["X-Shunter-Sha256"] = body.sha256
        headers["Content-Type"] = "application/octet-stream"
        _read(self._send(_Request("PUT", where, headers, body, 6 * self._timeout_s)))

    def fetch(self, url: str, write: Callable[[bytes], object]) -> None:
        """GET a granted URL, piece by piece; what `write` raises passes through."""
        where, headers = self._locate(url)
        response = self._send(_Request("GET", where, headers, None, 6 * self._timeout_s))
        while True:
            try:
                block = response.read(BLOCK)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                raise LinkError(0, str(error) or type(error).__name__) from error
            if not block:
                break
            write(block)  # what it raises is not the link's fault
        if response.length:
            self.close()
            raise LinkError(0, f"{response.length} bytes did not come")

    def close(self) -> None:
        """Drop the kept connections; the next request opens new ones."""
        while self._connections:
            self._connections.popitem()[1].close()

    def _locate(self, url: str) -> tuple[SplitResult, dict[str, str]]:
        """A URL that begins with `/` is the service's own and takes the node's token; others carry their own proof."""
        headers = {"User-Agent": f"shunter-agent/{__version__}"}
        if url.startswith("/"):
            address = self._launch.address()
            headers["Authorization"] = f"Bearer {address.token}"
            url = address.url + url
        split = urlsplit(url)
        if split.scheme not in ("http", "https") or not split.hostname:
            raise LinkError(0, f"not an HTTP address: {split.scheme}://{split.netloc}")
        return split, headers

    def _send(self, request: _Request) -> http.client.HTTPResponse:
        try:
            response = self._exchange(request)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise LinkError(0, str(error) or type(error).__name__) from error
        if not 200 <= response.status < 300:
            try:
                detail = response.read(2000).decode("utf-8", "replace")
            except (OSError, http.client.HTTPException):
                detail = response.reason
            self.close()  # part of the answer may be unread
            raise LinkError(response.status, detail)
        return response

    def _exchange(self, request: _Request) -> http.client.HTTPResponse:
        """Send over the kept connection; if the other side had closed it meanwhile, once more over a new one."""
        key = (request.url.scheme, request.url.netloc)
        kept = self._connections.get(key)
        if kept is not None:
            try:
                return _once(kept, request)
            except _LOST:
                kept.close()
        self._connections[key] = fresh = _connect(request)
        return _once(fresh, request)


def file_body(path: str, sha256: str) -> Body:
    """The whole file as a body."""
    return Body(lambda: open(path, "rb"), os.path.getsize(path), sha256)


def _connect(request: _Request) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if request.url.scheme == "https" else http.client.HTTPConnection
    assert request.url.hostname is not None
    return kind(request.url.hostname, request.url.port, timeout=request.timeout_s, blocksize=BLOCK)


def _once(connection: http.client.HTTPConnection, request: _Request) -> http.client.HTTPResponse:
    target = (request.url.path or "/") + (f"?{request.url.query}" if request.url.query else "")
    if connection.sock is not None:
        connection.sock.settimeout(request.timeout_s)
    body = request.body
    if body is None or isinstance(body, bytes):
        connection.request(request.method, target, body=body, headers=request.headers)
    else:
        headers = {**request.headers, "Content-Length": str(body.size)}
        # a server that refuses a body answers, and closes, before it has read it
        with body.open() as stream, suppress(BrokenPipeError, ConnectionResetError):
            connection.request(request.method, target, body=stream, headers=headers)
    return connection.getresponse()


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        data = response.read(ANSWER_LIMIT)
    except (OSError, http.client.HTTPException) as error:
        raise LinkError(0, str(error) or type(error).__name__) from error
    return data
