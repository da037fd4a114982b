"""One step of one job: look, decide, act, apply. No transaction is open while a provider is called."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final

from shunter_store import steps
from shunter_store.database import Database
from shunter_store.due import Claim
from shunter_store.errors import Overtaken, SlotsTaken, StaleStep
from shunter_store.jobs import JobRow
from shunter_store.steps import Change

from shunter_workers.acting import Actor
from shunter_workers.applying import Applier
from shunter_workers.deciding import decide
from shunter_workers.decisions import Act, Settle, Unfenced
from shunter_workers.observing import Observer
from shunter_workers.settling import settle
from shunter_workers.view import View

SPARE_S: Final = 5.0
"""A call ends so long before the lease of its step does."""
AFTER_A_FAILURE_S: Final = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stepper:
    """Moves jobs along."""

    database: Database
    observer: Observer
    actor: Actor
    applier: Applier
    lease_s: float

    async def step(self, claim: Claim) -> JobRow | None:
        """Do one step; None: another worker has the job by now, or something broke and it is tried again later."""
        try:
            return await self._step(claim)
        except StaleStep as exc:
            _log.info("%s", exc)
        except (SlotsTaken, Overtaken) as exc:
            _log.debug("%s: %s", claim.job_id, exc)
            await self._let_go(claim, 0.0)
        except Exception:
            _log.exception("the step of %s broke", claim.job_id)
            await self._let_go(claim, AFTER_A_FAILURE_S)
        return None

    async def _step(self, claim: Claim) -> JobRow:
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
        return await self._apply(claim, view, decision)

    async def _apply(self, claim: Claim, view: View, settled: Settle) -> JobRow:
        if any(isinstance(write, Unfenced) for write in settled.writes):
            await self.database.awrite(lambda conn: self.applier.record(conn, settled))
        return await self.database.awrite(lambda conn: self.applier.apply(conn, claim, view, settled))

    async def _let_go(self, claim: Claim, next_in_s: float) -> None:
        try:
            await self.database.awrite(lambda conn: steps.apply(conn, claim, Change(next_in_s=next_in_s)))
        except StaleStep:
            _log.debug("%s was taken over", claim.job_id)
        except Exception:
            _log.exception("%s stays claimed until its lease ends", claim.job_id)
