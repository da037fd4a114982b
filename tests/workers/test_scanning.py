"""Scans and the reaper, on a real database and over a listing that the test writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, cast

import pytest
from shunter_providers.contract import (
    Capabilities,
    Fault,
    Instance,
    NodeCondition,
    NodeView,
    Offer,
    OfferQuery,
    Provider,
    ProviderError,
)
from shunter_providers.local import LocalProvider
from shunter_providers.registry import Registry
from shunter_schemas.states import NodeState
from shunter_store.node import ledger
from shunter_store.sql.database import Database
from shunter_store.tables import job_due, nodes
from shunter_workers.accounts import Accounts
from shunter_workers.duties.reaper import Reaper
from shunter_workers.duties.scanner import Scanner
from sqlalchemy import update
from support.node_rows import intended, reread_node
from support.store_rows import new_job


class Listing(LocalProvider):
    """The real plugin's contract over a listing that the test writes. A whole scan comes once in a test."""

    capabilities: ClassVar[Capabilities] = replace(LocalProvider.capabilities, scan_interval_s=3600.0)

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        self.views: list[NodeView] = []
        self.terminated: list[str] = []
        self.refuses: set[str] = set()

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        return []

    async def list_owned(self, deployment: str) -> Sequence[NodeView]:
        return self.views

    async def get(self, handle: str) -> NodeView:
        gone = NodeView(handle, None, NodeCondition.GONE)
        return next((view for view in self.views if view.handle == handle), gone)

    async def terminate(self, handle: str) -> bool:
        if handle in self.refuses:
            raise ProviderError(Fault.TRANSIENT, "503")
        self.terminated.append(handle)
        return True


@pytest.fixture
def listing(tmp_path: Path) -> Listing:
    return Listing(Instance("local", "local", {}, str(tmp_path)))


def shown(handle: str, token: str | None = None, condition: NodeCondition = NodeCondition.RUNNING) -> NodeView:
    return NodeView(handle, token, condition, billed_usd_per_hour=0.0)


async def test_a_scan_tells_the_ledger_who_is_there_and_who_is_not(database: Database, listing: Listing) -> None:
    account = (await listing.whoami()).account
    there = intended(database, new_job(database).id, state=NodeState.BOOTING, handle="a", account=account)
    away = intended(database, new_job(database).id, state=NodeState.READY, handle="b", account=account)
    listing.views = [shown("a", there.token)]
    scanner = scanner_of(database, listing)

    await scanner.work()
    once = reread_node(database, away.id)
    await scanner.work()

    assert reread_node(database, there.id).condition == "running"
    assert (once.condition, once.absent_scans) == (None, 1)
    assert (reread_node(database, away.id).condition, reread_node(database, away.id).absent_scans) == ("gone", 2)


async def test_between_scans_the_absence_of_leaving_nodes_is_proven_and_others_are_not_compared(
    database: Database, listing: Listing
) -> None:
    account = (await listing.whoami()).account
    stays = intended(database, new_job(database).id, state=NodeState.READY, handle="stays", account=account)
    leaves = intended(database, new_job(database).id, state=NodeState.READY, handle="leaves", account=account)
    listing.views = [shown("stays", stays.token), shown("leaves", leaves.token)]
    scanner = scanner_of(database, listing)
    await scanner.work()

    await scanner.work()  # nobody leaves: no listing before the plugin's interval is over
    idle = scanner.scans
    database.write(lambda conn: ledger.mark_releasing(conn, [leaves.id], "over"))
    listing.views = [shown("stays", stays.token, NodeCondition.STOPPED), shown("orphan")]
    for _ in range(3):
        await scanner.work()

    assert (idle, scanner.scans) == (1, 4)
    assert (reread_node(database, leaves.id).condition, reread_node(database, leaves.id).absent_scans) == ("gone", 2)
    assert reread_node(database, stays.id).condition == "running"
    assert listing.terminated == []


async def test_a_leaving_node_that_a_listing_shows_again_is_not_proven_gone(
    database: Database, listing: Listing
) -> None:
    account = (await listing.whoami()).account
    leaves = intended(database, new_job(database).id, state=NodeState.RELEASING, handle="leaves", account=account)
    unnamed = intended(database, new_job(database).id, state=NodeState.RELEASING, account=account)
    scanner = scanner_of(database, listing)
    await scanner.work()

    listing.views = [shown("leaves", leaves.token), shown("found", unnamed.token)]
    await scanner.work()

    assert reread_node(database, leaves.id).absent_scans == 0
    assert reread_node(database, unnamed.id).handle == "found"


def scanner_of(database: Database, listing: Listing) -> Scanner:
    """The scanner of the instance that the test's listing is."""
    registry = Registry({"local": Instance("local", "local")}, lambda _: lambda _: cast("Provider", listing))
    return Scanner(database, registry, Accounts(registry), instance="local", deployment="abcdef")


async def test_a_stranger_is_ended_after_two_scans_and_the_known_ones_are_left_alone(
    database: Database, listing: Listing
) -> None:
    known = intended(database, new_job(database).id, state=NodeState.READY, handle="known")
    awaited = intended(database, new_job(database).id, state=NodeState.CREATING)
    views = [shown("known", known.token), shown("early", awaited.token), shown("twin", known.token), shown("orphan")]
    reaper = Reaper(database, "local")

    await reaper.tend(listing, [known, awaited], views, "me")
    after_one = list(listing.terminated)
    await reaper.tend(listing, [known, awaited], views, "me")

    assert after_one == []
    assert listing.terminated == ["twin", "orphan"]


async def test_a_stranger_that_the_provider_refuses_to_end_does_not_keep_the_others(
    database: Database, listing: Listing
) -> None:
    views = [shown("stuck"), shown("orphan")]
    listing.refuses = {"stuck"}
    reaper = Reaper(database, "local")

    for _ in range(2):
        await reaper.tend(listing, [], views, "account")

    assert listing.terminated == ["orphan"]


async def test_a_handle_that_was_recorded_during_the_scan_is_no_stranger(database: Database, listing: Listing) -> None:
    late = intended(database, new_job(database).id, state=NodeState.BOOTING, handle="late")
    reaper = Reaper(database, "local")

    for _ in range(3):
        await reaper.tend(listing, [], [shown("late", late.token)], "me")

    assert listing.terminated == []


async def test_a_row_of_a_job_that_ended_is_terminated_and_closed_on_proof(
    database: Database, listing: Listing
) -> None:
    job = new_job(database)
    row = intended(database, job.id, state=NodeState.RELEASING, handle="late")
    database.write(lambda conn: conn.execute(job_due.delete().where(job_due.c.job_id == job.id)))
    reaper = Reaper(database, "local")

    await reaper.tend(listing, [row], [shown("late")], "me")
    database.write(lambda conn: conn.execute(update(nodes).where(nodes.c.id == row.id).values(absent_scans=2)))
    await reaper.tend(listing, [reread_node(database, row.id)], [], "me")

    assert listing.terminated == ["late"]
    assert reread_node(database, row.id).state is NodeState.GONE


async def test_rows_that_a_job_looks_after_are_not_the_reapers(database: Database, listing: Listing) -> None:
    row = intended(database, new_job(database).id, state=NodeState.RELEASING, handle="mine")

    await Reaper(database, "local").tend(listing, [row], [shown("mine")], "me")

    assert listing.terminated == []
