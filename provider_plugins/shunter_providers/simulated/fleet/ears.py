"""The ears of a fleet's agents: beside the exchanges each holds one request open, which the service answers when
something else is wanted of its node.

One connection an agent, as real ones have; without streams and tasks of its own, since there are thousands that wait.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import urlsplit

from shunter_providers.simulated.fleet.line import parse_head, request
from shunter_providers.simulated.fleet.played import Birth, Played

_LISTEN: Final = "/v1/node/listen"
_HELD_S: Final = 45.0
_AFTER_A_FAILURE_S: Final = 5.0
_UNKNOWN_FOR_S: Final = 600.0


class Ears:
    """Of one fleet. `changed` is called with the handle of a node that has something to hear."""

    def __init__(
        self,
        base_of: Callable[[Birth], str],
        headers_of: Callable[[Birth], dict[str, str]],
        changed: Callable[[str], None],
    ) -> None:
        self._base_of = base_of
        self._headers_of = headers_of
        self._changed = changed
        self._ears: dict[str, _Ear] = {}
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = sys.maxsize if files == resource.RLIM_INFINITY else 3 * files // 4
        """The rest of what a process may open is for the exchanges."""

    def heed(self, agent: Played) -> None:
        """It had an exchange: it listens for what comes after."""
        birth = agent.birth
        if agent.listens_since is None:
            return
        ear = self._ears.get(birth.handle)
        if ear is None and len(self._ears) >= self._most:
            return
        if ear is None:
            ear = self._ears[birth.handle] = _Ear(birth.node, lambda: self._changed(birth.handle))
        ear.listen(agent.listens_since, self._base_of(birth), self._headers_of(birth))

    def close(self, handle: str) -> None:
        """Its agent is gone."""
        ear = self._ears.pop(handle, None)
        if ear is not None:
            ear.close()

    def close_all(self) -> None:
        """The fleet ends."""
        for handle in list(self._ears):
            self.close(handle)


class _Ear(asyncio.Protocol):
    """One agent's. Whatever fails is tried again after an exchange that went well."""

    __slots__ = (
        "_asked",
        "_base",
        "_changed",
        "_connecting",
        "_headers",
        "_node",
        "_not_before",
        "_read",
        "_since",
        "_told",
        "_transport",
    )

    def __init__(self, node: str, changed: Callable[[], None]) -> None:
        self._node = node
        self._changed = changed
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._base = ""
        self._headers: dict[str, str] = {}
        self._since = 0.0
        self._asked: float | None = None
        """What the request that is held says was heard."""
        self._told: float | None = None
        self._read = b""
        self._not_before = 0.0

    def listen(self, since: float, base: str, headers: dict[str, str]) -> None:
        """Have the service hold a request, unless it does."""
        self._since, self._base, self._headers = since, base, headers
        if self._asked is None and since != self._told and time.monotonic() >= self._not_before:
            self._ask()

    def close(self) -> None:
        self._not_before = float("inf")
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        if self._asked is not None:
            self._send()

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, mark, body = self._read.partition(b"\r\n\r\n")
        if not mark:
            return
        status, fields = parse_head(head)
        if len(body) >= int(fields.get(b"content-length", b"0")):
            self._read = b""
            self._hear(status, body)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport, self._read = None, b""
        if self._asked is not None:
            self._put_off(_AFTER_A_FAILURE_S)

    def _ask(self) -> None:
        self._asked = self._since
        if self._transport is not None:
            self._send()
        elif self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        where = urlsplit(self._base)
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, where.hostname or "", where.port or 80)
        except OSError:
            self._put_off(_AFTER_A_FAILURE_S)
        finally:
            self._connecting = None

    def _send(self) -> None:
        assert self._transport is not None
        message = {"node": self._node, "since": self._asked, "wait_s": _HELD_S}
        body = json.dumps(message).encode()
        self._transport.write(request(self._base, "POST", _LISTEN, self._headers, body))

    def _hear(self, status: int, body: bytes) -> None:
        asked, self._asked = self._asked, None
        if status != 200:
            self._put_off(_AFTER_A_FAILURE_S if status >= 500 else _UNKNOWN_FOR_S)
            return
        answer: dict[str, Any] = json.loads(body)
        if answer["changed"]:
            self._told = asked
            if asked == self._since:
                self._changed()
                return
        if again_in_s := float(answer.get("again_in_s") or 0.0):
            self._put_off(again_in_s)
        elif self._since != self._told:
            self._ask()

    def _put_off(self, for_s: float) -> None:
        self._asked = None
        self._not_before = time.monotonic() + for_s * random.uniform(0.5, 1.5)
