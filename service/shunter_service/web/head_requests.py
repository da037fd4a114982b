"""HEAD wherever there is GET: the same status and headers, and no body. Load balancers and `curl -I` ask so.

The application answers as to a GET, conditions and ranges included, and is let go as soon as the head is out: what
would stream for hours, or read a file of gigabytes, is not waited for.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from litestar import Litestar
from litestar.exceptions import MethodNotAllowedException, NotFoundException
from litestar.types import Message, Receive, Scope, Send
from litestar.utils import normalize_path

from shunter_service.web.requests import METHOD_ASKED

_ENDS_WITHIN_S: Final = 1.0
"""So long what follows the head may take; then it is cut off, as if the client had gone away."""
_NO_BODY: Final[Message] = {"type": "http.response.body", "body": b"", "more_body": False}


class HeadRequests:
    """The application, which also answers HEAD where it has a GET and no HEAD of its own."""

    def __init__(self, app: Litestar) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = cast("dict[str, Any]", scope)
        if asked["type"] != "http" or asked["method"] != "HEAD" or self._has_its_own(asked["path"]):
            await self._app(scope, receive, send)
            return
        state = {**asked.get("state", {}), METHOD_ASKED: "HEAD"}
        await _answer(self._app, {**asked, "method": "GET", "state": state}, receive, send)

    def _has_its_own(self, path: str) -> bool:
        try:
            self._app.asgi_router.handle_routing(path=normalize_path(path), method="HEAD")
        except (MethodNotAllowedException, NotFoundException):
            return False
        return True


async def _answer(app: Litestar, scope: dict[str, Any], receive: Receive, send: Send) -> None:
    answered = asyncio.Event()

    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start" and not answered.is_set():
            await send(message)
            await send(_NO_BODY)
            answered.set()

    run = asyncio.create_task(cast("Any", app)(scope, receive, tell))
    over = asyncio.create_task(answered.wait())
    try:
        await asyncio.wait({run, over}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({run}, timeout=_ENDS_WITHIN_S)
    finally:
        over.cancel()
        run.cancel()  # nothing happens where it has ended
        await asyncio.gather(run, over, return_exceptions=True)
    if not answered.is_set():
        run.result()  # what went wrong before there was an answer is the server's
