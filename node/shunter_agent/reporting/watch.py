"""What can be seen of running ranks without asking them: that they are up, their points, why they fail."""

from __future__ import annotations

import time
from typing import Any

from shunter_agent.gang import Member
from shunter_agent.keeping.journal import Entry
from shunter_agent.keeping.layout import Layout
from shunter_agent.keeping.tuning import Tuning
from shunter_agent.reporting.metrics import Feed, PrintTail, RankTail


class Watch:
    """Over the ranks of one generation on this node."""

    def __init__(self, layout: Layout, generation: int, tuning: Tuning, training: bool) -> None:
        """`training`: our trainer, which says itself when it has joined the gang."""
        self._layout = layout
        self._generation = generation
        self._tuning = tuning
        self._training = training
        self._tails: dict[int, RankTail] = {}
        self._feed = Feed(tuning)
        self._prints: PrintTail | None = None if training else self._rank_zero_prints()
        self.told = False
        """Whether there ever was a point or progress."""

    def look(self, members: list[Member], final: bool = False) -> list[Entry]:
        """The records that are due; `final`: none of the members writes any more."""
        spoke = False
        for member in members:
            spoke = self._read(member, final) or spoke
        if self._prints is not None and spoke:
            self._prints = None  # the program tells its metrics itself
        if self._prints is not None and any(member.process.rank == 0 for member in members):
            self._prints.read(self._feed, final)
        entries = [entry for member in members if not member.up for entry in self._ups(member)]
        entries += [
            Entry("warning", self._generation, {"rank": rank, **warning})
            for rank, tail in self._tails.items()
            for warning in tail.take_warnings()
        ]
        entries += [
            Entry("micro_batch", self._generation, trial)
            for tail in self._tails.values()
            for trial in tail.take_trials()
        ]
        due = self._feed.due(self._generation, final)
        self.told = self.told or bool(due)
        return entries + due

    def rest(self, newest: int | None) -> list[Entry]:
        """The points that rank 0 wrote behind the `newest` one that was recorded, once it has died with its agent."""
        if newest is not None:
            self._feed.begin_behind(newest)
        RankTail(self._layout.metrics(self._generation, 0)).read(self._feed, final=True)
        return self._feed.due(self._generation, final=True)

    @property
    def ending(self) -> str:
        """How a training ended that succeeded before its last step; empty for any other."""
        return next((tail.ending for tail in self._tails.values() if tail.ending), "")

    def last_words(self, member: Member) -> list[Entry]:
        """Read an ended member's metrics file to its end, so that `member.ended` holds what it said of its failure."""
        self._read(member, final=True)
        failure = self._tails[member.process.rank].failure
        if failure and member.ended is not None and member.ended.failed:
            reason, message = str(failure.get("reason") or ""), str(failure.get("message") or "")
            blamed = failure.get("rank")
            member.ended = member.ended._replace(
                reason=reason, message=message, blamed=blamed if isinstance(blamed, int) else None
            )
        return self._ups(member) if not member.up else []

    def _read(self, member: Member, final: bool) -> bool:
        rank = member.process.rank
        if rank not in self._tails:
            self._tails[rank] = RankTail(self._layout.metrics(self._generation, rank))
        return self._tails[rank].read(self._feed if rank == 0 else None, final)

    def _ups(self, member: Member) -> list[Entry]:
        """`rank_up` for every rank that the process stands for, once."""
        if not self._is_up(member):
            return []
        member.up = True
        pid = member.child.pid
        return [Entry("rank_up", self._generation, {"rank": rank, "pid": pid}) for rank in member.process.ranks]

    def _is_up(self, member: Member) -> bool:
        if member.ended is not None and member.ended.exit_code == 0:
            return True
        if self._training:
            return self._tails[member.process.rank].up
        return member.ended is None and time.monotonic() - member.started_at >= self._tuning.up_after_s

    def _rank_zero_prints(self) -> PrintTail:
        stdout, stderr = (self._layout.rank_log(self._generation, 0, stream) for stream in ("stdout", "stderr"))
        return PrintTail(stdout, stderr)


def exit_entries(member: Member, generation: int) -> list[Entry]:
    """`rank_exit` for every rank that the ended process stands for; the last lines only once."""
    ended = member.ended
    assert ended is not None
    entries = []
    for rank in member.process.ranks:
        data: dict[str, Any] = {"rank": rank, "exit_code": ended.exit_code, "signal": ended.signal}
        data["tail"] = ended.tail if rank == ended.rank else ""
        entries.append(Entry("rank_exit", generation, data))
    return entries
