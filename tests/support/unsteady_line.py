"""A line to a service that can be cut or go silent, and come back: a TCP forwarder on loopback."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class UnsteadyLine:
    """Forwards to a service; `cut` refuses every connection, `freeze` takes them and is silent, `mend` ends both."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (str(parts.hostname), int(parts.port or 80))
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        self._frozen = False
        self._listener = self._listen(0)
        self._port = self._listener.getsockname()[1]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def cut(self) -> None:
        """Nobody listens, and every connection breaks."""
        with self._lock:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._drop_all()

    def freeze(self) -> None:
        """Connections are taken, and nothing comes back."""
        with self._lock:
            self._frozen = True

    def mend(self) -> None:
        """As before; connections that froze are dropped."""
        with self._lock:
            if self._listener.fileno() < 0:
                self._listener = self._listen(self._port)
            self._frozen = False
            self._drop_all()

    def close(self) -> None:
        self._ended.set()
        self._thread.join(5)
        with self._lock:
            self._drop_all()
            self._listener.close()
            self._selector.close()

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port))
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        return listener

    def _run(self) -> None:
        while not self._ended.is_set():
            ready = self._selector.select(0.05)
            with self._lock:
                for key, _ in ready:
                    self._serve(key.fileobj)  # type: ignore[arg-type]  # only sockets are registered

    def _serve(self, ready: socket.socket) -> None:
        if ready.fileno() < 0:
            return
        if ready is self._listener:
            with suppress(OSError):
                self._take(ready.accept()[0])
            return
        if self._frozen:
            self._ended.wait(0.02)  # what arrives stays unread
            return
        try:
            data = ready.recv(65536)
            self._peers[ready].sendall(data)
        except (OSError, KeyError):
            data = b""
        if not data:
            self._drop(ready)

    def _take(self, client: socket.socket) -> None:
        service = socket.create_connection(self._target)
        for one, other in ((client, service), (service, client)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _drop(self, one: socket.socket) -> None:
        for each in (one, self._peers.pop(one, None)):
            if each is not None and each.fileno() >= 0:
                self._selector.unregister(each)
                each.close()
                self._peers.pop(each, None)

    def _drop_all(self) -> None:
        for one in list(self._peers):
            self._drop(one)


@contextmanager
def unsteady_line(url: str) -> Iterator[UnsteadyLine]:
    """A line to the service at `url`."""
    line = UnsteadyLine(url)
    try:
        yield line
    finally:
        line.close()
