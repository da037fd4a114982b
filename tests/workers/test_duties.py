"""What one process at a time does beside stepping jobs, on a real database."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from shunter_providers.contract import Instance
from shunter_providers.registry import Registry
from shunter_schemas.job import load_job
from shunter_schemas.node_sync import CheckpointUploaded, FileEntry
from shunter_schemas.states import Health, NodeState
from shunter_store.accounts import providers
from shunter_store.installation import leases
from shunter_store.job import due, jobs, outbox
from shunter_store.job.lifecycle import Trigger
from shunter_store.report import checkpoints
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import now_as_time
from shunter_store.storage.objects import ObjectStore
from shunter_store.tables import job_due
from shunter_workers.claiming import AT_ONCE, Claimer
from shunter_workers.duties.collector import Collector
from shunter_workers.duties.pruner import Pruner, kept_by
from shunter_workers.duties.relay import Relay
from shunter_workers.duties.snapshot import Snapshot
from shunter_workers.duties.sweep import Sweep
from shunter_workers.hints import Hints
from shunter_workers.owners import dead_among, owner_name
from shunter_workers.singletons import Duty, Singleton
from shunter_workers.undertaker import Undertaker
from sqlalchemy import select, update
from support.documents import tiny_lm
from support.node_rows import intended
from support.store_rows import advance, claim_one, new_job
from support.views import document


class Broker:
    """Stands where the broker's door is, and counts what goes through."""

    def __init__(self, *, up: bool = True) -> None:
        self.up = up
        self.published: list[int] = []

    async def publish(self, wanted: int) -> bool:
        if self.up:
            self.published.append(wanted)
        return self.up

    @property
    def hints(self) -> Hints:
        return cast("Hints", self)


