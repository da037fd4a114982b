"""Reads that many followers would make alike at the same moment, made once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

_KEPT: Final = 16


class Sharing:
    """Results of the newest reads, by a key that says everything that they depend on, the moment included."""

    def __init__(self) -> None:
        self._reads: OrderedDict[Hashable, asyncio.Task[Any]] = OrderedDict()

    async def get(self, key: Hashable, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What `read` returns, or returned to another who asked for the same. Its errors are everybody's too."""
        task = self._reads.get(key)
        if task is None:
            task = asyncio.create_task(read())
            task.add_done_callback(lambda done: self._forget_failed(key, done))
            self._reads[key] = task
            while len(self._reads) > _KEPT:
                self._reads.popitem(last=False)
        return cast("T", await asyncio.shield(task))

    def _forget_failed(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        """The next who asks tries again. An error that nobody stayed for is nobody's."""
        if (task.cancelled() or task.exception() is not None) and self._reads.get(key) is task:
            del self._reads[key]
