"""The exchange with the service: journal records up, what is desired down; repeated for ever, whatever happens."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, NamedTuple

from shunter_agent.exchange.ear import Ear
from shunter_agent.exchange.link import Link, LinkError
from shunter_agent.files import to_json
from shunter_agent.keeping.clock import boottime_s
from shunter_agent.keeping.journal import BATCH_RECORDS, Batch, Journal
from shunter_agent.keeping.launchfile import LaunchFile
from shunter_agent.keeping.tuning import Tuning
from shunter_agent.trace import trace, trace_exception

PROTOCOL = 1
PATH = "/v1/node/sync"
_LOOK_S = 0.5
_TOO_LARGE = (413, 422)


class Answer(NamedTuple):
    """What the service said, and when it was asked (boot clock)."""

    message: dict[str, Any]
    asked_at: float


class Sync(threading.Thread):
    """Calls `hear` with each answer, and with None when the service does not know this node (410)."""

    def __init__(
        self,
        launch: LaunchFile,
        journal: Journal,
        tuning: Tuning,
        status: Callable[[], dict[str, Any]],
        hear: Callable[[Answer | None], None],
    ) -> None:
        super().__init__(name="sync", daemon=True)
        self._launch = launch
        self._journal = journal
        self._tuning = tuning
        self._status = status
        self._hear = hear
        self._link = Link(launch, tuning.sync_timeout_s)
        self._ear = Ear(launch, tuning, lambda: self.tell(0.0))
        self._most_records = BATCH_RECORDS
        self._due = threading.Condition()
        self._due_at = 0.0
        self._asked_at = 0.0
        self._failures = 0
        self.exchanges = 0
        """Answers so far."""

    def tell(self, within_s: float) -> None:
        """Have the next exchange come no later than so long after the last; a service that is away is not hurried."""
        with self._due:
            self._due_at = min(self._due_at, self._asked_at + within_s)
            self._due.notify()

    def run(self) -> None:
        while True:
            try:
                delay_s = self._exchange()
            except Exception:
                trace_exception("sync")
                delay_s = self._tuning.retry_most_s
            self._wait(delay_s)

    def _exchange(self) -> float:
        """One exchange; returns the seconds until the next."""
        with self._due:
            self._due_at = float("inf")
            self._asked_at = time.monotonic()
        asked_at = boottime_s()
        before, last = self._journal.acknowledged, self._journal.last_seq
        batch = self._journal.batch(self._most_records)
        try:
            answer = self._link.call(PATH, self._message(batch))
        except LinkError as error:
            return self._failed(error)
        if self._failures:
            trace(f"sync: the service is back after {self._failures} tries")
        self._failures, self._most_records = 0, min(2 * self._most_records, BATCH_RECORDS)
        acknowledged = answer.get("acknowledged")
        if isinstance(acknowledged, int):
            answer["journal_lost"] = not self._journal.acknowledge(batch.journal_id, acknowledged)
        self.exchanges += 1
        self._hear(Answer(answer, asked_at))
        self._listen(answer)
        if before < self._journal.acknowledged < last:
            return 0.0  # there was more than one message takes; a service that takes nothing is not hurried
        return float(answer.get("next_sync_s") or self._tuning.retry_most_s)

    def _listen(self, answer: dict[str, Any]) -> None:
        since = (answer.get("desired") or {}).get("since")
        self._ear.heard(None if since is None else float(since), float(answer.get("next_sync_s") or 0.0))

    def _message(self, batch: Batch) -> bytes:
        head = {
            "protocol": PROTOCOL,
            "node": self._launch.node,
            "journal_id": batch.journal_id,
            "handle": self._launch.handle,
            "status": self._status(),
        }
        return to_json(head)[:-1] + b',"records":[' + b",".join(batch.records) + b"]}"

    def _failed(self, error: LinkError) -> float:
        if error.status == 410:
            self._hear(None)
        if error.status in _TOO_LARGE:
            self._most_records = max(1, self._most_records // 2)
        slow = error.status in (401, 403, 410)
        self._failures += 1
        if self._failures in (1, 10, 100):
            trace(f"sync: {error}")
        most_s = self._tuning.retry_most_s
        wait_s = most_s if slow else min(self._tuning.retry_first_s * 2 ** min(self._failures - 1, 10), most_s)
        return wait_s * (0.5 + os.urandom(1)[0] / 512)

    def _wait(self, delay_s: float) -> None:
        """Until the delay is over, or something of note happened, or the service's address changed on the disk."""
        until = time.monotonic() + delay_s
        if not self._failures:
            with self._due:
                self._due_at = min(self._due_at, until)
                while self._due_at > time.monotonic():
                    self._due.wait(self._due_at - time.monotonic())
            return
        address = self._launch.address()
        while time.monotonic() < until and self._launch.address() == address:
            time.sleep(max(0.0, min(_LOOK_S, until - time.monotonic())))
