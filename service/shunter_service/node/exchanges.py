"""Takes what agents send: all exchanges that wait, at once. Those that only say "I live, and am so far" share one
transaction; each other one has its own."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from typing import Final

import structlog
from shunter_schemas.node_sync import SyncAnswer
from shunter_store.installation.settings import Pace
from shunter_store.node import beats, sync
from shunter_store.node.beats import Exchange
from shunter_store.node.ledger import NodeRow
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import clock_of
from sqlalchemy import Connection

from shunter_service.node.gathering import Gathering
from shunter_service.node.tempo import Tempo
from shunter_service.web.problems import ProblemError

LARGEST: Final = 64
"""Exchanges of one transaction."""

LINGER_S: Final = 0.02
MANY_A_SECOND: Final = 50.0

Answer = SyncAnswer | Exception

_log = structlog.get_logger("shunter.api")


class Exchanges:
    """Of one process."""

    def __init__(self, db: Database, tempo: Tempo) -> None:
        self._db = db
        self._tempo = tempo
        self._gathering: Gathering[Exchange, SyncAnswer] = Gathering(
            self._run, largest=LARGEST, at_once=1 if db.dialect == "sqlite" else 2, linger_s=self._linger_s
        )
        self.count = 0
        """Exchanges so far."""

    async def take(self, exchange: Exchange) -> SyncAnswer:
        """Make everything in it durable, and say what is desired of the node.

        Raises:
            ProblemError: 401: no node has the token; 403: it is another node's.
        """
        began = time.monotonic()
        answer = await self._gathering.ask(exchange)
        self.count += 1
        self._tempo.note(time.monotonic() - began)
        return answer

    async def close(self) -> None:
        """Wait for what is under way."""
        await self._gathering.close()

    def _linger_s(self) -> float:
        """Where many come, a few of them wait for each other: what a transaction costs they share."""
        return LINGER_S if self._tempo.per_second > MANY_A_SECOND else 0.0

    def _run(self, asked: Sequence[Exchange]) -> Awaitable[Sequence[Answer]]:
        pace = self._tempo.pace()
        return self._db.in_writer(lambda db: take_all(db, asked, pace))


def take_all(db: Database, asked: Sequence[Exchange], pace: Pace) -> list[Answer]:
    """The answers in their order. What one exchange does wrong the others do not feel."""
    try:
        taken = db.write(lambda conn: beats.take_beats(conn, asked, now=clock_of(conn), pace=pace))
    except Exception as error:
        _log.warning("exchanges are taken one by one", exchanges=len(asked), error=repr(error)[:500])
        taken = [None] * len(asked)
    return [_alone(db, one, pace) if beat is None else beat.answer() for one, beat in zip(asked, taken, strict=True)]


def node_of(conn: Connection, token: str) -> NodeRow:
    """The node that this bearer token belongs to, also when it is closed by now.

    Raises:
        ProblemError: 401: there is none.
    """
    node = sync.node_by_sync_token(conn, token)
    if node is None:
        raise unknown()
    return node


def unknown() -> ProblemError:
    """Nobody has the token."""
    return ProblemError(
        "unauthorized", "no node has this token", headers={"WWW-Authenticate": 'Bearer realm="shunter node"'}
    )


def _alone(db: Database, exchange: Exchange, pace: Pace) -> Answer:
    def take(conn: Connection) -> SyncAnswer:
        node = node_of(conn, exchange.token)
        if node.token != exchange.request.node:
            raise ProblemError("forbidden", "the token is that of another node")
        return sync.ingest(conn, node, exchange.request, now=clock_of(conn), pace=pace).answer()

    try:
        return db.write(take)
    except Exception as error:
        return error
