"""The checker catches each violation: a run that kept everything is tampered with, one thing at a time."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from shunter_providers.machine.folders import MARK, NodeFolder
from shunter_providers.simulated.books import Books
from shunter_store.sql.database import Database
from sqlalchemy import Connection

from chaos import promises
from chaos.evidence import Told, gather
from chaos.ground import Size, Surroundings, ground
from chaos.programs import SHOUT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@dataclass
class Scene:
    """A copy of what a good run left, to be tampered with."""

    folder: Path
    told: Told

    def broken(self) -> list[str]:
        with closing(Database.connect(f"sqlite:///{self.folder / 'data' / 'shunter.db'}")) as database:
            return promises.broken(gather(database, self.folder / "data", self.folder / "marks", self.told))

    def sql(self, *statements: str) -> None:
        with closing(Database.connect(f"sqlite:///{self.folder / 'data' / 'shunter.db'}")) as database:
            for statement in statements:
                assert database.write(partial(_changed, statement)), statement

    def book(self, **values: object) -> None:
        """Change the cloud's last node."""
        with Books(self.folder / "data" / "simulated" / "sim.sqlite").writing() as page:
            page.change(page.everything()[-1].handle, **values)

    def edit(self, pattern: str, change: Callable[[bytes], bytes]) -> None:
        """Of the first file that fits."""
        path = min(self.folder.glob(pattern))
        path.write_bytes(change(path.read_bytes()))


def _changed(statement: str, conn: Connection) -> int:
    return conn.exec_driver_sql(statement).rowcount


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Told]:
    """A small run without malice. One job is cancelled, one has a budget, one recovers from a lost node."""
    folder = tmp_path_factory.mktemp("good")
    script = [{"fault": "preempted", "delay_s": 1.5, "after": 1}, {"fault": "twin", "after": 2}]
    with ground(folder, Surroundings()) as on:
        played = on.play(1, Size(jobs=3, gangs=1, endless=1, lines=30, acts=0), script)
    assert played.violations == []
    return folder, played.found.told


@pytest.fixture
def scene(good: tuple[Path, Told], tmp_path: Path) -> Scene:
    folder, told = good
    shutil.copytree(folder, tmp_path / "scene", ignore=shutil.ignore_patterns("*.sock", "agent.pyz", "trainer.zip"))
    return Scene(tmp_path / "scene", told)


A_JOB = "(SELECT min(id) FROM jobs WHERE state = 'succeeded')"
A_NODE = "(SELECT min(id) FROM nodes WHERE handle IS NOT NULL)"
A_CLAIM = "(SELECT max(number) FROM chaos_record WHERE what = 'claim')"

