"""Situations of a running job whose node is not heard any more, each with what a step decides there in a few words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shunter_schemas.states import State
from support.situations_from_running import BOTH, CLOUDY, ORDERED, Row
from support.views import ago, job, view

SILENT: dict[str, Any] = {"lease_s": 60.0, "lease_granted_until": ago(91), "last_sync_at": ago(151)}


def found_mute(s_ago: float, *, heard_s_ago: float = 151) -> dict[str, Any]:
    """The second node, by an earlier step."""
    found = {BOTH[1].id: [ago(heard_s_ago).timestamp(), ago(s_ago).timestamp()]}
    return {**CLOUDY, "memory": replace(ORDERED, mute=found)}


SILENT_BEYOND_ITS_LEASE: list[Row] = [
    (
        "a node was silent beyond its lease and its grace, and for a while since that was found",
        view(job(State.RUNNING, **found_mute(61)), BOTH[0], replace(BOTH[1], **SILENT)),
        ["release node_1", "tell stop node_0", "node_lost"],
    ),
    (
        "a node is found silent beyond its lease: by a clock that is set ahead all of them are, until they are heard",
        view(job(State.RUNNING, **CLOUDY), BOTH[0], replace(BOTH[1], **SILENT)),
        [],
    ),
    (
        "a node was found silent beyond its lease a moment ago",
        view(job(State.RUNNING, **found_mute(59)), BOTH[0], replace(BOTH[1], **SILENT)),
        [],
    ),
    (
        "a node was found silent beyond its lease, and was heard since",
        view(job(State.RUNNING, **found_mute(61, heard_s_ago=300)), BOTH[0], replace(BOTH[1], **SILENT)),
        [],
    ),
    (
        "a node was found silent beyond its lease at a moment that is to come, by a clock that was set back then",
        view(job(State.RUNNING, **found_mute(-3600)), BOTH[0], replace(BOTH[1], **SILENT)),
        [],
    ),
    (
        "a node was silent beyond its lease, but its ranks may still be stopping",
        view(
            job(State.RUNNING, **CLOUDY),
            BOTH[0],
            replace(BOTH[1], **{**SILENT, "lease_granted_until": ago(29)}),
        ),
        [],
    ),
    (
        "a node was silent beyond its lease, but its order gives its ranks longer to stop",
        view(
            job(State.RUNNING, **found_mute(61)), BOTH[0], replace(BOTH[1], **SILENT, assignment={"stop_grace_s": 92.0})
        ),
        [],
    ),
]
