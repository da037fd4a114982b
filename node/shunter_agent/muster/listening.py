"""Ports that answer the other nodes of a gang, and the hold on one of them until the ranks take it."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress

from shunter_agent.trace import trace

HELLO = "shunter-muster"
YES, NO = b"yes\n", b"no\n"
LONGEST_LINE = 200
BLOCK = 1 << 18
_RENDEZVOUS_PORTS = (20000, 32000)
"""Below the range from which the kernel takes ports of outgoing connections, so a held one is nobody else's."""
_TRIES = 200
_BACKLOG = 256
_CALLER_MAY_TAKE_S = 15.0


class Listener:
    """One port, on every address of the machine. Callers say a ticket; those with the right one may send bytes."""

    def __init__(self, ticket: str, *, fixed: bool) -> None:
        """Bind and begin to answer. `fixed`: a port from the range for rendezvous, else whatever the kernel gives.

        Raises:
            OSError: there is no free port.
        """
        self._expected = f"{HELLO} {ticket}"
        self._socket = _bind_free() if fixed else _bind(0)
        self._socket.listen(_BACKLOG)
        self.port = int(self._socket.getsockname()[1])
        self._thread = threading.Thread(target=self._answer, name=f"muster-{self.port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more; the port is free when this returns."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for callers
        self._thread.join(2.0)
        self._socket.close()

    def _answer(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        with caller, suppress(OSError):
            caller.settimeout(_CALLER_MAY_TAKE_S)
            if read_line(caller) != self._expected:
                caller.sendall(NO)
                return
            caller.sendall(YES)
            received = 0
            while True:
                block = caller.recv(BLOCK)
                if not block:
                    break
                received += len(block)
            caller.sendall(b"%d\n" % received)


class Hold:
    """Keeps a port from others without answering on it: ranks elsewhere that are early find nobody and try again."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._socket: socket.socket | None = None
        try:
            self._socket = _bind(port)
        except OSError as error:
            trace(f"port {port} cannot be held: {error}")  # a moment ago it was ours: most likely it still is free

    def close(self) -> None:
        """Let it go: the ranks start now."""
        if self._socket is not None:
            self._socket.close()


def read_line(connection: socket.socket) -> str:
    """What comes up to a line feed, or up to the longest line; empty when the other side has closed."""
    line = b""
    while not line.endswith(b"\n") and len(line) < LONGEST_LINE:
        byte = connection.recv(1)
        if not byte:
            break
        line += byte
    return line.decode("ascii", "replace").strip()


def _bind(port: int) -> socket.socket:
    """On every address, of both kinds where the machine has both."""
    both = socket.has_dualstack_ipv6()
    found = socket.socket(socket.AF_INET6 if both else socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if both:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        found.bind(("", port))
    except OSError:
        found.close()
        raise
    return found


def _bind_free() -> socket.socket:
    first, end = _RENDEZVOUS_PORTS
    for _ in range(_TRIES):
        port = first + int.from_bytes(os.urandom(4), "big") % (end - first)
        if _is_taken(port):
            continue
        with suppress(OSError):
            return _bind(port)
    return _bind(0)


def _is_taken(port: int) -> bool:
    """Whether somebody listens: two sockets that may reuse an address can both bind, only one can listen."""
    try:
        with socket.create_server(("", port)):
            return False
    except OSError:
        return True
