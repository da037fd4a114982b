"""Who is asking: bearer keys, looked up by their hash and remembered for a few seconds."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Any, cast

from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler
from shunter_store.installation import api_keys
from shunter_store.installation.api_keys import ApiKey
from shunter_store.sql.database import Database

from shunter_service.web.problems import ProblemError
from shunter_service.web.requests import note_start

Connection = ASGIConnection[Any, Any, Any, Any]

READ = "jobs:read"
WRITE = "jobs:write"
ADMIN = "admin"

_REMEMBERED = 1024
_UNKNOWN_FOR_S = 1.0
"""An unknown key may have been made a moment ago."""
_LONGEST_SECRET = 200


class KeyRing:
    """The keys that were seen lately, by the hash of their secret; unknown ones too, so that guessing costs no SQL."""

    def __init__(self, db: Database, *, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._keep_s = keep_s
        self._clock = clock
        self._seen: OrderedDict[bytes, tuple[float, ApiKey | None]] = OrderedDict()

    async def find(self, secret: str) -> ApiKey | None:
        """The key with this secret, or None."""
        if not secret.startswith("shk_") or len(secret) > _LONGEST_SECRET or not secret.isascii():
            return None
        digest = sha256(secret.encode()).digest()
        known = self._seen.get(digest)
        if known is not None and known[0] > self._clock():
            return known[1]
        key = await self._db.aread(lambda conn: api_keys.find(conn, secret))
        keep_s = self._keep_s if key is not None else min(self._keep_s, _UNKNOWN_FOR_S)
        self._seen[digest] = (self._clock() + keep_s, key)
        self._seen.move_to_end(digest)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return key


async def require_key(connection: Connection, handler: BaseRouteHandler) -> None:
    """A part of the guard of every route: a key with the route's scope, unless the route is marked `public`.

    Raises:
        ProblemError: 401 without a known key, 403 when the key lacks the scope.
    """
    note_start(connection.scope)
    if handler.opt.get("public"):
        return
    key = await key_of(connection)
    if key is None:
        raise ProblemError(
            "unauthorized",
            "send `Authorization: Bearer shk_…`; `shunter up` leaves a key in the file `api-key` of its data directory",
            headers={"WWW-Authenticate": 'Bearer realm="shunter"'},
        )
    scope = handler.opt.get("scope", READ)
    if scope not in key.scopes and ADMIN not in key.scopes:
        raise ProblemError("forbidden", f"this needs a key with the scope `{scope}`")
    connection.scope["user"] = key
    connection.scope["state"]["key_name"] = key.name


async def key_of(connection: Connection) -> ApiKey | None:
    """The key that was sent, as it is now; None: there is none, or not any more."""
    return await _ring(connection).find(bearer(connection) or "")


def bearer(connection: Connection) -> str | None:
    """The token of `Authorization: Bearer TOKEN`."""
    kind, _, token = connection.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" and token.strip() else None


def _ring(connection: Connection) -> KeyRing:
    return cast(KeyRing, connection.app.state.service.keys)
