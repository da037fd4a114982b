"""The process that plays a cloud's agents: `python -m shunter_providers.simulated.fleet FOLDER CLOUD`.

It reads the cloud's books for nodes that have booted and nodes that are gone, and gives each agent its turn when that
is due. One process a cloud, held by a lock; it outlives the service's own processes, as real nodes do.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any, Final

from shunter_providers.simulated.books import Books
from shunter_providers.simulated.entries import NEVER, Entry
from shunter_providers.simulated.fleet.ears import Ears
from shunter_providers.simulated.fleet.exchange import Exchange, headers_of
from shunter_providers.simulated.fleet.line import Line
from shunter_providers.simulated.fleet.memory import Memory
from shunter_providers.simulated.fleet.played import Birth, Played
from shunter_providers.simulated.settings import FleetSettings

LOOK_S: Final = 0.5
_TICK_S: Final = 0.005


class Player:
    """Plays until there is nothing left to play."""

    def __init__(
        self, books: Books, memory: Memory, manner: FleetSettings, *, notice_s: float, now: Callable[[], float]
    ) -> None:
        """`now`: the cloud's clock."""
        self._books = books
        self._memory = memory
        self._manner = manner
        self._notice_s = notice_s
        self._now = now
        self._exchange = Exchange(manner, now)
        self._ears = Ears(self._exchange.base_of, headers_of, self._hurry) if manner.ears else None
        self._agents: dict[str, Played] = {}
        self._turns: list[tuple[float, int, Played]] = []
        self._count = 0
        self._turn_of: dict[str, int] = {}
        """The turn that an agent waits for; others that stand in the line for it are not valid any more."""
        self._idle_lines = [Line(manner.timeout_s) for _ in range(manner.connections)]
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._rests_until = 0.0
        self._gone: list[str] = []

    async def play(self) -> None:
        """Until there was no node for `idle_exit_s`, or the books are gone."""
        self._take_up()
        looked_at = 0.0
        busy_at = self._now()
        while self._books.path.exists() and self._now() < busy_at + self._manner.idle_exit_s:
            now = self._now()
            if now >= looked_at + LOOK_S:
                looked_at = now
                self._look(now)
            if self._agents:
                busy_at = now
            await self._give_turns(min(looked_at + LOOK_S, now + LOOK_S))
        for line in self._idle_lines:
            line.close()
        if self._ears is not None:
            self._ears.close_all()
            await asyncio.sleep(0)  # the loop closes what was hung up

    async def _give_turns(self, until: float) -> None:
        """Every turn that is due, as far as there are lines; then rest, but not beyond `until`."""
        now = self._now()
        while self._turns and self._turns[0][0] <= now and self._idle_lines:
            _, number, agent = heappop(self._turns)
            if self._turn_of.get(agent.birth.handle) != number:
                continue
            del self._turn_of[agent.birth.handle]
            if self._agents.get(agent.birth.handle) is not agent:
                continue
            task = asyncio.create_task(self._turn(agent, self._idle_lines.pop()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        next_at = self._turns[0][0] if self._turns else until
        # What is due already waits for a line.
        self._rests_until = until if next_at <= now else min(next_at, until)
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(_TICK_S, self._rests_until - now)):
                await self._wake.wait()

    async def _turn(self, agent: Played, line: Line) -> None:
        try:
            agent.act(self._now())
            while agent.uploads:
                if not await self._exchange.store(agent, line):
                    break
                agent.act(self._now())
            if agent.wants_to_sync(self._now()):
                self._remember(agent)
                await self._exchange.sync(agent, line)
                agent.act(self._now())
                if self._ears is not None:
                    self._ears.heed(agent)
        except Exception as error:  # an agent that stumbles goes on at its next turn, and the others are not disturbed
            print(f"{agent.birth.handle}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            agent.not_heard(0, self._now())
        finally:
            self._idle_lines.append(line)
        if agent.is_gone:
            self._gone.append(agent.birth.handle)
        else:
            self._await_turn(agent)

    def _hurry(self, handle: str) -> None:
        """An ear heard that there is something to hear."""
        agent = self._agents.get(handle)
        if agent is not None:
            agent.hurry(self._now())
            if handle in self._turn_of:  # else it has its turn at this moment, and waits for the next one after it
                self._await_turn(agent)

    def _await_turn(self, agent: Played) -> None:
        self._count += 1
        next_at = agent.next_at
        self._turn_of[agent.birth.handle] = self._count
        heappush(self._turns, (next_at, self._count, agent))
        if next_at < self._rests_until or len(self._idle_lines) == 1:
            self._wake.set()

    # The books.

    def _look(self, now: float) -> None:
        """Who has booted, who is gone; and keep what changed."""
        try:
            with self._books.writing() as page:
                booted, ended = page.to_start(now), page.to_clear(now)
                for entry in booted:
                    page.change(entry.handle, started=True)
                for handle in ended:
                    page.change(handle, cleared=True)
            self._keep(ended)
        except sqlite3.Error as error:
            print(f"the books cannot be read: {error}", file=sys.stderr, flush=True)
            return
        for entry in booted:
            self._join(Played(_birth(entry, self._notice_s), self._manner, now))
        for handle in ended:
            self._forget(handle)

    def _take_up(self) -> None:
        """Go on with what a fleet before this one played."""
        now, kept = self._now(), self._memory.all()
        with self._books.writing() as page:
            entries = page.playing(now)
        for entry in entries:
            agent = Played(_birth(entry, self._notice_s), self._manner, now)
            if entry.handle in kept:
                agent.take_up(kept[entry.handle], now)
            self._join(agent)

    def _join(self, agent: Played) -> None:
        self._agents[agent.birth.handle] = agent
        self._await_turn(agent)

    def _forget(self, handle: str) -> None:
        self._agents.pop(handle, None)
        if self._ears is not None:
            self._ears.close(handle)

    def _remember(self, agent: Played) -> None:
        """Before it is told: a fleet that is started again must know what this one has said."""
        if agent.changed and agent.part is not None:
            self._memory.write({agent.birth.handle: agent.kept()}, ())
            agent.changed = False

    def _keep(self, ended: list[str]) -> None:
        for handle in self._gone:  # it left; its node stands idle until the cloud ends it
            self._forget(handle)
        kept = {}
        for handle, agent in self._agents.items():
            if agent.changed:
                kept[handle] = agent.kept()
                agent.changed = False
        if kept or ended or self._gone:
            self._memory.write(kept, [*ended, *self._gone])
        self._gone.clear()


def _birth(entry: Entry, notice_s: float) -> Birth:
    launch: dict[str, Any] = json.loads(entry.launch)
    return Birth(
        handle=entry.handle,
        node=launch["node"],
        sync_token=launch["sync_token"],
        service_url=launch["service_url"],
        service_url_file=launch.get("service_url_file"),
        lease_s=(launch.get("lease") or {}).get("expires_in_s"),
        warned_at=NEVER if entry.preempted_at >= NEVER else entry.preempted_at - notice_s,
    )
