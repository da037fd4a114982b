"""A job's nodes themselves: shells on them, their agents' own files, and all that is known of a job."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Final

from shunter_schemas.api import DebugReport, NodeCall, NodeCalls

from shunter.errors import ShunterError, WaitTimeout
from shunter.flows.answers import get, job_path, post
from shunter.steps import Flow, ask, pause

ANSWERED_WITHIN_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.3


def open_shell(job_id: str, public_key: str, *, rank: int, duration_s: float) -> Flow[NodeCall]:
    """Ask, and wait until the key lets in."""
    body = json.dumps({"public_key": public_key, "rank": rank, "duration_s": duration_s}).encode()
    call = yield from ask(post(NodeCall, job_path(job_id, "shells"), body))
    call = yield from _answered(job_id, call, ANSWERED_WITHIN_S)
    if call.state == "refused":
        raise ShunterError(f"node {call.node_rank} does not let you in: {call.error}")
    return call


def peek(job_id: str, *, within_s: float) -> Flow[Sequence[NodeCall]]:
    """What the nodes show that answer in time."""
    calls = (yield from ask(post(NodeCalls, job_path(job_id, "peeks")))).items
    found = []
    for call in calls:
        try:
            found.append((yield from _answered(job_id, call, within_s)))
        except WaitTimeout:
            found.append(call)
    return found


def debug(job_id: str) -> Flow[DebugReport]:
    """What the service knows."""
    return ask(get(DebugReport, job_path(job_id, "debug")))


def _answered(job_id: str, call: NodeCall, within_s: float) -> Flow[NodeCall]:
    give_up_at = time.monotonic() + within_s
    while call.state == "waiting":
        if time.monotonic() > give_up_at:
            raise WaitTimeout(
                f"node {call.node_rank} did not answer within {within_s:g} s",
                hint="the worker has no connection to it at the moment; `shunter events` may say why",
            )
        yield from pause(_LOOK_EVERY_S)
        call = yield from ask(get(NodeCall, job_path(job_id, "calls", call.id)))
    return call
