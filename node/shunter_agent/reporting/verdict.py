"""Who failed first, whose fault it is, and what to tell: pure functions over the ends of a gang's processes."""

from __future__ import annotations

import re
import signal
from typing import Any, NamedTuple, Sequence

from shunter_agent.files import cut
from shunter_agent.processes import signal_name

SAVED = 75
"""EX_TEMPFAIL: stopped on request, with a checkpoint saved."""

CLASS_OF_REASON: dict[str, str] = {
    "peer_lost": "node",
    "signal": "node",
    "crash": "node",
    "interrupted": "node",
    "port_taken": "node",
    "gpu_lost": "node",
    "disk_full": "node",
    "agent_restarted": "node",
    "hang": "node",
}
"""Every other reason is the user's to look at."""

_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded")
_MAY_LACK_ROOM = frozenset({"user_error", "setup_failed", "agent_error", "checkpoint_failed"})
_SIGNS: tuple[tuple[str, str], ...] = (
    ("out_of_memory", r"OutOfMemoryError|CUDA out of memory|can't allocate memory|(?m:^MemoryError)"),
    # The last words of a rank that hung with Python's lock in its hands are frames, as `faulthandler` writes them.
    ("hang", r'(?:\A|\n)  File "[^"\n]*", line \d+ in [^\n]*\s*\Z'),
    ("port_taken", r"EADDRINUSE|[Aa]ddress already in use"),
    ("disk_full", _NO_ROOM.pattern),
    ("gpu_lost", r"uncorrectable ECC error|fallen off the bus|CUDA error: (unknown error|device not ready)"),
    (
        "peer_lost",
        r"(?is)(gloo|nccl|c10d|processgroup|tcpstore|dist(backend|network|store)error).*"
        r"(closed by peer|reset by peer|broken pipe|remote (process exited|error)|connection refused|timed? ?out)",
    ),
)
"""What programs print when they fail for a cause of its own; looked for in the last traceback only."""

FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGBUS, signal.SIGINT, signal.SIGHUP})
"""Signals that no Python traceback explains. By every other one a program ends itself: that is a `crash`."""

_TORCHRUN_CAUSE = re.compile(r"Root Cause.*?rank\s*:\s*(?P<rank>\d+).*?exitcode\s*:\s*(?P<code>-?\d+)", re.DOTALL)


class Ended(NamedTuple):
    """How one process ended; `order` counts the ends of the gang as they were noticed."""

    rank: int
    exit_code: int | None
    signal: int | None
    order: int
    ours: bool = False
    """It ended after the agent had begun to stop the gang."""
    tail: str = ""
    reason: str = ""
    """What the rank itself reported before it ended, with `message`."""
    message: str = ""
    blamed: int | None = None
    """The rank, on whatever node, in which it saw the cause; None: in itself."""

    @property
    def failed(self) -> bool:
        return self.exit_code != 0


class Verdict(NamedTuple):
    """The data of `failed`."""

    rank: int
    """To blame; of another node, where a rank of this one knew that its own end was that one's fault."""
    failure_class: str
    reason: str
    message: str
    exit_code: int | None


def judge(ends: Sequence[Ended]) -> Verdict | None:
    """The first rank that failed for a cause of its own; None when nothing failed by itself."""
    found = [(_cause(end), end) for end in sorted(ends, key=lambda end: end.order) if end.failed]
    own = [(cause, end) for cause, end in found if not end.ours or _speaks(end, cause)]
    if not own:
        return None
    leading = [one for one in own if one[0].reason != "peer_lost"] or own
    (cause, end) = min(leading, key=lambda one: (one[1].ours, one[1].order))
    message = _headline(cause, end)
    detail = "\n".join(part for part in (end.message, _without(end.message, end.tail)) if part)
    return Verdict(
        rank=cause.rank,
        failure_class=CLASS_OF_REASON.get(cause.reason, "user"),
        reason=cause.reason,
        message=cut(f"{message}\n{detail}" if detail else message),
        exit_code=end.exit_code,
    )


