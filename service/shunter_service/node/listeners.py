"""Agents that listen: each is answered at once when something else is wanted of its node than it has heard.

Nodes come to ask every few seconds; a cancel would wait for that. So each holds a request open beside its exchanges,
and one look at the database for all that are held here, a few times a second, finds the nodes of which something was
decided lately. That is one statement by an index, whatever the number of nodes; nobody listens: none at all. What is
wanted is told by the exchange that follows, so that a look that is missed costs no more than the wait for the next one.
"""

from __future__ import annotations

import asyncio
import hmac
import resource
import sys
import time
from contextlib import suppress
from typing import Final, NamedTuple

import structlog
from shunter_schemas.node_sync import ListenAnswer, ListenRequest
from shunter_store.installation import signing
from shunter_store.node import orders
from shunter_store.sql.database import Database

LONGEST_S: Final = 60.0
"""No answer is held back for longer, whatever an agent asks for: proxies cut what is silent for longer."""
LOOK_BACK_S: Final = 5.0
"""A decision shows itself when its transaction commits, which is a moment after the time that it bears."""
FULL_AGAIN_S: Final = 60.0
AGAIN_S: Final = 5.0
"""When the process ends, and for one in whose place the same node listens by now: twins must not take turns."""

_log = structlog.get_logger("shunter.api")


class _Held(NamedTuple):
    """One that listens."""

    since: float
    answer: asyncio.Future[ListenAnswer]


class Listeners:
    """Of one process. Runs on its event loop, from `start` to `close`."""

    def __init__(self, db: Database, secret: bytes, *, every_s: float, most: int | None = None) -> None:
        """`secret`: of the nodes' tokens. `most`: agents that are held; None: by what the process may open."""
        self._db = db
        self._secret = secret
        self._every_s = every_s
        self._most = _room() if most is None else most
        self._held: dict[str, _Held] = {}
        self._somebody = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="listeners")

    async def close(self) -> None:
        """Answer everybody, and end."""
        self._closing = True
        for node in list(self._held):
            self._answer(node, ListenAnswer(changed=False, again_in_s=AGAIN_S))
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @property
    def count(self) -> int:
        """How many are held."""
        return len(self._held)

    def may_listen(self, node: str, token: str) -> bool:
        """Whether this is the token of the node: it is derived, so that nothing has to be read for it."""
        expected = signing.node_sync_token(self._secret, node)
        return hmac.compare_digest(expected.encode(), token.encode("utf-8", "replace"))

    async def listen(self, asked: ListenRequest) -> ListenAnswer:
        """The answer, held back until there is something to say. A node that listens twice is held once."""
        if self._closing:
            return ListenAnswer(changed=False, again_in_s=AGAIN_S)
        self._answer(asked.node, ListenAnswer(changed=False, again_in_s=AGAIN_S))
        if len(self._held) >= self._most:
            return ListenAnswer(changed=False, again_in_s=FULL_AGAIN_S)
        loop = asyncio.get_running_loop()
        held = self._held[asked.node] = _Held(asked.since, loop.create_future())
        timer = loop.call_later(min(asked.wait_s, LONGEST_S), _settle, held.answer, ListenAnswer(changed=False))
        self._somebody.set()
        try:
            return await held.answer
        finally:
            timer.cancel()
            if self._held.get(asked.node) is held:
                del self._held[asked.node]

    def _answer(self, node: str, answer: ListenAnswer) -> None:
        held = self._held.pop(node, None)
        if held is not None:
            _settle(held.answer, answer)

    async def _run(self) -> None:
        looked_at = time.monotonic()
        while True:
            if not self._held:
                self._somebody.clear()
                await self._somebody.wait()
                looked_at = time.monotonic()
            began = time.monotonic()
            try:
                await self._look(LOOK_BACK_S + began - looked_at)
                looked_at = began
            except Exception as error:  # the database may come back; agents hear at their next exchange
                _log.warning("cannot look for what nodes have to hear", error=repr(error)[:300])
            await asyncio.sleep(self._every_s)

    async def _look(self, within_s: float) -> None:
        for node, at in await self._db.aread(lambda conn: orders.changed_lately(conn, within_s)):
            held = self._held.get(node)
            if held is not None and not orders.is_same(held.since, at):
                self._answer(node, ListenAnswer(changed=True))


def _settle(future: asyncio.Future[ListenAnswer], answer: ListenAnswer) -> None:
    if not future.done():
        future.set_result(answer)


def _room() -> int:
    """Three quarters of what this process may have open: the rest is for everybody else."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else 3 * limit // 4