BY_SQL = {
    "a job is deleted": ("no_job_is_lost", f"DELETE FROM jobs WHERE id = {A_JOB}"),
    "a job goes back": ("no_job_is_lost", f"UPDATE jobs SET state = 'running' WHERE id = {A_JOB}"),
    "a job fails for nothing": (
        "healthy_jobs_succeed",
        f"UPDATE jobs SET state = 'failed', reason = 'no_capacity' WHERE id = {A_JOB}",
    ),
    "a success that nobody told": (
        "a_cancel_is_never_taken_for_a_failure",
        f"DELETE FROM gang_nodes WHERE job_id = {A_JOB}",
    ),
    "a cancel that nobody wished": (
        "a_cancel_is_never_taken_for_a_failure",
        f"UPDATE jobs SET state = 'cancelled', reason = 'cancelled_by_user' WHERE id = {A_JOB}",
    ),
    "an event is missing": ("events_are_gapless", f"DELETE FROM events WHERE job_id = {A_JOB} AND seq = 2"),
    "an event is counted and not there": (
        "events_are_gapless",
        f"UPDATE jobs SET event_seq = event_seq + 1 WHERE id = {A_JOB}",
    ),
    "a move is kept without its event": (
        "events_are_gapless",
        f"UPDATE events SET type = 'job.note' WHERE job_id = {A_JOB} AND type = 'job.state'",
    ),
    "a move that the table does not have": (
        "every_move_is_legal",
        f"UPDATE transitions SET to_state = 'recovering' WHERE job_id = {A_JOB} AND to_state = 'running'",
    ),
    "a move beside the table of moves": (
        "every_move_is_legal",
        f"DELETE FROM transitions WHERE job_id = {A_JOB} AND to_state = 'stopping'",
    ),
    "a fence goes back": ("every_fence_grows", f"UPDATE chaos_record SET is_now = was WHERE number = {A_CLAIM}"),
    "a singleton's fence goes back": (
        "every_fence_grows",
        "INSERT INTO chaos_record (what, subject, was, is_now) VALUES ('lease', 'sweep', 9, 10), "
        "('lease', 'sweep', 8, 9)",
    ),
    "a claim moves a job twice": (
        "every_fence_grows",
        "INSERT INTO chaos_record (what, subject, was, is_now, fence) "
        "SELECT what, subject, was, is_now, fence FROM chaos_record WHERE what = 'move'",
    ),
    "a row stays open": ("no_node_is_left", f"UPDATE nodes SET state = 'releasing' WHERE id = {A_NODE}"),
    "a node without a row": ("a_row_before_every_create", f"UPDATE nodes SET token = 'other' WHERE id = {A_NODE}"),
    "a row after its node": (
        "a_row_before_every_create",
        f"UPDATE nodes SET intended_at = intended_at + 100 WHERE id = {A_NODE}",
    ),
    "a row closes before its node": (
        "no_row_closes_early",
        f"UPDATE nodes SET gone_at = gone_at - 100 WHERE id = {A_NODE}",
    ),
    "two rows of one node": (
        "one_row_for_a_handle",
        f"UPDATE nodes SET handle = (SELECT handle FROM nodes WHERE id = {A_NODE})",
    ),
    "a bill that is too low": (
        "the_ledger_is_the_bill",
        f"UPDATE nodes SET accrued_usd = accrued_usd - 1 WHERE id = {A_NODE}",
    ),
    "a bill that is too high": (
        "the_ledger_is_the_bill",
        f"UPDATE nodes SET accrued_usd = accrued_usd + 1 WHERE id = {A_NODE}",
    ),
    "two gangs are told to run": (
        "one_gang_is_ordered",
        "UPDATE chaos_record SET was = '1' WHERE what = 'order'",
    ),
    "an older gang is told to run": (
        "one_gang_is_ordered",
        "INSERT INTO chaos_record (what, subject, was, is_now) SELECT what, subject, '0', '0' FROM chaos_record "
        "WHERE what = 'order'",
    ),
    "a log chunk is lost": ("every_log_byte_once", "DELETE FROM log_chunks WHERE offset = 0"),
    "a log chunk comes twice": (
        "every_log_byte_once",
        "INSERT INTO log_chunks SELECT job_id, generation, rank, stream, job_line, first_line, lines, "
        "journal_id || 'x', offset, length, object, first_at, last_at FROM log_chunks LIMIT 1",
    ),
    "a stream counts what is not there": ("every_log_byte_once", "UPDATE log_streams SET bytes = bytes + 1"),
    "a job counts lines that are not there": (
        "every_log_byte_once",
        f"UPDATE jobs SET log_lines = 0 WHERE id = {A_JOB}",
    ),
    "a metric point is lost": ("every_metric_point_once", "DELETE FROM metric_chunks"),
    "a metric point comes twice": (
        "every_metric_point_once",
        "INSERT INTO metric_chunks SELECT job_id, chunk + 100, generation, points, first_arrival, last_arrival "
        "FROM metric_chunks LIMIT 1",
    ),
    "a metric point has another value": (
        "every_metric_point_once",
        "UPDATE metric_chunks SET points = replace(points, '\"steps\":[0', '\"steps\":[7')",
    ),
    "more metric points are there than were numbered": (
        "every_metric_point_once",
        f"UPDATE jobs SET metric_seq = 1 WHERE id = {A_JOB}",
    ),
    "more is acknowledged than was written": ("every_journal_is_whole", "UPDATE nodes SET acknowledged = 100000"),
}


@pytest.mark.parametrize("case", BY_SQL)
def test_what_is_wrong_in_the_database_is_found(case: str, scene: Scene) -> None:
    promise, statement = BY_SQL[case]

    scene.sql(statement)

    assert promise in names(scene.broken())


