"""Hears at once that the service wants something else of this node: a request that the service holds until then.

It only makes the next exchange come sooner. Where the service does not know the request, or cannot be reached, or no
proxy bears a request that is held, everything goes on by exchanges alone.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Callable

from shunter_agent.exchange.link import Link, LinkError
from shunter_agent.files import to_json
from shunter_agent.keeping.launchfile import LaunchFile
from shunter_agent.keeping.tuning import Tuning
from shunter_agent.trace import trace, trace_exception

PATH = "/v1/node/listen"
_WORTH_S = 0.9
"""Where exchanges come more often than that there is nothing to gain."""
_AT_ONCE_S = 1.0
"""An answer that nothing held back is not asked for again sooner."""
_UNKNOWN_FOR_S = 600.0
"""A service that does not know the request may be replaced by one that does."""
_UNKNOWN = (403, 404, 405)


class Ear:
    """Calls `changed` when something else is wanted than was heard. Its thread begins with the first thing to hear."""

    def __init__(self, launch: LaunchFile, tuning: Tuning, changed: Callable[[], None]) -> None:
        self._launch = launch
        self._tuning = tuning
        self._changed = changed
        self._link = Link(launch, tuning.listen_s + tuning.sync_timeout_s)
        self._news = threading.Condition()
        self._since: float | None = None
        """Of what was heard last; None: there is nothing to listen for."""
        self._told: float | None = None
        """That of which a change was told, and what came of it not yet heard."""
        self._thread: threading.Thread | None = None
        self._failures = 0

    def heard(self, since: float | None, next_sync_s: float) -> None:
        """An exchange said since when what is wanted is wanted, and when the next exchange comes."""
        with self._news:
            self._since = since if next_sync_s >= _WORTH_S else None
            self._news.notify()
        if self._thread is None and self._since is not None and self._tuning.listen_s > 0:
            self._thread = threading.Thread(target=self._run, name="ear", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                wait_s = self._listen(self._wait_for_news())
            except Exception:
                trace_exception("ear")
                wait_s = self._tuning.retry_most_s
            time.sleep(wait_s)

    def _wait_for_news(self) -> float:
        """What there is to listen for."""
        with self._news:
            while self._since is None or self._since == self._told:
                self._news.wait()
            return self._since

    def _listen(self, since: float) -> float:
        """One request; returns the seconds until the next."""
        message = {"node": self._launch.node, "since": since, "wait_s": self._tuning.listen_s}
        began = time.monotonic()
        try:
            answer = self._link.call(PATH, to_json(message))
        except LinkError as error:
            return self._failed(error)
        self._failures = 0
        if answer.get("changed"):
            with self._news:
                self._told = since
                known = self._since != since
            if not known:
                self._changed()
            return 0.0
        again_in_s = float(answer.get("again_in_s") or 0.0)
        return _spread(again_in_s or (_AT_ONCE_S if time.monotonic() - began < _AT_ONCE_S else 0.0))

    def _failed(self, error: LinkError) -> float:
        """The next exchange that goes well has it listen again, in some time: thousands lost the service as it did."""
        with self._news:
            self._since = None
        self._failures += 1
        if self._failures == 1:
            trace(f"ear: {error}")
        if error.status in _UNKNOWN:
            return _UNKNOWN_FOR_S
        return _spread(min(self._tuning.retry_first_s * 2 ** min(self._failures, 10), self._tuning.retry_most_s))


def _spread(wait_s: float) -> float:
    return wait_s * (0.5 + os.urandom(1)[0] / 256)
