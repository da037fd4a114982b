"""Calls of the host's side over an open connection: a fixed command line, the program and its request on stdin.

Nothing that comes from a user or a settings file is ever part of a command line, but for the path of the host's Python,
which is quoted.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import cache
from importlib import resources
from typing import Any, Final, TypeVar, cast

import asyncssh

from shunter_providers.ssh.connecting import Reached

_T = TypeVar("_T")

CALL_WITHIN_S: Final = 30.0
BLOCK_BYTES: Final = 1 << 17
_ANSWER: Final = "shunter-answer "
_ROOM: Final = "shunter_providers.ssh.host_side"
_MODULES: Final = ("places", "processes", "facts", "leases", "blobs", "starting", "main")
"""In the order of their imports."""

_READ: Final = "import sys;exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
_LOADER: Final = f"""\
import json, sys, types
if sys.version_info < (3, 8):
    told = "its Python is %s, and 3.8 or newer is needed" % sys.version.split()[0]
    sys.stdout.write("\\n{_ANSWER}" + json.dumps({{"refused": "python", "detail": told}}) + "\\n")
    sys.exit(0)
stream = sys.stdin.buffer
given = json.loads(stream.read(int(stream.readline())).decode())
for name in ("shunter_providers", "shunter_providers.ssh", "{_ROOM}"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, source in given["modules"]:
    module = types.ModuleType("{_ROOM}." + name)
    sys.modules[module.__name__] = module
    setattr(sys.modules["{_ROOM}"], name, module)
    exec(compile(source, name, "exec"), module.__dict__)
sys.modules["{_ROOM}.main"].main(given["request"], stream)
"""


class CallFailed(Exception):
    """The host did not do it; `kind` is the host's own slug, or `lost`, `python`, `broken`, `late`."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class HostSide:
    """The host's side behind one connection. Calls may run at the same time."""

    def __init__(self, reached: Reached, python: str, base: str) -> None:
        self.reached = reached
        self._command = command_line(python)
        self._base = base

    async def call(self, op: str, within_s: float = CALL_WITHIN_S, **request: Any) -> dict[str, Any]:
        """Do `op` and return its answer.

        Raises:
            CallFailed: the host refuses, or the connection was lost.
        """
        return await self._call(op, request, None, within_s)

    async def send(self, op: str, body: AsyncIterator[bytes], within_s: float, **request: Any) -> dict[str, Any]:
        """The same, with bytes that follow the request.

        Raises:
            CallFailed
        """
        return await self._call(op, request, body, within_s)

    @asynccontextmanager
    async def hold(self, op: str, **request: Any) -> AsyncIterator[dict[str, Any]]:
        """Begin `op`, give its first answer, and let it go on for as long as the context is open.

        Raises:
            CallFailed
        """
        async with await self._start(op, request) as process:
            yield await self._answer(process, CALL_WITHIN_S)
            process.stdin.write_eof()

    async def _call(
        self, op: str, request: Mapping[str, Any], body: AsyncIterator[bytes] | None, within_s: float
    ) -> dict[str, Any]:
        try:
            async with asyncio.timeout(within_s):
                process = await self._start(op, request)
                try:
                    return await _both(_pour(process, body), self._answer(process, within_s))
                finally:
                    process.close()
        except TimeoutError as exc:
            raise CallFailed("late", f"{op}: no answer within {within_s:g} s") from exc
        except (asyncssh.Error, OSError) as exc:
            raise CallFailed("lost", f"{op}: the connection was lost: {exc}") from exc

    async def _start(self, op: str, request: Mapping[str, Any]) -> asyncssh.SSHClientProcess[bytes]:
        process = await self.reached.connection.create_process(self._command, encoding=None)
        process.stdin.write(prologue({"op": op, "base": self._base, **request}))
        return cast("asyncssh.SSHClientProcess[bytes]", process)

    async def _answer(self, process: asyncssh.SSHClientProcess[bytes], within_s: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(within_s):
                async for line in process.stdout:
                    text = line.decode("utf-8", "replace").strip()
                    if text.startswith(_ANSWER):
                        return _read_answer(text)
                told = (await process.stderr.read(4000)).decode("utf-8", "replace").strip()
                await process.wait_closed()
        except TimeoutError as exc:
            raise CallFailed("late", f"no answer within {within_s:g} s") from exc
        if process.exit_status in (126, 127):
            raise CallFailed("python", f"there is no Python 3.8 or newer there ({told[-200:] or 'command not found'})")
        raise CallFailed("broken", f"no answer (exit {process.exit_status}): {told[-1000:]}")


def command_line(python: str) -> str:
    """What the host's shell reads: always the same but for the path of Python."""
    return shlex.join([python, "-I", "-c", _READ])


def prologue(request: Mapping[str, Any]) -> bytes:
    """The loader, the modules, and the request, each with its length before it."""
    loader = _LOADER.encode()
    given = json.dumps({"modules": _sources(), "request": dict(request)}).encode()
    return b"%d\n%s%d\n%s" % (len(loader), loader, len(given), given)


@cache
def _sources() -> list[tuple[str, str]]:
    room = resources.files(_ROOM)
    return [(name, (room / f"{name}.py").read_text(encoding="utf-8")) for name in _MODULES]


async def _pour(process: asyncssh.SSHClientProcess[bytes], body: AsyncIterator[bytes] | None) -> None:
    if body is not None:
        async for block in body:
            process.stdin.write(block)
            await process.stdin.drain()
    process.stdin.write_eof()


async def _both(sending: Coroutine[Any, Any, None], answering: Coroutine[Any, Any, _T]) -> _T:
    """The answer; a body that cannot be read ends the call at once."""
    sent, answered = asyncio.ensure_future(sending), asyncio.ensure_future(answering)
    try:
        await asyncio.wait([sent, answered], return_when=asyncio.FIRST_COMPLETED)
        if not answered.done() and sent.exception() is not None:
            sent.result()
        return await answered
    finally:
        for task in (sent, answered):
            task.cancel()
        await asyncio.gather(sent, answered, return_exceptions=True)


def _read_answer(line: str) -> dict[str, Any]:
    try:
        answer = json.loads(line.removeprefix(_ANSWER))
    except ValueError as exc:
        raise CallFailed("broken", f"an answer that is no JSON: {line[:200]}") from exc
    if "ok" in answer and isinstance(answer["ok"], dict):
        return cast("dict[str, Any]", answer["ok"])
    raise CallFailed(str(answer.get("refused", "broken")), str(answer.get("detail", "")))
