"""Several calls of one account at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def all_of(calls: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """What they return, in their order. Ends when every one has ended, also where one fails: none is left under way
    when its connection is closed.

    Raises:
        BaseException: the first failure in their order.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    failed = next((result for result in results if isinstance(result, BaseException)), None)
    if failed is not None:
        raise failed
    return [result for result in results if not isinstance(result, BaseException)]