def dead_owner() -> str:
    """A lease holder that was killed on this machine."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    realm = owner_name().rsplit("/", 2)[0]
    started = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()
    return f"{realm}/{process.pid}/{started}"


def claimer(database: Database, step: Any) -> Claimer:
    return Claimer(database, step, owner=owner_name(), lease_s=30)


async def nothing(_: object) -> None:
    """A step that does nothing."""


# --- relay and sweep ---------------------------------------------------------------------------------------------


async def test_the_relay_sends_what_is_in_the_outbox_and_forgets_it(database: Database) -> None:
    new_job(database)
    new_job(database)
    broker = Broker()
    relay = Relay(database, broker.hints, claimer(database, nothing))

    busy_s = await relay.work()
    await relay.work()

    assert broker.published == [2]
    assert database.read(lambda conn: outbox.take(conn, 10)) == []
    assert busy_s == 0.05


async def test_the_relay_does_the_work_itself_while_the_broker_is_away(database: Database) -> None:
    job = new_job(database)
    stepped = asyncio.Event()

    async def step(claim: due.Claim) -> None:
        assert claim.job_id == job.id
        stepped.set()

    await Relay(database, Broker(up=False).hints, claimer(database, step)).work()

    await asyncio.wait_for(stepped.wait(), 5)
    assert len(database.read(lambda conn: outbox.take(conn, 10))) == 1, "the hint stays until it can be sent"


async def test_the_sweep_publishes_hints_for_what_is_due_and_for_nothing_else(database: Database) -> None:
    new_job(database)
    claim_one(database)
    new_job(database)
    broker = Broker()

    await Sweep(database, broker.hints, lease_s=30, unreachable_after_s=60).work()

    assert broker.published == [1]


async def test_the_sweep_wakes_a_running_job_whose_node_fell_silent(database: Database) -> None:
    silent, fine = new_job(database), new_job(database)
    now = database.read(lambda conn: conn.execute(select(now_as_time())).scalar_one())
    for job, age_s in ((silent, 61), (fine, 5)):
        intended(database, job.id, state=NodeState.READY, last_sync_at=now - timedelta(seconds=age_s))
        advance(database, job.id, Trigger.PLANNED, Trigger.NODES_READY, Trigger.TRAINER_UP)
    database.write(lambda conn: conn.execute(update(job_due).values(next_at=None, lease_until=None)))

    await Sweep(database, Broker().hints, lease_s=30, unreachable_after_s=60).work()

    woken = database.read(lambda conn: conn.execute(select(job_due.c.job_id).where(job_due.c.next_at.is_not(None))))
    assert database.read(lambda conn: jobs.get(conn, silent.id)).health is Health.OK  # type: ignore[union-attr]
    assert list(woken.scalars()) == [silent.id]


# --- claiming ----------------------------------------------------------------------------------------------------


async def test_a_process_steps_a_few_jobs_at_once_until_nothing_is_due(database: Database) -> None:
    made = {new_job(database).id for _ in range(3 * AT_ONCE)}
    running, most, seen = 0, 0, []

    async def step(claim: due.Claim) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        seen.append(claim.job_id)
        running -= 1

    pulling = claimer(database, step)
    await pulling.pull()
    await _until(lambda: len(seen) == len(made))
    await pulling.close(5)

    assert sorted(seen) == sorted(made), "each once"
    assert most == AT_ONCE


async def test_a_closed_claimer_takes_nothing_and_waits_for_what_runs(database: Database) -> None:
    new_job(database)
    done = False

    async def step(_: due.Claim) -> None:
        nonlocal done
        await asyncio.sleep(0.05)
        done = True

    pulling = claimer(database, step)
    await pulling.pull()
    await pulling.close(5)
    new_job(database)

    assert done
    assert await pulling.pull() == 0


# --- leases ------------------------------------------------------------------------------------------------------


async def test_one_process_at_a_time_does_a_duty(database: Database) -> None:
    done: list[str] = []

    def duty(name: str) -> Duty:
        async def work() -> float:
            done.append(name)
            return 0.01

        return Duty("relay", work)

    first = Singleton(database, duty("first"), owner="first", ttl_s=1.0)
    second = Singleton(database, duty("second"), owner="second", ttl_s=1.0)
    tasks = [asyncio.create_task(first.run())]
    await _until(lambda: done)
    tasks.append(asyncio.create_task(second.run()))
    await asyncio.sleep(0.5)
    only_first = set(done)
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    await first.release()
    await _until(lambda: "second" in done)
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)

    assert only_first == {"first"}


async def test_a_duty_that_fails_is_done_again(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    times = 0

    async def work() -> float:
        nonlocal times
        times += 1
        if times == 1:
            raise RuntimeError("once")
        return 10.0

    singleton = Singleton(database, Duty("sweep", work), owner="me", ttl_s=3.0)
    task = asyncio.create_task(singleton.run())
    await _until(lambda: times == 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert "sweep failed" in caplog.text


def test_only_the_dead_of_this_machine_count_as_dead() -> None:
    dead, elsewhere = dead_owner(), f"other-boot/pid:[1]/{os.getpid()}/1"

    assert dead_among([dead, elsewhere, owner_name(), "nonsense", ""]) == {dead}


async def test_what_a_killed_process_held_is_free_at_once(database: Database) -> None:
    dead, job = dead_owner(), new_job(database)
    database.write(lambda conn: due.claim(conn, owner=dead, limit=1))
    database.write(lambda conn: leases.acquire(conn, "relay", dead, 15))
    database.write(lambda conn: leases.acquire(conn, "sweep", owner_name(), 15))

    await Undertaker(database).work()

    assert [claim.job_id for claim in database.write(lambda conn: due.claim(conn, owner="me", limit=9))] == [job.id]
    assert database.write(lambda conn: leases.acquire(conn, "relay", "me", 15)) is not None
    assert database.write(lambda conn: leases.acquire(conn, "sweep", "me", 15)) is None


# --- pruning and snapshots ---------------------------------------------------------------------------------------


async def test_checkpoints_beyond_what_the_document_keeps_are_deleted(database: Database, tmp_path: Path) -> None:
    workload = {**document()["workload"], "checkpoint": {"pattern": "c-*", "complete_file": "done", "keep": 2}}
    job = new_job(database, spec=document(workload=workload))
    store = ObjectStore(f"file://{tmp_path}/objects")
    for step in (1, 2, 3):
        key = f"{job.id}/1/checkpoints/{step}"
        store.put(key, [b"x"])
        part = CheckpointUploaded(
            step=step, node_rank=0, files=[FileEntry(path="w", size=1, sha256="0" * 64, object=key)]
        )
        database.write(lambda conn, part=part: checkpoints.add_part(conn, job.id, 1, part, num_nodes=1))  # type: ignore[misc]

    await Pruner(database).work()
    await Collector(database, f"file://{tmp_path}/objects").work()

    kept = [row.step for row in database.read(lambda conn: checkpoints.page(conn, job.id)) if row.pruned_at is None]
    assert kept == [3, 2]
    assert [store.exists(f"{job.id}/1/checkpoints/{step}") for step in (1, 2, 3)] == [False, True, True]


def test_a_training_keeps_the_best_one_too_if_it_says_so() -> None:
    training = tiny_lm()
    training["workload"]["checkpoint"] = {"every_steps": 10, "keep": 3, "keep_best": "val_loss"}

    assert kept_by(load_job(training)) == (3, "val_loss")
    assert kept_by(load_job(document())) == (1, None)


async def test_health_and_offers_of_every_instance_are_written_down(database: Database, tmp_path: Path) -> None:
    instances = {
        "good": Instance("good", "local", {"cpu_slots": 3}, str(tmp_path)),
        "bad": Instance("bad", "local", {"cpu_slots": 0}, str(tmp_path)),
    }

    await Snapshot(database, Registry(instances)).work()

    bad, good = database.read(providers.list_all)
    assert (good.ok, good.offers[0]["cpu_slots"], good.capabilities["bills"]) == (True, 3, False)
    assert good.account
    assert (bad.ok, bad.capabilities) == (False, {})
    assert "cpu_slots" in bad.detail


async def _until(done: Any, within_s: float = 5.0) -> None:
    async with asyncio.timeout(within_s):
        while not done():  # noqa: ASYNC110 - a test waits for what it cannot make an event of
            await asyncio.sleep(0.01)
