"""Requests that may come twice: the answer to one with an Idempotency-Key is kept in the transaction of its doing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from litestar import Response
from pydantic import BaseModel
from shunter_store.errors import KeyTaken
from shunter_store.installation.api_keys import ApiKey
from shunter_store.job import idempotency
from sqlalchemy import Connection

from shunter_service.context import Service
from shunter_service.web.answers import raw

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that does something: whose it is, where it went, and under which key."""

    by: ApiKey
    path: str
    idempotency_key: str | None
    body: bytes = b""

    @property
    def digest(self) -> str:
        """Of the body: a key belongs to one."""
        return sha256(self.body).hexdigest()


@dataclass(frozen=True, slots=True)
class Done:
    """An answer, as it is sent and kept."""

    status: int
    body: bytes
    headers: dict[str, str]


async def before(service: Service, asked: Asked) -> Done | None:
    """The answer to the same request, if it was sent before.

    Raises:
        IdempotencyMismatch: the key was used with another body.
    """
    if asked.idempotency_key is None:
        return None
    key = asked.idempotency_key
    kept = await service.db.aread(
        lambda conn: idempotency.replay(conn, asked.by.project, asked.path, key, asked.digest)
    )
    if kept is None:
        return None
    return Done(kept.status, kept.body.encode(), {**kept.headers, "Idempotent-Replayed": "true"})


async def once(service: Service, asked: Asked, do: Callable[[Connection], Done], *, known_new: bool = False) -> Done:
    """Do it, unless it was done before; the answer either way. Durable when this returns.

    Args:
        known_new: the caller asked `before` already.

    Raises:
        IdempotencyMismatch: the key was used with another body.
    """
    if not known_new and (known := await before(service, asked)) is not None:
        return known

    def do_and_keep(conn: Connection) -> Done:
        done = do(conn)
        if asked.idempotency_key is not None:
            idempotency.store(
                conn,
                project=asked.by.project,
                path=asked.path,
                key=asked.idempotency_key,
                body_hash=asked.digest,
                status=done.status,
                body=done.body.decode(),
                headers=done.headers,
            )
        return done

    try:
        return await service.db.awrite(do_and_keep)
    except KeyTaken:
        first = await before(service, asked)
        assert first is not None, "whoever took the key has committed"
        return first


def sent(done: Done, model: type[M]) -> Response[M]:
    """The answer on its way; the type is for the API's description."""
    return raw(done.body, model, status=done.status, headers=done.headers)
