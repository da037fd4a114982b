"""One exchange with an agent: everything durable once, and only what is current moves the job."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from shunter_schemas.node_sync import Phase
from shunter_schemas.states import Health, NodeState
from shunter_store.job import events, jobs
from shunter_store.node import gang, ledger, sync
from shunter_store.node.gang import End, Outcome
from shunter_store.report import artifacts, checkpoints, logs, metrics
from shunter_store.sql.database import Database
from shunter_store.sql.sqltypes import db_now
from support.exchanges import exchange, facts, is_due, one_node, park, row, set_job, set_node, told, want
from support.node_messages import NodePhase, boot, checkpoint, file_entry, log, points, record
from support.store_rows import new_job, run_gang, tell_to_run

FAILED = {"rank": 0, "failure_class": "user", "reason": "user_error", "message": "ValueError: x", "exit_code": 1}


def test_a_node_is_known_by_its_sync_token_only(database: Database) -> None:
    node = one_node(database)

    found = database.read(lambda conn: sync.node_by_sync_token(conn, f"token:{node.token}"))
    nobody = database.read(lambda conn: sync.node_by_sync_token(conn, "token:\ud800"))

    assert found == row(database, node)
    assert nobody is None


def test_the_first_boot_makes_the_node_ready_and_wakes_the_job(database: Database) -> None:
    node = one_node(database)
    park(database, node)

    answer = exchange(database, node, boot(), phase="idle")

    ready = row(database, node)
    assert ready.state is NodeState.READY
    assert ready.ready_at is not None
    assert ready.boot is not None
    assert ready.boot["hostname"] == "host"
    assert (ready.acknowledged, ready.journal_id, answer.acknowledged) == (1, "journal", 1)
    assert is_due(database)


def test_a_boot_does_not_bring_back_a_node_that_is_being_released(database: Database) -> None:
    node = one_node(database)
    database.write(lambda conn: ledger.mark_releasing(conn, [node.id], "cancelled"))

    exchange(database, node, boot())

    assert (row(database, node).state, row(database, node).ready_at) == (NodeState.RELEASING, None)


def test_the_same_exchange_twice_changes_nothing_but_the_time(database: Database) -> None:
    node = one_node(database)
    everything: list[Any] = [
        boot(1),
        points(2, [1, 2]),
        log(3, node),
        ("rank_up", 4, {"rank": 0, "pid": 7}),
        checkpoint(5, node, 10, loss=1.0),
        ("artifact", 6, {"file": file_entry(node.job_id, "model.bin")}),
        ("progress", 7, {"step": 2, "total_steps": 10, "values": {"loss": 2.0}}),
        ("done", 8, {}),
        ("drained", 9, {}),
    ]
    first = exchange(database, node, *everything)
    once = contents(database, node.job_id)

    second = exchange(database, node, *everything)

    assert second == first
    assert contents(database, node.job_id) == once


def test_an_exchange_that_overlaps_takes_only_what_is_new(database: Database) -> None:
    node = one_node(database)
    exchange(database, node, boot(1), ("note", 2, {"n": 2}), ("note", 3, {"n": 3}))

    answer = exchange(database, node, ("note", 3, {"n": 3}), ("note", 4, {"n": 4}), ("note", 2, {"n": 2}))

    assert answer.acknowledged == 4
    assert [data["n"] for data in told(database, node, "node.note")] == [2, 3, 4]


def test_records_of_a_journal_that_was_given_up_are_kept_once_and_move_nothing(database: Database) -> None:
    node = one_node(database)
    exchange(database, node, boot(1), journal="old")
    exchange(database, node, boot(1), ("note", 2, {"n": "new"}), journal="new")

    late = exchange(database, node, boot(1), ("done", 2, {}), ("note", 3, {"n": "late"}), journal="old", phase="ended")
    again = exchange(database, node, ("note", 3, {"n": "late"}), journal="old", phase="ended")

    kept = row(database, node)
    assert (late.acknowledged, again.acknowledged) == (3, 3)
    assert (late.desired.phase, late.desired.assignment) == (Phase.HOLD, None)
    assert [data["n"] for data in told(database, node, "node.note")] == ["new", "late"]
    assert facts(database, node).nodes[0].ended is None
    assert (kept.journal_id, kept.acknowledged, kept.status["phase"]) == ("new", 2, "running")


def test_a_journal_that_starts_anew_is_taken_from_its_beginning(database: Database) -> None:
    node = one_node(database)
    exchange(database, node, boot(1), ("note", 2, {}), ("note", 3, {}), journal="old")

    answer = exchange(database, node, boot(1), journal="new")

    assert answer.acknowledged == 1
    assert len(told(database, node, "node.boot")) == 2


def test_a_twin_is_sent_away_and_nothing_of_it_is_kept(database: Database) -> None:
    node = one_node(database)
    database.write(lambda conn: ledger.record_handle(conn, node.id, "i-1"))
    exchange(database, node, boot(1), journal="ours", handle="i-1")

    answer = exchange(database, node, boot(1), ("done", 2, {}), journal="twins", handle="i-2")

    assert (answer.acknowledged, answer.desired.phase) == (0, Phase.RELEASE)
    assert "twin of i-1" in answer.desired.reason
    assert (row(database, node).journal_id, row(database, node).acknowledged) == ("ours", 1)
    assert [member.ended for member in facts(database, node).nodes] == [None]


def test_a_machine_that_proves_to_be_the_ledgers_speaks_again_after_its_twin_did(database: Database) -> None:
    node = one_node(database)
    exchange(database, node, boot(1), journal="ours", handle="i-1")
    exchange(database, node, boot(1), journal="twins", handle="i-2")
    database.write(lambda conn: ledger.record_handle(conn, node.id, "i-1"))

    answer = exchange(database, node, ("note", 2, {}), journal="ours", handle="i-1")

    assert (answer.acknowledged, answer.desired.phase) == (2, Phase.RUN)
    assert row(database, node).journal_id == "ours"


@pytest.mark.parametrize(("silent_s", "speaks"), [(30, "new"), (90, "old")])
def test_an_older_journal_speaks_again_when_the_newer_one_is_no_longer_heard(
    database: Database, silent_s: float, speaks: str
) -> None:
    node = one_node(database)
    exchange(database, node, boot(1), journal="old")
    exchange(database, node, boot(1), journal="new")
    heard_at = datetime.now(UTC) - timedelta(seconds=silent_s)
    set_node(database, node, last_sync_at=heard_at)

    exchange(database, node, ("note", 2, {}), journal="old")

    assert row(database, node).journal_id == speaks


def test_a_gap_is_asked_for_once_and_then_told_of(database: Database) -> None:
    node = one_node(database)
    exchange(database, node, boot(1))

    asked = exchange(database, node, ("note", 4, {"n": 4}))
    taken = exchange(database, node, ("note", 4, {"n": 4}))

    assert (asked.acknowledged, taken.acknowledged) == (1, 4)
    assert [data["n"] for data in told(database, node, "node.note")] == [4]
    assert [data["before_seq"] for data in told(database, node, "node.journal_gap")] == [4]


def test_a_gap_that_is_filled_leaves_no_trace(database: Database) -> None:
    node = one_node(database)
    exchange(database, node, boot(1))
    exchange(database, node, ("note", 3, {"n": 3}))

    answer = exchange(database, node, ("note", 2, {"n": 2}), ("note", 3, {"n": 3}))

    assert answer.acknowledged == 3
    assert [data["n"] for data in told(database, node, "node.note")] == [2, 3]
    assert told(database, node, "node.journal_gap") == []


def test_the_last_rank_that_comes_up_wakes_the_job(database: Database) -> None:
    first, second = run_gang(database, new_job(database).id, 2)
    for node in (first, second):
        exchange(database, node, boot(1))
    park(database, first)

    exchange(database, first, ("rank_up", 2, {"rank": 0, "pid": 1}))
    after_first = is_due(database)
    exchange(database, second, ("rank_up", 2, {"rank": 1, "pid": 1}))

    assert (after_first, is_due(database)) == (False, True)
    assert facts(database, first).all_up


@pytest.mark.parametrize(
    ("record_type", "data", "outcome"),
    [("done", {}, Outcome.DONE), ("failed", FAILED, Outcome.USER_FAILURE), ("stopped", {}, Outcome.STOPPED)],
)
def test_the_end_of_a_gang_wakes_the_job_and_is_final(
    database: Database, record_type: str, data: dict[str, Any], outcome: Outcome
) -> None:
    node = one_node(database)
    exchange(database, node, boot(1))
    park(database, node)

    exchange(database, node, (record_type, 2, data))
    woken = is_due(database)
    exchange(database, node, ("done", 3, {}))

    assert woken
    assert gang.verdict(facts(database, node)).outcome is outcome
    assert facts(database, node).nodes[0].ended is End(record_type)


def test_a_failure_keeps_the_first_failing_ranks_words(database: Database) -> None:
    node = one_node(database)

    exchange(database, node, boot(1), ("failed", 2, {**FAILED, "message": "bad\x00\x1b[31m \ud800 text\r\nend"}))

    said = gang.verdict(facts(database, node))
    assert (said.rank, said.exit_code) == (0, 1)
    assert said.message == "bad\ufffd\ufffd[31m \ufffd text\nend"


@pytest.mark.parametrize("generation", [1, 3])
def test_records_of_another_generation_are_kept_and_move_nothing(database: Database, generation: int) -> None:
    node = one_node(database)
    exchange(database, node, boot(1))
    set_job(database, node, generation=2)
    tell_to_run(database, [node], 2)
    park(database, node)
    before = facts(database, node, 2)

    exchange(
        database,
        node,
        record("rank_up", 2, {"rank": 0, "pid": 1}, generation=generation),
        record("failed", 3, FAILED, generation=generation),
        record("drained", 4, generation=generation),
        record("metrics", 5, points(5, [1])[2], generation=generation),
        record("log", 6, log(6, node, generation=generation)[2], generation=generation),
    )

    assert not is_due(database)
    assert facts(database, node, 2) == before
    assert len(told(database, node, "node.failed")) == 1
    assert [one.steps for one in database.read(lambda conn: metrics.series(conn, node.job_id))] == [[1]]
    assert [one.generation for one in database.read(lambda conn: logs.streams(conn, node.job_id))] == [generation]


def test_a_drained_node_is_seen_by_its_record(database: Database) -> None:
    node = one_node(database)
    exchange(database, node, boot(1))
    want(database, node, Phase.STOP)
    park(database, node)

    exchange(database, node, ("stopped", 2, {}), ("drained", 3, {}), phase="stopping")

    assert is_due(database)
    assert facts(database, node).nodes[0].drained


@pytest.mark.parametrize(
    ("phase", "reached", "drained"),
    [("idle", 0, True), ("drained", 1, True), ("drained", 0, False), ("running", 1, False), ("ended", 1, False)],
)
def test_a_node_that_was_told_to_stop_is_seen_at_rest_by_its_status(
    database: Database, phase: NodePhase, reached: int, drained: bool
) -> None:
    node = one_node(database)
    exchange(database, node, boot(1), phase="running")
    want(database, node, Phase.STOP)
    set_node(database, node, desired_at=db_now() - 1)
    park(database, node)

    exchange(database, node, phase=phase, generation=reached)

    assert facts(database, node).nodes[0].drained is drained
    assert is_due(database) is (phase in ("idle", "drained"))


def test_an_idle_node_that_was_not_told_to_stop_is_not_drained(database: Database) -> None:
    node = one_node(database)

    exchange(database, node, boot(1), phase="idle", generation=0)

    assert not facts(database, node).nodes[0].drained


def test_the_first_word_of_an_unreachable_job_wakes_it(database: Database) -> None:
    node = one_node(database)
    exchange(database, node, boot(1))
    set_job(database, node, health=Health.UNREACHABLE)
    park(database, node)

    exchange(database, node)

    assert is_due(database)


def test_a_checkpoint_is_committed_by_the_last_part_of_the_current_generation(database: Database) -> None:
    first, second = run_gang(database, new_job(database).id, 2)
    exchange(database, first, boot(1), checkpoint(2, first, 10, val_loss=2.0))
    before = database.read(lambda conn: checkpoints.latest(conn, first.job_id))

    exchange(database, second, boot(1), checkpoint(2, second, 10))

    committed = database.read(lambda conn: checkpoints.latest(conn, first.job_id))
    assert before is None
    assert committed is not None
    assert (committed.step, committed.values, committed.size) == (10, {"val_loss": 2.0}, 6)
    assert [(file["path"], file["node_rank"]) for file in committed.files] == [("part-0", 0), ("part-1", 1)]
    assert [data["step"] for data in told(database, first, "checkpoint.committed")] == [10]


def test_a_late_part_of_an_older_generation_commits_nothing(database: Database) -> None:
    first, second = run_gang(database, new_job(database).id, 2)
    exchange(database, first, boot(1), checkpoint(2, first, 10))
    set_job(database, first, generation=2)

    exchange(database, second, boot(1), checkpoint(2, second, 10))

    assert database.read(lambda conn: checkpoints.latest(conn, first.job_id)) is None


def test_outputs_logs_metrics_and_progress_go_to_their_tables(database: Database) -> None:
    node = one_node(database)

    exchange(
        database,
        node,
        points(1, range(3)),
        ("artifact", 2, {"file": file_entry(node.job_id, "out/model.bin")}),
        log(3, node, lines=4),
        ("progress", 4, {"step": 2, "total_steps": 9, "values": {"loss": 0.5, "odd": "x"}, "eta_s": 7.0}),
    )

    job_id = node.job_id
    [artifact] = database.read(lambda conn: artifacts.page(conn, job_id))
    [series] = database.read(lambda conn: metrics.series(conn, job_id))
    [stream] = database.read(lambda conn: logs.streams(conn, job_id))
    progress = database.read(lambda conn: metrics.progress(conn, [job_id]))[job_id]
    assert artifact.path == "out/model.bin"
    assert series.means == [0.0, 1.0, 2.0]
    assert (stream.rank, stream.stream, stream.lines, stream.bytes) == (0, "stdout", 4, 10)
    assert (progress.step, progress.total_steps, progress.values, progress.eta_s) == (2, 9, {"loss": 0.5}, 7.0)
    assert [data for data in told(database, node) if data] == []


def test_an_unusable_record_is_quarantined_and_the_rest_goes_on(database: Database) -> None:
    node = one_node(database)

    answer = exchange(
        database,
        node,
        ("metrics", 1, {"points": 3}),
        ("failed", 2, {"failure_class": "nobody"}),
        ("log", 3, {**log(3, node)[2], "object": "job_other/1/logs/0"}),
        ("artifact", 4, {"file": file_entry(node.job_id, "../../etc/passwd")}),
        ("note", 5, {"fine": True}),
    )

    bad = told(database, node, "node.bad_record")
    assert answer.acknowledged == 5
    assert [(data["seq"], data["type"]) for data in bad] == [(1, "metrics"), (2, "failed"), (3, "log"), (4, "artifact")]
    assert all(data["error"] for data in bad)
    assert len(told(database, node, "node.note")) == 1


def test_a_git_commit_is_pinned_by_the_first_attempt(database: Database) -> None:
    node = one_node(database)
    done = {"part": "source", "status": "done"}

    exchange(database, node, ("prepare", 1, {**done, "facts": {"commit": "a" * 40}}))
    exchange(database, node, ("prepare", 2, {**done, "facts": {"commit": "b" * 40}}))

    job = database.read(lambda conn: jobs.get(conn, node.job_id))
    assert job is not None
    assert job.facts == {"source_commit": "a" * 40}


def contents(database: Database, job_id: str) -> list[Any]:
    return database.read(
        lambda conn: [
            jobs.get(conn, job_id),
            events.page(conn, job_id, limit=1000),
            metrics.series(conn, job_id),
            metrics.progress(conn, [job_id]),
            logs.streams(conn, job_id),
            artifacts.page(conn, job_id),
            checkpoints.page(conn, job_id),
            gang.gang_facts(conn, job_id, 1),
        ]
    )