def test_a_node_that_still_exists_is_found(scene: Scene) -> None:
    scene.book(gone_at=4e9, preempted_at=4e9)

    assert "no_node_is_left" in names(scene.broken())


def test_a_twin_that_nobody_ended_is_found(scene: Scene) -> None:
    scene.book(gone_at=4e9, preempted_at=4e9, asked_at=None)
    scene.sql("UPDATE nodes SET handle = NULL")

    assert "twins_are_ended" in names(scene.broken())


def test_a_cancel_that_was_answered_and_is_not_there_is_found(scene: Scene) -> None:
    scene.told = replace(scene.told, sure=frozenset(scene.told.names))

    assert "no_cancel_is_lost" in names(scene.broken())


def test_a_training_that_recovered_though_nothing_had_happened_is_found(scene: Scene) -> None:
    with Books(scene.folder / "data" / "simulated" / "sim.sqlite").writing() as page:
        for entry in page.everything():
            page.change(entry.handle, preempted_at=4e9)
    scene.sql(f"UPDATE transitions SET to_state = 'recovering' WHERE job_id = {A_JOB} AND to_state = 'running'")

    assert "no_training_is_disturbed" in names(scene.broken())


def test_a_process_of_a_node_that_lives_on_is_found(scene: Scene) -> None:
    node = min((scene.folder / "data" / "simulated" / "sim.nodes").glob("sim-*"))
    left = subprocess.Popen(["sleep", "60"], env={MARK: NodeFolder(node).mark, "PATH": "/usr/bin:/bin"})
    try:
        found = names(scene.broken())
    finally:
        left.kill()
        left.wait()

    assert "no_node_is_left" in found


def test_a_budget_that_is_overrun_is_found(scene: Scene) -> None:
    scene.told = replace(scene.told, budgets=dict.fromkeys(scene.told.budgets, 1e-6))

    assert "budgets_hold" in names(scene.broken())


def test_a_job_that_vanished_is_found(scene: Scene) -> None:
    scene.told = replace(scene.told, names={**scene.told.names, "job_0": "vanished"})

    assert "no_job_is_lost" in names(scene.broken())


LOG = "data/simulated/sim.nodes/*/logs/*/rank-0.stdout"
POINTS = "data/simulated/sim.nodes/*/metrics/*/rank-0.jsonl"
JOURNAL = "data/simulated/sim.nodes/*/journal/journal.jsonl"

FILES: dict[str, tuple[str, str, Callable[[bytes], bytes]]] = {
    "a rank that met another one": ("one_gang_at_a_time", LOG, lambda text: text + SHOUT.encode() + b"\n"),
    "a generation that began twice": ("one_gang_at_a_time", "marks/*.generations", lambda text: text + text),
    "other bytes than were written": ("every_log_byte_once", LOG, lambda text: b"X" + text[1:]),
    "bytes that were written and not kept": ("every_log_byte_once", LOG, lambda text: text + b"more\n"),
    "a metric point that nobody wrote": ("every_metric_point_once", POINTS, lambda text: without_line(text, 2)),
    "a metric point that was not kept": (
        "every_metric_point_once",
        POINTS,
        lambda text: text + b'{"step": 99, "count": 99}\n',
    ),
    "a journal with a gap": ("every_journal_is_whole", JOURNAL, lambda text: without_line(text, 2)),
    "a journal that is torn in the middle": (
        "every_journal_is_whole",
        JOURNAL,
        lambda text: text.replace(b"}\n", b"\n", 2),
    ),
}


def without_line(text: bytes, number: int) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join(lines[:number] + lines[number + 1 :])


@pytest.mark.parametrize("case", FILES)
def test_what_is_wrong_on_a_node_is_found(case: str, scene: Scene) -> None:
    promise, pattern, change = FILES[case]

    scene.edit(pattern, change)

    assert promise in names(scene.broken())


def test_every_promise_has_a_violation_that_is_tried() -> None:
    tried = {promise for promise, *_ in (*BY_SQL.values(), *FILES.values())}
    tried |= {"no_node_is_left", "twins_are_ended", "budgets_hold", "no_training_is_disturbed", "no_cancel_is_lost"}

    assert {promise.__name__ for promise in promises.PROMISES} == tried


def names(violations: list[str]) -> set[str]:
    return {violation.partition(":")[0] for violation in violations}
