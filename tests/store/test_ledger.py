"""The node ledger: nothing is created without a committed row, nothing is closed without proof."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import NodeState
from shunter_store.errors import Conflict, NotFound, SlotsTaken, StaleStep
from shunter_store.job import due
from shunter_store.node import ledger
from shunter_store.node.ledger import NodeRow
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import db_now
from shunter_store.tables import nodes as nodes_table
from sqlalchemy import update
from support.store_rows import claim_job, intend, new_job, new_node

DEADLINE = datetime(2030, 1, 1, tzinfo=UTC)
NEVER_BEGUN = {"kind": "never_begun"}
REFUSED = {"kind": "refused"}
ABSENT = {"kind": "absent", "account": "acme", "get": "gone"}


def test_intended_nodes_are_rows_in_the_order_of_their_ranks(database: Database) -> None:
    job = new_job(database)

    made = intend(database, job.id, new_node(0), new_node(1, lease_s=60.0), generation=3)

    assert [(node.rank, node.state, node.generation, node.lease_s) for node in made] == [
        (0, NodeState.INTENDED, 3, None),
        (1, NodeState.INTENDED, 3, 60.0),
    ]
    assert [(node.desired_phase, node.desired_generation, node.run_generation) for node in made] == [("hold", 3, 0)] * 2
    assert database.read(lambda conn: ledger.of_job(conn, job.id)) == made
    assert database.read(lambda conn: ledger.of_instance(conn, "local")) == made


def test_nodes_that_stay_in_a_smaller_gang_get_other_ranks_and_closed_ones_keep_theirs(database: Database) -> None:
    job = new_job(database)
    zero, one, two = intend(database, job.id, new_node(0), new_node(1), new_node(2))
    assert database.write(lambda conn: ledger.close_absent(conn, zero.id, NEVER_BEGUN))

    database.write(lambda conn: ledger.renumber(conn, [(zero.id, 7), (one.id, 0), (two.id, 1)]))

    assert [row(database, node.id).rank for node in (zero, one, two)] == [0, 0, 1]


def test_a_stale_step_intends_nothing(database: Database) -> None:
    job = new_job(database)
    stale = claim_job(database, job.id)
    claim_job(database, job.id)

    with pytest.raises(StaleStep):
        database.write(lambda conn: ledger.intend(conn, stale, job_id=job.id, generation=1, nodes=[new_node()]))

    assert database.read(lambda conn: ledger.of_job(conn, job.id)) == []


def test_a_node_goes_from_intended_over_creating_to_booting(database: Database) -> None:
    job, node = job_with_node(database)
    claim = claim_job(database, job)

    database.write(lambda conn: ledger.begin_create(conn, claim, node.id, DEADLINE))
    creating = row(database, node.id)
    database.write(lambda conn: ledger.record_handle(conn, node.id, "i-1"))
    booting = row(database, node.id)

    assert (creating.state, creating.create_deadline_at, creating.handle) == (NodeState.CREATING, DEADLINE, None)
    assert (booting.state, booting.handle) == (NodeState.BOOTING, "i-1")
    assert booting.created_at is not None


def test_a_create_is_begun_once(database: Database) -> None:
    job, node = job_with_node(database)
    claim = claim_job(database, job)
    database.write(lambda conn: ledger.begin_create(conn, claim, node.id, DEADLINE))

    with pytest.raises(Conflict) as refused:
        database.write(lambda conn: ledger.begin_create(conn, claim, node.id, DEADLINE))

    assert refused.value.slug == "not_intended"


def test_a_stale_step_begins_no_create(database: Database) -> None:
    job, node = job_with_node(database)
    stale = claim_job(database, job)
    claim_job(database, job)

    with pytest.raises(StaleStep):
        database.write(lambda conn: ledger.begin_create(conn, stale, node.id, DEADLINE))

    assert row(database, node.id).state is NodeState.INTENDED


def test_a_node_that_is_being_released_is_created_no_more(database: Database) -> None:
    job, node = job_with_node(database)
    claim = claim_job(database, job)
    database.write(lambda conn: ledger.mark_releasing(conn, [node.id], "cancelled"))

    with pytest.raises(Conflict):
        database.write(lambda conn: ledger.begin_create(conn, claim, node.id, DEADLINE))

    releasing = row(database, node.id)
    assert (releasing.state, releasing.reason) == (NodeState.RELEASING, "cancelled")
    assert releasing.releasing_at is not None


def test_a_handle_is_recorded_though_the_step_is_stale(database: Database) -> None:
    job, node = begun_node(database)
    claim_job(database, job)

    database.write(lambda conn: ledger.record_handle(conn, node.id, "i-1"))

    assert row(database, node.id).handle == "i-1"


def test_a_handle_of_a_closed_row_opens_it_again_to_be_released(database: Database) -> None:
    _, node = begun_node(database)
    assert close(database, node, REFUSED)

    database.write(lambda conn: ledger.record_handle(conn, node.id, "i-late"))

    opened = row(database, node.id)
    assert (opened.state, opened.handle, opened.gone_at) == (NodeState.RELEASING, "i-late", None)


def test_a_handle_of_no_row_is_not_found(database: Database) -> None:
    with pytest.raises(NotFound):
        database.write(lambda conn: ledger.record_handle(conn, "node_nothing", "i-1"))


def test_a_create_in_doubt_is_unknown_until_its_handle_is_found(database: Database) -> None:
    _, node = begun_node(database)

    database.write(lambda conn: ledger.mark_unknown(conn, node.id, "timed out"))
    doubtful = row(database, node.id)
    database.write(lambda conn: ledger.record_handle(conn, node.id, "i-1"))

    assert (doubtful.state, doubtful.reason) == (NodeState.UNKNOWN, "timed out")
    assert row(database, node.id).state is NodeState.BOOTING


@pytest.mark.parametrize(
    ("begun", "handle", "absent_scans", "proof", "suffices"),
    [
        (False, None, 0, NEVER_BEGUN, True),
        (True, None, 0, NEVER_BEGUN, False),
        (True, "i-1", 0, NEVER_BEGUN, False),
        (True, None, 0, REFUSED, True),
        (True, "i-1", 0, REFUSED, False),
        (True, "i-1", 2, ABSENT, True),
        (True, "i-1", 1, ABSENT, False),
        (True, "i-1", 2, ABSENT | {"account": "other"}, False),
        (True, "i-1", 2, ABSENT | {"get": "running"}, False),
        (True, "i-1", 2, {"kind": "absent", "account": "acme"}, False),
        (True, None, 2, {"kind": "absent", "account": "acme"}, True),
        (True, None, 1, {"kind": "absent", "account": "acme"}, False),
        (True, "i-1", 2, {"kind": "gave up"}, False),
        (True, "i-1", 2, {}, False),
    ],
)
def test_a_row_is_closed_only_by_proof_of_absence(
    database: Database, begun: bool, handle: str | None, absent_scans: int, proof: dict[str, str], suffices: bool
) -> None:
    _, node = begun_node(database) if begun else job_with_node(database)
    if handle is not None:
        database.write(lambda conn: ledger.record_handle(conn, node.id, handle))
    set_node(database, node, absent_scans=absent_scans)

    closed = close(database, node, proof)

    assert closed is suffices
    assert (row(database, node.id).state is NodeState.GONE) is suffices
    assert not close(database, node, proof)


def test_a_node_that_ever_synced_was_begun_whatever_its_row_says(database: Database) -> None:
    _, node = job_with_node(database)
    set_node(database, node, last_sync_at=DEADLINE)

    assert not close(database, node, NEVER_BEGUN)
    assert not close(database, node, REFUSED)


def test_slots_are_held_until_the_row_is_closed(database: Database) -> None:
    job = new_job(database)
    [node] = intend(database, job.id, new_node(slot_kind="cpu", slot_indices=[0, 2]))
    while_held = free(database)

    close(database, node, NEVER_BEGUN)

    assert while_held == [1, 3]
    assert free(database) == [0, 1, 2, 3]


def test_an_intent_for_a_taken_slot_writes_nothing(database: Database) -> None:
    first, second = new_job(database), new_job(database)
    intend(database, first.id, new_node(slot_kind="cpu", slot_indices=[1]))

    with pytest.raises(SlotsTaken) as refused:
        intend(database, second.id, *(new_node(rank, slot_kind="cpu", slot_indices=[rank]) for rank in range(2)))

    assert refused.value.taken == [1]
    assert database.read(lambda conn: ledger.of_job(conn, second.id)) == []
    assert free(database) == [0, 2, 3]


def test_kinds_and_instances_do_not_share_slots(database: Database) -> None:
    job = new_job(database)
    intend(
        database,
        job.id,
        new_node(0, slot_kind="cpu", slot_indices=[0]),
        new_node(1, slot_kind="gpu", slot_indices=[0]),
        new_node(2, slot_kind="cpu", slot_indices=[0], instance="other"),
    )

    assert free(database) == [1, 2, 3]


def test_eight_threads_race_for_slots_and_none_is_given_twice(database_url: str) -> None:
    database = Database.connect(database_url, readers=8)
    claims = [claim_job(database, new_job(database).id) for _ in range(8)]
    start = threading.Barrier(8)

    def grab(claim: due.Claim) -> bool:
        nodes = [new_node(slot_kind="cpu", slot_indices=[0, 1])]
        start.wait()
        try:
            database.write(lambda conn: ledger.intend(conn, claim, job_id=claim.job_id, generation=1, nodes=nodes))
        except SlotsTaken:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(grab, claims))
    taken = free(database)
    rows = database.read(lambda conn: ledger.of_instance(conn, "local"))
    database.close()

    assert won.count(True) == 1
    assert taken == [2, 3]
    assert [node.slot_indices for node in rows] == [[0, 1]]


def test_what_is_wanted_of_nodes_is_kept_and_repeating_it_changes_nothing(database: Database) -> None:
    _, node = job_with_node(database)
    stop_at = DEADLINE + timedelta(hours=1)
    want(database, node, Phase.RUN, 1, assignment={"job_id": "j"}, stop_at=stop_at)
    running = row(database, node.id)

    want(database, node, Phase.RUN, 1, assignment={"job_id": "other"})
    same = row(database, node.id)
    want(database, node, Phase.STOP, 1, reason="cancelled")
    stopping = row(database, node.id)

    assert (running.desired_phase, running.desired_generation, running.run_generation) == ("run", 1, 1)
    assert running.assignment == {"job_id": "j"}
    assert same == running
    assert (stopping.desired_phase, stopping.desired_reason, stopping.run_generation) == ("stop", "cancelled", 1)
    assert stopping.stop_at == stop_at
    assert stopping.desired_at >= running.desired_at


def test_the_cost_is_the_sum_of_intervals_at_billed_rates(database: Database) -> None:
    job = new_job(database)
    closed, live, never = intend(
        database, job.id, *(new_node(rank, billed_usd_per_hour=2.0) for rank in range(3)), generation=1
    )
    for node in (closed, live):
        claim = claim_job(database, job.id)
        database.write(lambda conn, claim=claim, node=node: ledger.begin_create(conn, claim, node.id, DEADLINE))  # type: ignore[misc]
        database.write(lambda conn, node=node: ledger.record_handle(conn, node.id, node.id))  # type: ignore[misc]
    set_node(database, closed, accrued_at=db_now() - 1800, absent_scans=2)
    set_node(database, live, accrued_at=db_now() - 3600, accrued_usd=0.5)

    close(database, closed, ABSENT)
    set_node(database, closed, gone_at=db_now() - 100)
    cost = database.read(lambda conn: ledger.ledger_cost(conn, job.id))

    assert row(database, never.id).billed_usd_per_hour == 2.0
    assert cost == pytest.approx(1.0 + 2.5, abs=0.01)


def test_a_create_that_was_refused_costs_nothing(database: Database) -> None:
    job, node = begun_node(database, billed_usd_per_hour=36_000.0)
    set_node(database, node, accrued_at=db_now() - 100)

    close(database, node, REFUSED)

    assert database.read(lambda conn: ledger.ledger_cost(conn, job)) == 0.0


def test_a_job_without_nodes_costs_nothing(database: Database) -> None:
    assert database.read(lambda conn: ledger.ledger_cost(conn, "job_nothing")) == 0.0


def job_with_node(database: Database, **given: Any) -> tuple[str, NodeRow]:
    job = new_job(database)
    [node] = intend(database, job.id, new_node(**given))
    return job.id, node


def begun_node(database: Database, **given: Any) -> tuple[str, NodeRow]:
    job, node = job_with_node(database, **given)
    claim = claim_job(database, job)
    database.write(lambda conn: ledger.begin_create(conn, claim, node.id, DEADLINE))
    return job, node


def close(database: Database, node: NodeRow, proof: dict[str, str]) -> bool:
    return database.write(lambda conn: ledger.close_absent(conn, node.id, proof))


def free(database: Database) -> list[int]:
    return database.read(lambda conn: ledger.free_slots(conn, "local", "cpu", 4))


def row(database: Database, node_id: str) -> NodeRow:
    found = database.read(lambda conn: ledger.get(conn, node_id))
    assert found is not None
    return found


def set_node(database: Database, node: NodeRow, **values: Any) -> None:
    its = nodes_table.c.id == node.id
    database.write(lambda conn: conn.execute(update(nodes_table).where(its).values(**values)))


def want(database: Database, node: NodeRow, phase: Phase, generation: int, **given: Any) -> None:
    database.write(lambda conn: ledger.want(conn, [node.id], phase=phase, generation=generation, **given))
