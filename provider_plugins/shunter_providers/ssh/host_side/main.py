"""Reads one request, does it, and answers with one line of JSON."""

from __future__ import annotations

import json
import sys
from typing import Any, BinaryIO, Callable

from shunter_providers.ssh.host_side import blobs, facts, leases, starting
from shunter_providers.ssh.host_side.places import Refused

ANSWER = "shunter-answer "
"""Begins the line of an answer: a shell's start files may print lines of their own."""

_SIMPLE: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "look": facts.look,
    "take": leases.take,
    "views": leases.views,
    "view": leases.view,
    "standing": leases.standing,
    "end": leases.end,
    "have": blobs.have,
    "fetch": blobs.fetch,
    "launch": starting.launch,
    "point": starting.point,
    "reach": starting.reach,
    "peek": leases.peek,
    "allow": starting.allow,
    "revoke": starting.revoke,
}


def main(request: dict[str, Any], stream: BinaryIO) -> None:
    """Do `request["op"]`; `stream` is what follows it on the standard input."""
    try:
        _say({"ok": _do(request, stream)})
    except Refused as refusal:
        _say({"refused": refusal.kind, "detail": str(refusal)})
    except OSError as error:
        _say({"refused": "os", "detail": str(error)})


def _do(request: dict[str, Any], stream: BinaryIO) -> dict[str, Any]:
    if request["op"] == "put":
        return blobs.put(request, stream)
    if request["op"] == "serve":
        return blobs.serve(request, stream, lambda said: _say({"ok": said}))
    return _SIMPLE[request["op"]](request)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write("\n" + ANSWER + json.dumps(answer) + "\n")
    sys.stdout.flush()
