"""Nodes of all jobs: what bills now, page by page; and how far each provider's part can be relied on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from shunter_schemas.states import NodeState
from shunter_store.accounts import readings
from shunter_store.accounts.readings import Reading
from shunter_store.node import fleet
from shunter_store.node.fleet import Billing, NodeFilter
from shunter_store.sql.database import Database
from shunter_store.tables import nodes
from sqlalchemy import update
from support.store_rows import intend, new_job, new_node

NOW = datetime.now(UTC)


def node(database: Database, job_id: str, rate: float = 0.0, instance: str = "east", **values: Any) -> str:
    """A node, its row as given."""
    [row] = intend(database, job_id, new_node(instance=instance, billed_usd_per_hour=rate))
    if values:
        database.write(lambda conn: conn.execute(update(nodes).where(nodes.c.id == row.id).values(**values)))
    return row.token


def tokens(database: Database, where: NodeFilter, **page: Any) -> list[str]:
    return [one.row.token for one in database.read(lambda conn: fleet.page(conn, where, **{"limit": 100, **page}))]


def test_what_may_bill_is_every_open_row_whose_create_call_began(database: Database) -> None:
    job = new_job(database)
    begun: dict[str, Any] = {"create_deadline_at": NOW, "accrued_at": NOW}
    ready = node(database, job.id, 2.5, state=NodeState.READY, handle="a", **begun)
    doubtful = node(database, job.id, 2.5, state=NodeState.UNKNOWN, **begun)
    leaving = node(database, job.id, 2.5, "west", state=NodeState.RELEASING, handle="b", **begun)
    node(database, job.id, 2.5)  # only intended
    node(database, job.id, 0.0, state=NodeState.READY, handle="c", **begun)  # costs nothing
    node(database, job.id, 2.5, state=NodeState.GONE, handle="d", gone_at=NOW)

    found = tokens(database, NodeFilter(billing=True))

    assert set(found) == {ready, doubtful, leaving}
    assert database.read(fleet.billing) == {"east": Billing(2, 5.0), "west": Billing(1, 2.5)}


def test_pages_go_from_the_newest_to_the_oldest_without_a_gap(database: Database) -> None:
    job = new_job(database)
    made = [node(database, job.id, intended_at=NOW - timedelta(seconds=number // 2)) for number in range(7)]
    found: list[fleet.FleetNode] = []

    while True:
        before = (found[-1].row.intended_at, found[-1].row.id) if found else None
        page = database.read(lambda conn, before=before: fleet.page(conn, NodeFilter(), limit=2, before=before))  # type: ignore[misc]
        found += page
        if len(page) < 2:
            break

    assert sorted(one.row.token for one in found) == sorted(made)
    assert [one.row.intended_at for one in found] == sorted((one.row.intended_at for one in found), reverse=True)


def test_nodes_are_chosen_by_provider_state_job_and_project(database: Database) -> None:
    one, other = new_job(database, project="lab"), new_job(database)
    mine = node(database, one.id, instance="west", state=NodeState.READY)
    node(database, other.id)

    for where in (
        NodeFilter(instance="west"),
        NodeFilter(state=NodeState.READY),
        NodeFilter(job_id=one.id),
        NodeFilter(project="lab"),
    ):
        assert tokens(database, where) == [mine]
    assert database.read(lambda conn: fleet.billing(conn, project="lab")) == {}


def reading(database: Database) -> Reading:
    [found] = database.read(readings.list_all)
    return found


def test_a_failure_keeps_what_was_read_and_says_since_when_it_fails(database: Database) -> None:
    def read(at: datetime) -> None:
        database.write(
            lambda conn: readings.record(
                conn, "east", account="acme", bills=True, stale_after_s=60.0, at=at, strangers=[{"handle": "x"}]
            )
        )

    def fail() -> None:
        database.write(
            lambda conn: readings.record_failure(conn, "east", bills=True, stale_after_s=60.0, error="auth: no")
        )

    read(NOW)
    good = reading(database)
    fail()
    first = reading(database)
    fail()
    second = reading(database)
    read(NOW + timedelta(seconds=30))
    again = reading(database)

    assert good.is_good(NOW + timedelta(seconds=30))
    assert (first.read_at, first.strangers, first.error) == (good.read_at, [{"handle": "x"}], "auth: no")
    assert not first.is_good(NOW)
    assert first.failing_since == second.failing_since is not None
    assert again.failing_since is None
    assert again.is_good(NOW + timedelta(seconds=60))
    assert not again.is_good(NOW + timedelta(seconds=91)), "nothing is claimed by a reading that is too old"


def test_an_instance_that_was_never_read_is_not_good(database: Database) -> None:
    database.write(lambda conn: readings.record_failure(conn, "east", bills=True, stale_after_s=60.0, error="no"))

    found = reading(database)

    assert (found.read_at, found.strangers) == (None, [])
    assert not found.is_good(NOW)
