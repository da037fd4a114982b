"""A gang's program that takes no time to start: ranks that count together over TCP, a tick every tenth of a second.

    python lockstep.py GATE        (with torchrun's variables)

No rank ticks before all others have. It ends when the file GATE is there on the host of rank 0. A rank that loses
another one fails as gloo does; SIGTERM ends it at once.
"""

from __future__ import annotations

import os
import pathlib
import socket
import sys
import time
from contextlib import suppress

_HELLO = b"#"


def main(gate: pathlib.Path) -> None:
    """Count until the gate opens."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    taken = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # torchrun's own store is there
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + taken)
    peers = _gather(address, world) if rank == 0 else [_join(address)]
    over, tick = False, 0
    while not over:
        tick += 1
        over = _lead(peers, gate) if rank == 0 else _follow(peers[0])
        print(f"tick {tick} of rank {rank}", flush=True)
        time.sleep(0.1)
    print("over", flush=True)


def _lead(peers: list[socket.socket], gate: pathlib.Path) -> bool:
    over = gate.exists()
    for peer in peers:
        peer.sendall(b"." if over else b"+")
    for peer in peers:
        _hear(peer)
    return over


def _follow(master: socket.socket) -> bool:
    over = _hear(master) == b"."
    master.sendall(b"+")
    return over


def _gather(address: tuple[str, int], world: int) -> list[socket.socket]:
    peers: list[socket.socket] = []
    with socket.create_server(address) as server:
        while len(peers) < world - 1:
            peer, _ = server.accept()
            peer.sendall(_HELLO)
            peers.append(peer)
    return peers


def _join(address: tuple[str, int]) -> socket.socket:
    """As torch's store does, it calls again where it was not rank 0 that took the call: the agent there holds the port
    until its ranks start."""
    give_up_at = time.monotonic() + 120
    while time.monotonic() < give_up_at:
        with suppress(OSError):
            joined = socket.create_connection(address, 60)
            if joined.recv(1) == _HELLO:
                joined.settimeout(None)
                return joined
            joined.close()
        time.sleep(0.05)
    raise RuntimeError("gloo: timed out")


def _hear(peer: socket.socket) -> bytes:
    try:
        word = peer.recv(1)
    except OSError as error:
        raise RuntimeError(f"gloo: connection reset by peer: {error}") from error
    if not word:
        raise RuntimeError("gloo: connection closed by peer")
    return word


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
