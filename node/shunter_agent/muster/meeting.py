"""One gathering of a gang, as one of its nodes sees it."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable

from shunter_agent.keeping.tuning import Tuning
from shunter_agent.muster.calling import try_all
from shunter_agent.muster.listening import Hold, Listener
from shunter_agent.probe import interfaces
from shunter_agent.trace import trace_exception

_AGAIN_S = 0.5


class Meeting:
    """Made when the service asks for it. `status` and `call` are for any thread, the rest is the main thread's."""

    def __init__(self, generation: int, tuning: Tuning, changed: Callable[[], None]) -> None:
        """Open the ports; `changed` is called from any thread when there is something new to tell.

        Raises:
            OSError: no port could be opened.
        """
        self.generation = generation
        self.ticket = os.urandom(12).hex()
        self._tuning = tuning
        self._changed = changed
        self._lock = threading.Lock()
        self._reached: dict[str, dict[str, Any] | None] = {}
        """By ticket of the other node; None: it is being called."""
        self._rendezvous = Listener(self.ticket, fixed=True)
        self._data = Listener(self.ticket, fixed=False)
        self._hold: Hold | None = None
        self._open = True

    def status(self) -> dict[str, Any]:
        """`Muster`, as JSON."""
        with self._lock:
            reached = [found for found in self._reached.values() if found is not None]
        return {
            "generation": self.generation,
            "ticket": self.ticket,
            "endpoints": [{"address": address, "interface": name} for address, name in interfaces()],
            "rendezvous_port": self._rendezvous.port,
            "data_port": self._data.port,
            "reached": reached,
        }

    def call(self, peers: list[dict[str, Any]]) -> None:
        """Call those that were not called yet; forget those that are not there any more."""
        present = {str(peer["ticket"]): peer for peer in peers}
        with self._lock:
            self._reached = {ticket: found for ticket, found in self._reached.items() if ticket in present}
            fresh = [peer for ticket, peer in present.items() if ticket not in self._reached]
            self._reached.update({str(peer["ticket"]): None for peer in fresh})
        for peer in fresh:
            threading.Thread(target=self._call, args=(peer,), name="muster-call", daemon=True).start()

    def settle(self, *, as_master: bool) -> None:
        """The gang starts: close the ports. The master keeps its own from others until `close`."""
        self._open = False
        self._rendezvous.close()
        if as_master:
            self._hold = Hold(self._rendezvous.port)
        self._data.close()

    def close(self) -> None:
        """Let every port go."""
        if self._open:
            self.settle(as_master=False)
        if self._hold is not None:
            self._hold.close()
            self._hold = None

    def _call(self, peer: dict[str, Any]) -> None:
        """Until the peer answers, or for as long as a link may take to come up."""
        until = time.monotonic() + self._tuning.muster_s
        while True:
            try:
                found = try_all(peer, self._tuning.call_timeout_s)
            except Exception as error:
                trace_exception("muster")
                found = {"answers": dict.fromkeys(peer["addresses"], str(error))}
            if not self._open or "" in found["answers"].values() or time.monotonic() >= until:
                break
            time.sleep(_AGAIN_S)
        ticket = str(peer["ticket"])
        with self._lock:
            if ticket in self._reached:
                self._reached[ticket] = {"node_rank": peer["node_rank"], "ticket": ticket, **found}
        self._changed()
