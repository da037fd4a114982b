"""Requests and how their answers are read: what every verb has in common."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from shunter.errors import ShunterError
from shunter.steps import Body, Call, Item, ItemFlow, Request, ask

AnswerT = TypeVar("AnswerT", bound=BaseModel)
ItemT = TypeVar("ItemT", covariant=True)


class Page(Protocol[ItemT]):
    """A page of a list."""

    @property
    def items(self) -> tuple[ItemT, ...]: ...

    @property
    def next_cursor(self) -> str | None: ...


def job_path(job_id: str, *rest: str) -> str:
    """The path of a job or of something of it.

    Raises:
        ShunterError: the id is empty, as a shell's variable is that was not set; the path would be that of all jobs.
    """
    if not job_id:
        raise ShunterError("the id of the job is empty", hint="shunter jobs lists the jobs with their ids")
    return "/".join((f"/v1/jobs/{quote(job_id, safe='')}", *rest))


def read_as(kind: type[AnswerT]) -> Callable[[httpx.Response], AnswerT]:
    """How an answer of this kind is read."""

    def read(response: httpx.Response) -> AnswerT:
        try:
            return kind.model_validate_json(response.content)
        except ValidationError as error:
            raise ShunterError(
                f"{response.url.copy_with(query=None)} did not answer a {kind.__name__}",
                hint="is it a Shunter service, and of this version?",
            ) from error

    return read


def get(kind: type[AnswerT], path: str, params: Mapping[str, Any] | None = None, **more: Any) -> Call[AnswerT]:
    """GET. `more` are further fields of the request."""
    return Call(Request("GET", path, params=params or {}, **more), read_as(kind))


def post(
    kind: type[AnswerT],
    path: str,
    body: Body = b"",
    *,
    idempotency_key: str | None = None,
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Call[AnswerT]:
    """POST, with one `Idempotency-Key` over all tries (made here unless given).

    Raises:
        ShunterError: the key that was given cannot stand in a header.
    """
    if idempotency_key and not (idempotency_key.isascii() and idempotency_key.isprintable()):
        raise ShunterError("the idempotency key holds characters that no header carries", hint="use ASCII ones")
    sent = {"Content-Type": content_type, "Idempotency-Key": idempotency_key or str(uuid.uuid4()), **(headers or {})}
    return Call(Request("POST", path, headers=sent, body=body), read_as(kind))


def pages(kind: type[Any], path: str, params: Mapping[str, Any] | None = None) -> ItemFlow[Any]:
    """The items of every page; a page is fetched when its first item is wanted."""
    cursor = None
    while True:
        page: Page[Any] = yield from ask(get(kind, path, {**(params or {}), "cursor": cursor}))
        for item in page.items:
            yield Item(item)
        cursor = page.next_cursor
        if cursor is None:
            return
