"""The door to the broker: publishes hints that work is due, with short time-outs and in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from celery import Celery

QUEUE: Final = "hints"
TASK: Final = "shunter.due"
WITHIN_S: Final = 2.0

_log = logging.getLogger(__name__)


class Hints:
    """Publishes for one process. While the broker does not answer, every call fails at once."""

    def __init__(self, app: Celery, *, most: int) -> None:
        """`most`: hints that may lie in the queue; more would only be taken in vain."""
        self._app = app
        self._most = most
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hints")
        self._hanging: asyncio.Future[int] | None = None
        self._down = False
        self.sent = 0
        """Messages published so far."""

    async def publish(self, wanted: int) -> bool:
        """Leave up to `wanted` hints; False: the broker cannot be reached."""
        if self._hanging is not None and not self._hanging.done():
            return False
        call = asyncio.get_running_loop().run_in_executor(self._thread, self._publish, wanted)
        self._hanging = call
        try:
            await asyncio.wait_for(asyncio.shield(call), WITHIN_S)
        except Exception as exc:
            self._note(down=True, cause=f"{type(exc).__name__}: {exc}")
            call.add_done_callback(_swallow)
            return False
        self._note(down=False)
        return True

    def close(self) -> None:
        """Leave a call that hangs behind."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _publish(self, wanted: int) -> int:
        with self._app.producer_pool.acquire(block=True, timeout=WITHIN_S) as producer:
            queued = int(producer.channel.client.llen(QUEUE))
            count = max(0, min(wanted, self._most - queued))
            for _ in range(count):
                self._app.send_task(TASK, queue=QUEUE, producer=producer, retry=False)
                self.sent += 1
        return count

    def _note(self, *, down: bool, cause: str = "") -> None:
        if down and not self._down:
            _log.warning("the broker does not answer, due jobs are found by the timers alone: %s", cause)
        if self._down and not down:
            _log.info("the broker answers again")
        self._down = down


def _swallow(call: asyncio.Future[int]) -> None:
    if not call.cancelled():
        call.exception()
