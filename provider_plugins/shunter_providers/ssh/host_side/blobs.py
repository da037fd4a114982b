"""Files by their content: what the host has, what comes over the connection, and what hosts hand each other."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from typing import Any, BinaryIO, Callable

from shunter_providers.ssh.host_side.places import Places, Refused, places_of

BLOCK = 1 << 18


def have(request: dict[str, Any]) -> dict[str, Any]:
    """Which of the files lie here whole, and how far the others came."""
    places = places_of(request)
    present, partial = [], {}
    for digest in request["digests"]:
        if os.path.exists(places.blob(digest)):
            with suppress(OSError):
                os.utime(places.blob(digest))  # it is in use: `tidy` goes by age
            present.append(digest)
        elif os.path.exists(_part(places, digest)):
            partial[digest] = os.path.getsize(_part(places, digest))
    return {"present": present, "partial": partial}


def put(request: dict[str, Any], stream: BinaryIO) -> dict[str, Any]:
    """Take the rest of a file from the stream, from `offset` on.

    Raises:
        Refused: `torn`, when the connection ended before (what came is kept); `digest`, when it is something else.
    """
    places, digest, size = places_of(request), request["digest"], int(request["size"])
    offset = int(request["offset"])
    with open(_part(places, digest), "r+b" if offset else "wb") as file:
        file.seek(offset)
        file.truncate()
        while offset < size:
            block = stream.read(min(BLOCK, size - offset))
            if not block:
                raise Refused("torn", f"{offset} of {size} bytes came")
            file.write(block)
            offset += len(block)
    _finish(places, digest)
    return {}


def fetch(request: dict[str, Any]) -> dict[str, Any]:
    """Get a file from another host of the same job.

    Raises:
        Refused: `peer`, when that host cannot be reached or does not give it.
    """
    import http.client
    from urllib.parse import urlsplit

    places, digest, url = places_of(request), request["digest"], urlsplit(request["url"])
    assert url.hostname is not None
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=float(request["timeout_s"]))
    try:
        connection.request("GET", url.path)
        answer = connection.getresponse()
        if answer.status != 200:
            raise Refused("peer", f"{url.netloc} answers {answer.status}")
        with open(_part(places, digest), "wb") as file:
            for block in iter(lambda: answer.read(BLOCK), b""):
                file.write(block)
    except (OSError, http.client.HTTPException) as error:
        raise Refused("peer", f"{url.netloc}: {error}") from error
    finally:
        connection.close()
    _finish(places, digest)
    return {}


def serve(request: dict[str, Any], stream: BinaryIO, say: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Give one file to who knows its secret path, until the caller closes the stream. The port is said at once."""
    import http.server
    import threading

    places = places_of(request)
    path, wanted = places.blob(request["digest"]), "/" + request["secret"]

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path != wanted:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(os.path.getsize(path)))
            self.end_headers()
            with open(path, "rb") as file:
                for block in iter(lambda: file.read(BLOCK), b""):
                    self.wfile.write(block)

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

    with http.server.ThreadingHTTPServer((request["address"], 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        say({"port": server.server_address[1]})
        while stream.read(1):
            pass
        server.shutdown()
    return {}


def copy(places: Places, digest: str, target: str) -> None:
    """A copy of a file of the cache, checked while it is made.

    Raises:
        Refused: it is not here.
    """
    found = hashlib.sha256()
    if not os.path.exists(places.blob(digest)):
        raise Refused("missing", f"{digest} is not in the cache")
    with open(places.blob(digest), "rb") as source, open(target, "wb") as file:
        for block in iter(lambda: source.read(BLOCK), b""):
            found.update(block)
            file.write(block)
    if found.hexdigest() != digest:
        os.unlink(places.blob(digest))
        raise Refused("missing", f"{digest} in the cache was damaged")


def _part(places: Places, digest: str) -> str:
    return places.blob(digest) + ".part"


def _finish(places: Places, digest: str) -> None:
    part, found = _part(places, digest), hashlib.sha256()
    with open(part, "rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            found.update(block)
    if found.hexdigest() != digest:
        os.unlink(part)
        raise Refused("digest", f"what came is not {digest}")
    os.chmod(part, 0o600)
    os.replace(part, places.blob(digest))
