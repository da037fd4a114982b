"""A step whose job is due again at once is followed by the next: without a message, and without giving the job up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from shunter_providers.instances import make_instances
from shunter_providers.registry import Registry
from shunter_schemas.job import load_job
from shunter_schemas.states import NodeState, State
from shunter_store.installation.settings import ProviderSettings
from shunter_store.job import due, events, jobs, outbox, wishes
from shunter_store.job.jobs import JobRow
from shunter_store.node import ledger
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import clock_of
from shunter_store.tables import job_due
from shunter_workers.accounts import Accounts
from shunter_workers.settings import WorkerSettings
from shunter_workers.staff import make_stepper
from shunter_workers.stepping import Stepper
from sqlalchemy import select
from support.documents import tiny_lm
from support.store_rows import claim_job, claim_one, new_job, reread

BARE = {"nodes": "bare", "types": [{"name": "cpu-2", "usd_per_hour": 0.1, "cpu_slots": 2}]}


@pytest.fixture
async def stepper(tmp_path: Path, database: Database) -> AsyncIterator[Stepper]:
    """A worker's, over a cloud whose nodes are no more than entries."""
    providers = {"sim": ProviderSettings(plugin="simulated", settings=BARE)}
    settings = WorkerSettings(data_dir=tmp_path, providers=providers)
    registry = Registry(make_instances(providers, tmp_path, deployment="abcdef"))
    yield make_stepper(settings, database, registry, Accounts(registry), "abcdef")
    await registry.close()


@pytest.fixture
def job(database: Database) -> JobRow:
    return new_job(database, spec=load_job(tiny_lm()).model_dump(mode="json"))


def hints(database: Database) -> int:
    return len(database.read(lambda conn: outbox.take(conn, 100)))


def due_in_s(database: Database, job_id: str) -> float:
    its = select(job_due.c.next_at).where(job_due.c.job_id == job_id)
    next_at = database.read(lambda conn: conn.execute(its).scalar_one())
    return float((next_at - database.read(clock_of)).total_seconds())


def lease_owner(database: Database, job_id: str) -> str | None:
    its = select(job_due.c.lease_owner).where(job_due.c.job_id == job_id)
    owner: str | None = database.read(lambda conn: conn.execute(its).scalar_one())
    return owner


async def test_a_step_whose_claim_is_of_a_time_that_is_still_to_come_decides_nothing_and_comes_again(
    database: Database, stepper: Stepper, job: JobRow
) -> None:
    """The database's clock was set back in between: what its rows say when is of another clock than the claim."""
    claim = claim_one(database)

    after = await stepper.step(replace(claim, claimed_at=claim.claimed_at + timedelta(hours=3)))

    assert after is None
    assert reread(database, job.id).state is State.QUEUED
    assert claim_one(database).fence == claim.fence + 1


async def test_the_plan_is_followed_by_the_creation_of_the_node(
    database: Database, stepper: Stepper, job: JobRow
) -> None:
    before = hints(database)

    await stepper.step(claim_one(database))

    [node] = database.read(lambda conn: ledger.of_job(conn, job.id))
    assert reread(database, job.id).state is State.PROVISIONING
    assert (node.state, node.handle is not None) == (NodeState.BOOTING, True)
    assert hints(database) == before, "nobody else had to be told"
    assert lease_owner(database, job.id) is None
    assert database.read(due.count_due) == 0


async def test_with_one_step_in_a_row_others_are_told_of_the_next(
    database: Database, stepper: Stepper, job: JobRow
) -> None:
    before = hints(database)

    await replace(stepper, in_a_row=1).step(claim_one(database))

    [node] = database.read(lambda conn: ledger.of_job(conn, job.id))
    assert node.state is NodeState.INTENDED
    assert hints(database) == before + 1
    assert database.read(due.count_due) == 1


async def test_the_last_step_in_a_row_gives_the_job_back_due(database: Database, stepper: Stepper, job: JobRow) -> None:
    await stepper.step(claim_one(database))
    database.write(lambda conn: wishes.request_cancel(conn, job.id, by="a test"))
    before = hints(database)

    await replace(stepper, in_a_row=2).step(claim_one(database))

    assert reread(database, job.id).state is State.STOPPING
    assert hints(database) == before + 1
    assert database.read(due.count_due) == 1
    assert lease_owner(database, job.id) is None


async def broken(*_: object) -> None:
    raise RuntimeError("a fault of ours")


async def test_a_step_that_breaks_again_and_again_is_tried_less_often_and_told_once_until_one_goes_well(
    database: Database, stepper: Stepper, job: JobRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []
    with monkeypatch.context() as patch:
        patch.setattr(type(stepper.actor), "act", broken)
        for _ in range(5):
            await stepper.step(claim_job(database, job.id))
            pauses.append(due_in_s(database, job.id))

    await stepper.step(claim_job(database, job.id))

    told = [event for event in database.read(lambda conn: events.page(conn, job.id)) if event.type == "job.step_broke"]
    assert pauses == pytest.approx([10, 20, 40, 80, 160], abs=5)
    assert [event.data["times"] for event in told] == [3]
    assert "a fault of ours" not in str(told[0].data), "what broke may hold a secret"
    assert reread(database, job.id).facts["broken_steps"] == 0


async def test_each_step_in_a_row_has_a_fence_of_its_own(database: Database, stepper: Stepper, job: JobRow) -> None:
    claim = claim_one(database)

    await stepper.step(claim)

    database.write(lambda conn: due.wake(conn, [job.id]))
    again = database.write(lambda conn: due.claim(conn, owner="another"))
    assert [one.fence for one in again] == [claim.fence + 2], "two steps, and this claim"


async def test_a_step_that_breaks_gives_the_job_back_for_later(
    database: Database, stepper: Stepper, job: JobRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(stepper.actor), "act", broken)

    left = await stepper.step(claim_one(database))

    assert left is None
    assert database.read(lambda conn: jobs.get(conn, job.id)).state is State.PROVISIONING  # type: ignore[union-attr]
    assert lease_owner(database, job.id) is None
    assert database.read(due.count_due) == 0, "it is tried again later"
