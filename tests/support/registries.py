"""A registry of container images on the loopback, with one small image made of this machine's own files."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PYTHON = Path("/usr/bin/python3")
_PROGRAMS = ("/bin/sh", "/bin/cat", "/bin/sleep")
_LEFT_OUT = re.compile(r"/(test|tests|__pycache__|config-[^/]*|idlelib|lib2to3|pydoc_data|ensurepip|tkinter)(/|$)")
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


class Registry:
    """Serves `tiny` (Python, a shell, FROM_IMAGE=yes), `bare` (no Python), and `hidden`, which it shows to nobody."""

    def __init__(self) -> None:
        self.pulled: list[str] = []
        """Images whose manifests were asked for, in their order."""
        self._blobs: dict[str, bytes] = {}
        self._manifests = {"tiny": self._image(_small_system()), "bare": self._image(_layer({"etc/bare": b"yes"}))}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def image(self, name: str) -> str:
        """What `environment.image` says."""
        return f"127.0.0.1:{self._server.server_address[1]}/{name}:1"

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, media type and body."""
        parts = path.strip("/").split("/")
        if parts == ["v2"]:
            return 200, "application/json", b"{}"
        name, kind, reference = parts[1], parts[2], parts[3]
        if name == "hidden":
            return 401, "application/json", _error("UNAUTHORIZED", "authentication required")
        if kind == "manifests":
            self.pulled.append(name)
            known = self._manifests.get(name)
            return (200, _MANIFEST, known) if known else (404, "application/json", _unknown())
        return 200, "application/octet-stream", self._blobs[reference]

    def _image(self, layer: bytes) -> bytes:
        packed = gzip.compress(layer, 1, mtime=0)
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/usr/bin:/bin", "FROM_IMAGE=yes"], "User": "1234"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._blob(_CONFIG, json.dumps(config).encode()),
            "layers": [self._blob(_LAYER, packed)],
        }
        return json.dumps(manifest).encode()

    def _blob(self, kind: str, content: bytes) -> dict[str, Any]:
        self._blobs[_digest(content)] = content
        return {"mediaType": kind, "size": len(content), "digest": _digest(content)}


def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, kind, body = registry.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Content-Digest", _digest(body))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Tests read records, not access logs."""

    return Handler


@cache
def _small_system() -> bytes:
    """A layer with the system's Python and what it needs."""
    library = Path(_said(str(PYTHON), "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))").strip())
    modules = [path for path in sorted(library.rglob("*")) if path.is_file() and not _LEFT_OUT.search(str(path))]
    programs = [Path(program) for program in (str(PYTHON), *_PROGRAMS)]
    binaries = [*programs, *(path for path in modules if path.suffix == ".so")]
    shared = {Path(name) for name in _libraries(binaries)}
    return _layer({str(path)[1:]: path.read_bytes() for path in {*programs, *modules, *shared}})


def _libraries(binaries: list[Path]) -> Iterator[str]:
    yield from re.findall(r"(/[^ :]+) \(0x", _said("ldd", *map(str, binaries)))


def _layer(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        folders = ["tmp"]
        for name in folders:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
            archive.addfile(entry)
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _said(*argv: str) -> str:
    return subprocess.run(argv, check=False, capture_output=True, text=True).stdout


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _error(code: str, message: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


def _unknown() -> bytes:
    return _error("MANIFEST_UNKNOWN", "manifest unknown")
