"""Calling another node of the gang: whether it answers on an address and port, how soon, and how much goes through."""

from __future__ import annotations

import socket
import time
from typing import Any, NamedTuple

from shunter_agent.muster.listening import BLOCK, HELLO, YES, read_line

_MEASURE_S = 0.25
_MEASURE_BYTES = 256 << 20


class Unanswered(Exception):
    """The call failed; the text says how."""


class Answered(NamedTuple):
    """One call."""

    rtt_ms: float
    gbit_per_s: float | None


def call(address: str, port: int, ticket: str, timeout_s: float, measure: bool = False) -> Answered:
    """Call once.

    Raises:
        Unanswered: nobody, or not the node that has this ticket, answers there.
    """
    try:
        with socket.create_connection((address, port), timeout_s) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asked_at = time.monotonic()
            connection.sendall(f"{HELLO} {ticket}\n".encode())
            said = read_line(connection)
            rtt_ms = (time.monotonic() - asked_at) * 1000
            if said.encode() + b"\n" != YES:
                raise Unanswered("another machine answers there")
            return Answered(round(rtt_ms, 3), _measure(connection) if measure else None)
    except socket.timeout:
        raise Unanswered(f"no answer within {timeout_s:g} s") from None
    except ConnectionRefusedError:
        raise Unanswered("connection refused") from None
    except OSError as error:
        raise Unanswered((error.strerror or str(error)).lower()) from None


def try_all(peer: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Call a peer on each of its addresses and ports; what `Reach` holds besides whom it is about."""
    found: dict[str, Any] = {"answers": {}, "rtt_ms": None, "gbit_per_s": None}
    for address in peer["addresses"]:
        found["answers"][address] = _try_address(peer, address, timeout_s, found)
    return found


def _try_address(peer: dict[str, Any], address: str, timeout_s: float, found: dict[str, Any]) -> str:
    """Empty when every port answers."""
    for name in ("rendezvous", "data"):
        port = int(peer[f"{name}_port"])
        measure = bool(peer.get("measure")) and name == "data" and found["gbit_per_s"] is None
        try:
            answered = call(address, port, peer["ticket"], timeout_s, measure)
        except Unanswered as error:
            return f"port {port} ({name}): {error}"
        found["rtt_ms"] = min(answered.rtt_ms, found["rtt_ms"] or answered.rtt_ms)
        found["gbit_per_s"] = answered.gbit_per_s or found["gbit_per_s"]
    return ""


def _measure(connection: socket.socket) -> float:
    """Gbit/s that the other side received, the way there and its confirmation counted in."""
    block, sent, began = bytes(BLOCK), 0, time.monotonic()
    while sent < _MEASURE_BYTES and time.monotonic() - began < _MEASURE_S:
        connection.sendall(block)
        sent += len(block)
    connection.shutdown(socket.SHUT_WR)
    received = read_line(connection)
    took_s = max(time.monotonic() - began, 1e-6)
    return round(int(received) * 8 / took_s / 1e9, 3) if received.isdigit() else 0.0
