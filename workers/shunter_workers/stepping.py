"""One step of one job: look, decide, act, apply. No transaction is open while a provider is called."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from shunter_store.errors import ClockSetBack, Overtaken, SlotsTaken, StaleStep
from shunter_store.job import due, steps
from shunter_store.job.due import Claim
from shunter_store.job.jobs import JobRow
from shunter_store.job.steps import Change
from shunter_store.sql.database import Database
from sqlalchemy import Connection

from shunter_workers import breakdowns
from shunter_workers.acting import Actor
from shunter_workers.applying import Applier
from shunter_workers.deciding import decide
from shunter_workers.decisions import Act, Settle, Unfenced
from shunter_workers.observing import Observer
from shunter_workers.settling import settle
from shunter_workers.view import View

SPARE_S: Final = 5.0
"""A call ends so long before the lease of its step does."""
IN_A_ROW: Final = 4
"""Steps of one job that a worker does at once: the way from one state to the next is often two or three of them."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stepper:
    """Moves jobs along."""

    database: Database
    observer: Observer
    actor: Actor
    applier: Applier
    lease_s: float
    owner: str = ""
    in_a_row: int = 1
    """Steps of one job that follow on each other at once, before others that are due have their turn."""

    async def step(self, claim: Claim) -> JobRow | None:
        """Do one step, and up to `in_a_row` if the job is due again at once; the job after the last of them.

        None: another worker has the job by now, or something broke and it is tried again later.
        """
        job, more = await self._try(claim, goes_on=self.in_a_row > 1)
        for left in range(self.in_a_row - 1, 0, -1):
            if more is None:
                break
            job, more = await self._try(more, goes_on=left > 1)
        return job

    async def _try(self, claim: Claim, *, goes_on: bool) -> tuple[JobRow | None, Claim | None]:
        """One step; with `goes_on` also the claim for the next, where that is due at once."""
        try:
            return await self._step(claim, goes_on=goes_on)
        except StaleStep as exc:
            _log.info("%s", exc)
        except (SlotsTaken, Overtaken, ClockSetBack) as exc:
            _log.debug("%s: %s", claim.job_id, exc)
            await self._let_go(claim, 0.0)
        except Exception as exc:
            _log.exception("the step of %s broke", claim.job_id)
            await self._give_back(claim, exc)
        return None, None

    async def _step(self, claim: Claim, *, goes_on: bool) -> tuple[JobRow, Claim | None]:
        began = time.monotonic()
        view = await self.observer.look(claim)
        decision = decide(view, claim.claimed_at)
        if isinstance(decision, Act):
            act, writes = decision, list(decision.writes)
            await self.database.awrite(lambda conn: self.applier.commit_intent(conn, claim, view, writes))
            took_s = time.monotonic() - began
            if took_s >= self.lease_s:  # it was paused: whoever has the job by now sees what was intended, and goes on
                raise StaleStep(claim.job_id, claim.fence)
            result = await self.actor.act(act.action, view, max(1.0, self.lease_s - SPARE_S - took_s))
            decision = settle(view, act, result, claim.claimed_at)
        return await self._apply(claim, view, decision, goes_on=goes_on and decision.change.next_in_s == 0.0)

    async def _apply(self, claim: Claim, view: View, settled: Settle, *, goes_on: bool) -> tuple[JobRow, Claim | None]:
        if any(isinstance(write, Unfenced) for write in settled.writes):
            await self.database.awrite(lambda conn: self.applier.record(conn, settled))
        if not goes_on:
            return await self.database.awrite(lambda conn: self.applier.apply(conn, claim, view, settled)), None
        quietly = replace(settled, change=replace(settled.change, hints=False))

        def write(conn: Connection) -> tuple[JobRow, Claim | None]:
            job = self.applier.apply(conn, claim, view, quietly)
            return job, due.claim_again(conn, job.id, owner=self.owner, lease_s=self.lease_s)

        return await self.database.awrite(write)

    async def _let_go(self, claim: Claim, next_in_s: float) -> None:
        await self._end(claim, lambda conn: steps.apply(conn, claim, Change(next_in_s=next_in_s)))

    async def _give_back(self, claim: Claim, error: Exception) -> None:
        await self._end(claim, lambda conn: breakdowns.note(conn, claim, error))

    async def _end(self, claim: Claim, write: Callable[[Connection], object]) -> None:
        try:
            await self.database.awrite(write)
        except StaleStep:
            _log.debug("%s was taken over", claim.job_id)
        except Exception:
            _log.exception("%s stays claimed until its lease ends", claim.job_id)
