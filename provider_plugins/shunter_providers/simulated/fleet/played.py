"""One agent as the fleet plays it: what it was told, what it does, what it says next. No I/O; the time is passed in.

It keeps the protocol as the real agent does: a journal whose records are sent until they are acknowledged, a status, a
lease, and obedience to what is desired of the node. It has no ranks: its trainings are a matter of time.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Final

from shunter_providers.simulated.entries import NEVER
from shunter_providers.simulated.fleet.part import Part, make_part, read_part
from shunter_providers.simulated.fleet.uploading import Upload, checkpoint_upload, log_upload
from shunter_providers.simulated.settings import FleetSettings

PROTOCOL: Final = 1
_BATCH: Final = 500
_MOST_POINTS: Final = 100
_RETRY_FIRST_S: Final = 0.5
_RETRY_MOST_S: Final = 15.0
_INTERRUPTED: Final = "interrupted"
_WORTH_LISTENING_S: Final = 0.9


@dataclass(frozen=True, slots=True)
class Birth:
    """What an agent knows when its node has booted."""

    handle: str
    node: str
    sync_token: str
    service_url: str
    service_url_file: str | None
    lease_s: float | None
    warned_at: float
    """When the cloud warns it that the node will be taken away."""


class Played:
    """One agent."""

    __slots__ = (
        "_acknowledged",
        "_alone_until",
        "_began_at",
        "_failures",
        "_journal",
        "_last_seq",
        "_logged",
        "_manner",
        "_phase",
        "_stop_at",
        "_stop_reason",
        "_sync_at",
        "_told_step",
        "_turn_at",
        "_unsaid",
        "_wish",
        "birth",
        "changed",
        "is_gone",
        "journal_id",
        "listens_since",
        "newest",
        "next_save_at",
        "part",
        "uploads",
    )

    def __init__(self, birth: Birth, manner: FleetSettings, now: float) -> None:
        self.birth = birth
        self._manner = manner
        self.journal_id = token_hex(8)
        self._journal: deque[tuple[int, bytes]] = deque()
        self._unsaid: deque[tuple[int, str, int, Mapping[str, Any]]] = deque()
        """Of the journal the number, type, generation and data of what a fleet that is started again has to say."""
        self._last_seq = 0
        self._acknowledged = 0
        self.part: Part | None = None
        self.newest = 0
        self._phase = "idle"
        self._turn_at = NEVER
        self._sync_at = now
        self._failures = 0
        self._began_at = now
        self._alone_until = NEVER if birth.lease_s is None else now + birth.lease_s
        self._stop_at = NEVER
        self._stop_reason = ""
        self._told_step = -1
        self._logged: tuple[int, int] = (0, 0)
        """Bytes of the log that went up, and the first step that is not in them."""
        self._wish = (0, 0)
        self.next_save_at = NEVER
        self.uploads: deque[Upload] = deque()
        """What has to go up before it is told of."""
        self.listens_since: float | None = None
        """Since when what it heard last is wanted; None: exchanges come so often that it need not listen."""
        self.is_gone = False
        """Whether it was told to go, and went."""
        self.changed = True
        """Whether there is something new to keep for a fleet that is started again."""
        self._record("boot", 0, _boot(birth.handle), now)

    @property
    def next_at(self) -> float:
        """When it wants its next turn."""
        soonest = min(self._sync_at, self._turn_at)
        if not self._is_alive or self._phase == "stopping":
            return soonest
        return min(soonest, self.next_save_at, self.birth.warned_at, self._alone_until, self._stop_at)

    @property
    def _is_alive(self) -> bool:
        return self._phase in ("preparing", "running", "stopping")

    def wants_to_sync(self, now: float) -> bool:
        """Whether an exchange is due."""
        return now >= self._sync_at

    # What it does by itself.

    def act(self, now: float) -> None:
        """Do what is due."""
        if self._is_alive and self._phase != "stopping":
            self._heed_deadlines(now)
        if now < self._turn_at and not (self._phase == "ended" and not self.uploads):
            return
        part = self.part
        if self._phase == "preparing" and part is not None:
            self._run(part, now)
        elif self._phase == "running" and part is not None:
            self._end(part, now, *_own_end(part))
        elif self._phase == "stopping" and part is not None:
            self._end(part, now, *_stopped_end(self._stop_reason))
        elif self._phase == "ended" and not self.uploads:
            self._phase, self._turn_at = "drained", NEVER
            self._record("drained", self.newest, {}, now)

    def uploaded(self, upload: Upload, now: float) -> None:
        """What was at the head of `uploads` is stored."""
        self.uploads.popleft()
        self._record(upload.type, upload.generation, upload.data, now, urgent=upload.type == "checkpoint")

    def not_stored(self, status: int, now: float) -> None:
        """What was at the head of `uploads` is not stored: HTTP `status`, or 0 when nothing came back."""
        if 400 <= status < 500 and status != 429:
            upload = self.uploads.popleft()
            detail = {"object": upload.key, "message": f"HTTP {status}"}
            self._record("upload_failed", upload.generation, detail, now)
        elif self._phase == "ended":
            self._turn_at = now + _RETRY_MOST_S * random.uniform(0.1, 0.5)

    def _heed_deadlines(self, now: float) -> None:
        if now >= self.birth.warned_at:
            self._stop(_INTERRUPTED, now)
        elif now >= min(self._alone_until, self._stop_at):
            self._stop("lease_expired", now)
        elif now >= self.next_save_at and self._phase == "running":
            self._save(now)

    def _run(self, part: Part, now: float) -> None:
        self._phase, self._turn_at = "running", NEVER if part.ends_at is None else part.ends_at
        if self._manner.checkpoint_every_s is not None and part.is_training:
            self.next_save_at = now + self._manner.checkpoint_every_s
        self._record("prepare", part.generation, {"part": "environment", "status": "done"}, now)
        for rank in part.ranks:
            self._record("rank_up", part.generation, {"rank": rank, "pid": 1000 + rank}, now)

    def _save(self, now: float) -> None:
        part, every_s = self.part, self._manner.checkpoint_every_s
        self.next_save_at = NEVER if every_s is None else now + every_s
        if part is not None and (step := part.steps_at(now, self._manner.step_s)) >= part.first_step:
            self.uploads.append(checkpoint_upload(part, step))

    def _stop(self, reason: str, now: float) -> None:
        self._phase, self._stop_reason, self._turn_at = "stopping", reason, now + self._manner.stop_s

    def _end(self, part: Part, now: float, type_: str, data: dict[str, Any]) -> None:
        self._tell_steps(now)
        if type_ != "failed" and part.is_training and now > part.begins_at:
            self._save(now)
        self.next_save_at = NEVER
        self._phase, self._turn_at = "ended", now
        self._record(type_, part.generation, data, now)
        self._log(now)

    def _log(self, now: float) -> None:
        """Have the lines of the steps since the last time go up."""
        if self.part is None:
            return
        offset, first = self._logged
        upload = log_upload(self.part, self.journal_id, offset, first, self._told_step, now)
        if upload is not None:
            self.uploads.append(upload)
            self._logged = (offset + len(upload.body), self._told_step + 1)

    # What it says.

    def message(self, now: float) -> bytes:
        """The next exchange's request."""
        if self._phase == "running":
            self._tell_steps(now)
        head = {
            "protocol": PROTOCOL,
            "node": self.birth.node,
            "journal_id": self.journal_id,
            "handle": self.birth.handle,
            "status": {
                "phase": self._phase,
                "generation": self.newest,
                "ranks_running": len(self.part.ranks) if self.part is not None and self._phase == "running" else 0,
                "uptime_s": round(now - self._began_at, 3),
                "dropped": 0,
            },
        }
        records = b",".join([text for _, text in self._journal][:_BATCH])
        self._sync_at = NEVER
        return json.dumps(head, separators=(",", ":")).encode()[:-1] + b',"records":[' + records + b"]}"

    def hear(self, answer: Mapping[str, Any], asked_at: float, now: float) -> None:
        """The service's answer."""
        self._failures = 0
        self._acknowledged = max(self._acknowledged, int(answer["acknowledged"]))
        while self._journal and self._journal[0][0] <= self._acknowledged:
            self._journal.popleft()
        while self._unsaid and self._unsaid[0][0] <= self._acknowledged:
            self._unsaid.popleft()
            self.changed = True
        lease = answer.get("lease") or {}
        self._alone_until = _deadline(asked_at, lease.get("expires_in_s"))
        self._stop_at = _deadline(asked_at, lease.get("stop_in_s"))
        self._sync_at = min(self._sync_at, now + float(answer["next_sync_s"]))
        if len(self._journal) > _BATCH:
            self._sync_at = now
        self.listens_since = answer["desired"].get("since") if answer["next_sync_s"] >= _WORTH_LISTENING_S else None
        self._obey(answer["desired"], now)
        if answer.get("upload_logs") and self._phase == "running":
            self._log(now)

    def hurry(self, now: float) -> None:
        """Something else is wanted of it than it has heard."""
        if not self._failures:
            self._sync_at = min(self._sync_at, now)

    def not_heard(self, status: int, now: float) -> None:
        """The exchange failed: HTTP `status`, or 0 when nothing came back."""
        if status == 410 and not self._is_alive:
            self.is_gone = True
        self._failures += 1
        slow = status in (401, 403, 410)
        wait_s = _RETRY_MOST_S if slow else min(_RETRY_FIRST_S * 2 ** min(self._failures - 1, 10), _RETRY_MOST_S)
        self._sync_at = now + wait_s * random.uniform(0.5, 1.5)

    def _obey(self, desired: Mapping[str, Any], now: float) -> None:
        phase, number = desired["phase"], int(desired.get("generation") or 0)
        if phase == "run":
            assignment = desired.get("assignment")
            if assignment and number > self.newest:
                self._accept(assignment, now)
            self._heed_wish(number, int(desired.get("checkpoint") or 0), now)
        elif phase == "stop":
            if self._is_alive:
                if self._phase != "stopping":
                    self._stop(desired.get("reason") or "stopped", now)
            elif number > self.newest or not self.newest:
                self._close(number, now)
        elif phase == "release":
            self.is_gone = True
        elif number > self.newest and self._is_alive and self._phase != "stopping":
            self._stop(desired.get("reason") or "held", now)

    def _accept(self, assignment: Mapping[str, Any], now: float) -> None:
        """Begin a generation; one that still runs is cut off: the service is beyond it."""
        if self._is_alive and self.part is not None:
            self._end(self.part, now, "stopped", {"reason": "superseded"})
        self.part = make_part(assignment, self.birth.handle, self._manner, now)
        self.newest = self.part.generation
        self._phase, self._turn_at = "preparing", self.part.begins_at
        self._told_step, self._logged = self.part.first_step - 1, (0, self.part.first_step)
        self.uploads.clear()
        self._record("prepare", self.newest, {"part": "environment", "status": "started"}, now, urgent=False)
        self.changed = True

    def _heed_wish(self, number: int, wish: int, now: float) -> None:
        before, self._wish = self._wish, (number, wish)
        if before[0] == number and wish > before[1] and self._phase == "running" and self.newest == number:
            self._save(now)

    def _close(self, number: int, now: float) -> None:
        """A generation that never came here."""
        if self._phase == "drained" and self.newest >= number:
            return
        self.newest, self._phase = max(self.newest, number), "drained"
        self._record("stopped", number, {"reason": "not_started", "message": "it never started here"}, now)
        self._record("drained", number, {}, now)

    def _tell_steps(self, now: float) -> None:
        """Metrics and progress of the steps since the last time."""
        part, step_s = self.part, self._manner.step_s
        if part is None or now < part.begins_at or (last := part.steps_at(now, step_s)) <= self._told_step:
            return
        first = max(self._told_step + 1, last - _MOST_POINTS + 1)
        if part.node_rank == 0:
            points = [
                {"step": step, "at": part.begins_at + (step - part.first_step + 1) * step_s, "values": _values(step)}
                for step in range(first, last + 1)
            ]
            self._record("metrics", part.generation, {"points": points}, now, urgent=False)
            self._record("progress", part.generation, {"step": last, "values": _values(last)}, now, urgent=False)
        self._told_step = last
        every_s = self._manner.log_every_s
        if every_s is not None and (last + 1 - self._logged[1]) * step_s >= every_s:
            self._log(now)

    def _record(self, type_: str, generation: int, data: Mapping[str, Any], now: float, *, urgent: bool = True) -> None:
        self._last_seq += 1
        record = {"seq": self._last_seq, "at": now, "type": type_, "generation": generation, "data": data}
        self._journal.append((self._last_seq, json.dumps(record, separators=(",", ":")).encode()))
        if urgent:
            self.changed = True
            if type_ != "boot":
                self._unsaid.append((self._last_seq, type_, generation, data))
            if not self._failures:
                self._sync_at = min(self._sync_at, now)

    # What outlives the process.

    def kept(self) -> dict[str, Any]:
        """What `take_up` needs."""
        return {
            "newest": self.newest,
            "phase": self._phase,
            "began_at": self._began_at,
            "part": None if self.part is None else self.part.as_json(),
            "stop_reason": self._stop_reason,
            "unsaid": [said for _, *said in self._unsaid],
        }

    def take_up(self, kept: Mapping[str, Any], now: float) -> None:
        """Go on as the agent that kept this: its ranks trained on meanwhile. Its journal begins anew.

        What may not have been heard is said once more; what waited to be stored is lost.
        """
        self.newest, self._began_at = int(kept["newest"]), float(kept["began_at"])
        self._phase = str(kept["phase"])
        if (journal := kept.get("journal")) is not None:  # one that was heard to its end goes on
            self.journal_id, self._last_seq, self._acknowledged = journal["id"], journal["seq"], journal["seq"]
            self._journal.clear()
        for type_, generation, data in kept.get("unsaid", ()):
            self._record(type_, generation, data, now)
        if kept["part"] is None:
            return
        self.part = part = read_part(kept["part"])
        self._told_step, self._logged = part.first_step - 1, (0, part.first_step)
        if self._phase == "preparing":
            self._turn_at = part.begins_at
        elif self._phase == "running":
            self._turn_at = NEVER if part.ends_at is None else part.ends_at
            self._told_step = part.steps_at(now, self._manner.step_s)
            self._logged = (0, self._told_step + 1)
        elif self._phase in ("stopping", "ended"):
            self._turn_at, self._stop_reason = now, str(kept.get("stop_reason", "stopped"))


def _deadline(asked_at: float, granted_s: float | None) -> float:
    return NEVER if granted_s is None else asked_at + float(granted_s)


def _own_end(part: Part) -> tuple[str, dict[str, Any]]:
    if not part.fails:
        return "done", {"exit_code": 0, "message": ""}
    failure = {"failure_class": "user", "reason": "user_error", "message": "it was played to fail", "exit_code": 1}
    return "failed", {**failure, "rank": part.ranks[0]}


def _stopped_end(reason: str) -> tuple[str, dict[str, Any]]:
    if reason == _INTERRUPTED:
        message = "the machine asked the agent to stop"
        return "failed", {"failure_class": "node", "reason": reason, "message": message}
    return "stopped", {"reason": reason}


def _values(step: int) -> dict[str, float]:
    return {"loss": round(10.0 / (1.0 + 0.01 * step), 5), "lr": 0.001, "tokens_per_s": 1000.0}


def _boot(handle: str) -> dict[str, Any]:
    facts = {"boot_id": f"played-{handle}", "hostname": handle, "agent_version": "played", "python": "3.11.0"}
    return {**facts, "cpus": 8, "memory_gib": 64.0, "gpus": [], "addresses": ["127.0.0.1"]}
