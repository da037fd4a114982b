"""Work for many askers at once: what is asked for while a run is under way goes into the next one.

Under load a transaction, a hop between threads and a round trip are shared by all who wait; alone, nobody waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class Gathering(Generic[A, R]):
    """One kind of work, on one event loop.

    Args:
        run: does the work for some askers; for each, in their order, the result, or the exception that it gets. What
            `run` itself raises, all of them get.
        largest: the most askers of one run.
        at_once: runs under way at the same time.
        linger_s: how long a run waits for more askers before it begins, asked for each; None: none does.
    """

    def __init__(
        self,
        run: Callable[[Sequence[A]], Awaitable[Sequence[R | Exception]]],
        *,
        largest: int = 64,
        at_once: int = 1,
        linger_s: Callable[[], float] | None = None,
    ) -> None:
        self._run = run
        self._linger_s = linger_s
        self._largest = largest
        self._at_once = at_once
        self._waiting: deque[tuple[A, asyncio.Future[R]]] = deque()
        self._serving = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, wanted: A) -> R:
        """The result for this asker. A run that has begun goes on even if the asker goes away."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, answer))
        if self._serving < self._at_once:
            self._serving += 1
            task = asyncio.create_task(self._serve())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await answer

    async def close(self) -> None:
        """Wait for what is under way."""
        await asyncio.gather(*self._tasks)

    async def _serve(self) -> None:
        try:
            while self._waiting:
                await self._serve_some()
        finally:
            self._serving -= 1  # in the same turn of the loop in which nobody waited

    async def _serve_some(self) -> None:
        if self._linger_s is not None and len(self._waiting) < self._largest and (delay_s := self._linger_s()) > 0:
            await asyncio.sleep(delay_s)
        asked = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._largest))]
        results: Sequence[R | Exception]
        try:
            results = await self._run([wanted for wanted, _ in asked])
        except Exception as error:
            results = [error] * len(asked)
        for (_, answer), result in zip(asked, results, strict=True):
            _tell(answer, result)


def _tell(answer: asyncio.Future[R], result: R | Exception) -> None:
    if answer.done():  # the asker went away
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)