def blame_disk(failed: dict[str, Any], full: bool) -> dict[str, Any]:
    """The data of `failed`, where the cause is a disk without room: programs say so in many ways, or not at all.

    `full`: whether the node's disk is. What ended for a cause that has nothing to do with it stays as it is.
    """
    message = str(failed.get("message") or "")
    if failed.get("reason") not in _MAY_LACK_ROOM or not (full or _NO_ROOM.search(message)):
        return failed
    told = cut(f"the disk of this node is full\n{message}")
    return {**failed, "failure_class": CLASS_OF_REASON["disk_full"], "reason": "disk_full", "message": told}


def only_peers_lost(ends: Sequence[Ended]) -> bool:
    """Whether every failure so far blames a peer, whose own cause may still come."""
    causes = [_cause(end).reason for end in ends if end.failed]
    return bool(causes) and all(reason == "peer_lost" for reason in causes)


class _Cause(NamedTuple):
    rank: int
    reason: str
    signal: int | None
    exit_code: int | None


def _cause(end: Ended) -> _Cause:
    rank, number, code = end.rank, end.signal, end.exit_code
    inner = _TORCHRUN_CAUSE.search(end.tail) if number is None else None
    if inner:
        rank, code = int(inner["rank"]), int(inner["code"])
        number = -code if code < 0 else None
    if end.reason:
        return _Cause(rank if end.blamed is None else end.blamed, end.reason, number, code)
    if number in FROM_OUTSIDE:
        return _Cause(rank, "signal", number, code)
    # torchrun's own traceback comes last and tells nothing; the worker's stands before it
    traceback = _last_traceback(end.tail)
    text = end.tail if inner or traceback is None else traceback
    sign = next((reason for reason, pattern in _SIGNS if re.search(pattern, text)), None)
    if traceback is None and number is not None:
        return _Cause(rank, "peer_lost" if sign == "peer_lost" else "crash", number, code)
    if traceback is None and code == SAVED:
        return _Cause(rank, "interrupted", number, code)
    return _Cause(rank, sign or "user_error", number, code)


def _last_traceback(tail: str) -> str | None:
    start = tail.rfind("Traceback (most recent call last)")
    return None if start < 0 else tail[start:]


def _without(message: str, tail: str) -> str:
    """The tail, unless it only says the message once more."""
    return "" if message and tail.strip() in (message, f"error: {message}") else tail


def _speaks(end: Ended, cause: _Cause) -> bool:
    """Whether a rank that ended while the gang was being stopped has a cause of its own to tell."""
    if end.signal is not None or end.exit_code == SAVED or cause.reason == "peer_lost":
        return False
    return bool(end.reason) or _last_traceback(end.tail) is not None


def _headline(cause: _Cause, end: Ended) -> str:
    if cause.signal is not None:
        return f"rank {cause.rank} was killed by {signal_name(cause.signal)}"
    if cause.reason == "interrupted":
        return f"rank {cause.rank} exited with code {SAVED} (asks to be started again), though nothing here stopped it"
    if cause.reason == "hang" and not end.reason:
        return f"rank {cause.rank} hung and was ended; its stderr shows where its threads stood"
    return f"rank {cause.rank if end.blamed is None else end.rank} exited with code {cause.exit_code}"


def explain_stop(ends: list[Ended]) -> tuple[int | None, str]:
    """Exit code and message of a gang that was stopped on request."""
    codes = sorted({end.exit_code for end in ends if end.exit_code is not None})
    killed = sorted(end.rank for end in ends if end.signal == signal.SIGKILL)
    if killed:
        return None, f"ranks {', '.join(map(str, killed))} did not stop in time and were killed"
    if SAVED in codes:
        return SAVED, "stopped with a checkpoint saved"
    return (codes[-1] if codes else None), "stopped"
