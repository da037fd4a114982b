"""Random orders of claim, apply, wake and expiry by two owners, checked against a model; and the model is checked too:
without the fence it must fail."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from shunter_store.errors import StaleStep
from shunter_store.job import due, events, steps
from shunter_store.job.due import Claim
from shunter_store.job.jobs import JobRow
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import job_due
from sqlalchemy import Connection, select, update
from support.store_rows import new_job

OWNERS = st.sampled_from(["a", "b"])
JOBS = st.integers(0, 1)
Apply = Callable[[Connection, Claim, steps.Change], JobRow]


class ClaimMachine(RuleBasedStateMachine):
    """Two jobs and two owners. A model beside the database knows who may apply and what is due."""

    template: ClassVar[Path]
    apply_step: ClassVar[Apply]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=self.template.parent))
        shutil.copyfile(self.template, self.folder / "shunter.db")
        self.database = Database.connect(f"sqlite:///{self.folder / 'shunter.db'}", readers=1)
        self.jobs = [new_job(self.database).id for _ in range(2)]
        self.held: dict[str, Claim] = {}
        self.newest = dict.fromkeys(self.jobs, 0)
        self.leased = dict.fromkeys(self.jobs, False)
        self.applied: dict[str, list[int]] = {job_id: [] for job_id in self.jobs}
        self.due = dict.fromkeys(self.jobs, True)
        self.woken = dict.fromkeys(self.jobs, False)

    def teardown(self) -> None:
        self.database.close()
        shutil.rmtree(self.folder)

    @rule(owner=OWNERS)
    def claim(self, owner: str) -> None:
        free = [job_id for job_id in self.jobs if self.due[job_id] and not self.leased[job_id]]
        claims = self.database.write(lambda conn: due.claim(conn, owner=owner))
        assert len(claims) == min(1, len(free))
        for claim in claims:
            assert claim.job_id in free
            assert claim.fence == self.newest[claim.job_id] + 1
            self.newest[claim.job_id] = claim.fence
            self.leased[claim.job_id] = True
            self.woken[claim.job_id] = False
            self.held[owner] = claim

    @rule(owner=OWNERS, next_in_s=st.sampled_from([None, 0.0, 3600.0]))
    def apply(self, owner: str, next_in_s: float | None) -> None:
        claim = self.held.get(owner)
        if claim is None:
            return
        change = steps.Change(next_in_s=next_in_s, events=[("step", {"fence": claim.fence})])
        may_apply = self.newest[claim.job_id] == claim.fence and claim.fence not in self.applied[claim.job_id]
        try:
            self.database.write(lambda conn: type(self).apply_step(conn, claim, change))
        except StaleStep:
            assert not may_apply
            return
        assert may_apply, "a stale step was applied"
        self.applied[claim.job_id].append(claim.fence)
        self.leased[claim.job_id] = False
        self.due[claim.job_id] = self.woken[claim.job_id] or next_in_s == 0

    @rule(job=JOBS)
    def wake(self, job: int) -> None:
        self.database.write(lambda conn: due.wake(conn, [self.jobs[job]]))
        self.due[self.jobs[job]] = True
        self.woken[self.jobs[job]] = True

    @rule(job=JOBS)
    def expire(self, job: int) -> None:
        its = (job_due.c.job_id == self.jobs[job], job_due.c.lease_owner.is_not(None))
        self.database.write(lambda conn: conn.execute(update(job_due).where(*its).values(lease_until=db_now() - 1)))
        self.leased[self.jobs[job]] = False

    @invariant()
    def the_history_holds_every_applied_step_once(self) -> None:
        for job_id in self.jobs:
            told = self.database.read(lambda conn, job_id=job_id: events.page(conn, job_id, limit=1000))  # type: ignore[misc]
            assert [event.seq for event in told] == list(range(1, len(told) + 1))
            assert [event.data["fence"] for event in told if event.type == "step"] == self.applied[job_id]


def without_fence(conn: Connection, claim: Claim, change: steps.Change) -> JobRow:
    """The mutant: a step is applied whoever has the job by now."""
    its = job_due.c.job_id == claim.job_id
    conn.execute(update(job_due).where(its).values(lease_owner="mutant"))
    fence = conn.execute(select(job_due.c.fence).where(its)).scalar_one()
    return steps.apply(conn, Claim(claim.job_id, fence, claim.claimed_at), change)


def test_no_order_of_claims_and_steps_applies_a_stale_one(sqlite_template: Path) -> None:
    check(sqlite_template, steps.apply, examples=30)


def test_the_model_finds_a_store_without_the_fence(sqlite_template: Path) -> None:
    with pytest.raises(AssertionError, match="a stale step was applied"):
        check(sqlite_template, without_fence, examples=200)


def check(template: Path, apply_step: Apply, *, examples: int) -> None:
    machine = type("Machine", (ClaimMachine,), {"template": template, "apply_step": staticmethod(apply_step)})
    budget = settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=False,
    )
    run_state_machine_as_test(machine, settings=budget)
