"""Moves in the store: a wish that is kept, joined and withdrawn, and a document that changes and is not forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from shunter_store.errors import Conflict, RevisionChanged
from shunter_store.job import documents, events, steps, wishes
from shunter_store.job.jobs import JobRow
from shunter_store.job.lifecycle import Trigger
from shunter_store.job.steps import Change, Moved
from shunter_store.sql.database import Database
from support.store_rows import advance, claim_job, new_job, reread

DDP: dict[str, Any] = {"version": "1", "strategy": {"kind": "ddp"}, "labels": {}}
FSDP: dict[str, Any] = {"strategy": {"kind": "fsdp"}}
RUNNING = (Trigger.PLANNED, Trigger.NODES_READY, Trigger.TRAINER_UP)


def ask(database: Database, job_id: str, parts: dict[str, Any], revisions: set[int] | None = None) -> JobRow:
    return database.write(
        lambda conn: wishes.request_move(conn, job_id, lambda _: parts, by="ann", revisions=revisions)
    )


def take_over(database: Database, job_id: str, parts: dict[str, Any], last_generation: int = 1) -> JobRow:
    claim = claim_job(database, job_id)
    change = Change(moved=Moved(parts, last_generation), next_in_s=0.0)
    return database.write(lambda conn: steps.apply(conn, claim, change))


def told(database: Database, job_id: str) -> list[tuple[str, dict[str, Any]]]:
    return [(one.type, one.data) for one in database.read(lambda conn: events.page(conn, job_id))][1:]


def test_a_wish_is_kept_once_and_told(database: Database) -> None:
    job = new_job(database, spec=DDP)

    asked = ask(database, job.id, FSDP)
    again = ask(database, job.id, FSDP)

    assert (asked.move_wish, asked.revision) == (FSDP, job.revision + 1)
    assert asked.move_requested_at is not None
    assert again == asked
    assert told(database, job.id) == [("job.move_requested", {"by": "ann", **FSDP})]


def test_a_wish_for_what_is_there_already_withdraws_the_one_before(database: Database) -> None:
    job = new_job(database, spec=DDP)
    ask(database, job.id, FSDP)

    back = ask(database, job.id, {})

    assert (back.move_wish, back.move_requested_at) == (None, None)
    assert told(database, job.id)[-1] == ("job.move_withdrawn", {"by": "ann"})


def test_a_wish_is_refused_where_the_job_changed_or_is_about_to_end(database: Database) -> None:
    job = new_job(database, spec=DDP)

    with pytest.raises(RevisionChanged):
        ask(database, job.id, FSDP, {job.revision + 5})
    database.write(lambda conn: wishes.request_cancel(conn, job.id, by="ann"))
    with pytest.raises(Conflict) as refused:
        ask(database, job.id, FSDP)

    assert refused.value.slug == "job_stopping"
    assert reread(database, job.id).move_wish is None


def test_the_document_changes_and_what_ran_before_stays_to_be_seen(database: Database) -> None:
    job = new_job(database, spec=DDP)
    advance(database, job.id, *RUNNING)
    ask(database, job.id, FSDP)

    moved = take_over(database, job.id, FSDP)

    [before] = database.read(lambda conn: documents.replaced(conn, job.id))
    assert moved.spec == {**DDP, **FSDP}
    assert (moved.document_version, moved.move_wish, moved.move_requested_at) == (2, None, None)
    assert (before.version, before.last_generation, before.spec) == (1, 1, DDP)
    assert told(database, job.id)[-1] == ("job.moved", {"document": 2, **FSDP})


def test_a_wish_that_came_while_the_step_ran_is_not_lost(database: Database) -> None:
    job = new_job(database, spec=DDP)
    later = {**FSDP, "resources": {"gpus": 4}}
    ask(database, job.id, later)

    moved = take_over(database, job.id, FSDP)

    assert moved.spec["strategy"] == {"kind": "fsdp"}
    assert moved.move_wish == later


def test_labels_that_changed_while_the_step_ran_stay_changed(database: Database) -> None:
    job = new_job(database, spec=DDP)
    ask(database, job.id, FSDP)
    claim = claim_job(database, job.id)

    def relabel(conn: Any) -> None:
        conn.exec_driver_sql('UPDATE jobs SET spec = \'{"version":"1","strategy":{"kind":"ddp"},"labels":{"a":"b"}}\'')

    database.write(relabel)
    moved = database.write(lambda conn: steps.apply(conn, claim, Change(moved=Moved(FSDP, 1))))

    assert moved.spec == {"version": "1", "labels": {"a": "b"}, **FSDP}


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_move_leads_to_recovering_from_every_state_with_nodes(database: Database, depth: int) -> None:
    job = new_job(database, spec=DDP)
    advance(database, job.id, *RUNNING[:depth])

    moved = advance(database, job.id, Trigger.MOVE)

    assert moved.state == "recovering"
