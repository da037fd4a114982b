"""The journal: gapless, durable, and whole again after any crash."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from shunter_agent.keeping.journal import Batch, Entry, Journal
from shunter_agent.keeping.state import State


def entries(count: int, type: str = "progress", text: str = "") -> list[Entry]:
    return [Entry(type, 1, {"step": number, "text": text}) for number in range(count)]


def seqs(batch: Batch) -> list[int]:
    return [json.loads(line)["seq"] for line in batch.records]


def test_records_are_numbered_without_a_gap_across_openings(tmp_path: Path) -> None:
    first = Journal(str(tmp_path))
    first.append(entries(3))

    second = Journal(str(tmp_path))
    second.append(entries(2))

    assert second.journal_id == first.journal_id
    assert [record["seq"] for record in second.records()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "torn", [b'{"seq":4,"at":1.0,"ty', b"\0" * 4096, b'{"seq":4}', b'{"seq":9,"type":"x"}\n{"seq":10}\n']
)
def test_what_a_crash_tore_at_the_end_is_cut(tmp_path: Path, torn: bytes) -> None:
    Journal(str(tmp_path)).append(entries(3))
    path = tmp_path / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + torn)

    journal = Journal(str(tmp_path))

    assert path.read_bytes() == whole
    assert journal.append(entries(1))[0]["seq"] == 4


def test_a_journal_without_a_readable_header_is_set_aside(tmp_path: Path) -> None:
    old = Journal(str(tmp_path))
    old.append(entries(3))
    (tmp_path / "journal.jsonl").write_bytes(b"\0" * 100)

    journal = Journal(str(tmp_path))

    assert journal.journal_id != old.journal_id
    assert journal.last_seq == 0
    assert len(list(tmp_path.glob("journal.jsonl.unreadable-*"))) == 1


def test_a_batch_is_bounded_by_records_and_bytes_but_never_empty(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    journal.append(entries(10) + entries(1, text="x" * 5000) + entries(1))

    assert seqs(journal.batch(records=4)) == [1, 2, 3, 4]
    assert seqs(journal.batch(size=300)) == [1, 2, 3]
    assert journal.acknowledge(journal.journal_id, 10)
    assert seqs(journal.batch(size=300)) == [11]


def test_the_cursor_moves_back_when_the_service_has_lost_records(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    journal.append(entries(5))

    journal.acknowledge(journal.journal_id, 5)
    assert not journal.pending
    journal.acknowledge(journal.journal_id, 2)

    assert seqs(journal.batch()) == [3, 4, 5]


def test_records_that_the_disk_lost_are_noticed_and_a_new_journal_begins(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    journal.append(entries(2))
    before = journal.journal_id

    assert not journal.acknowledge(journal.journal_id, 7)
    journal.begin_anew()

    assert journal.journal_id != before
    assert journal.acknowledge(before, 7)
    assert journal.append(entries(1))[0]["seq"] == 1


def test_acknowledged_records_are_cut_off_and_the_rest_keeps_its_numbers(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    journal.append(entries(100))
    size = (tmp_path / "journal.jsonl").stat().st_size
    journal.acknowledge(journal.journal_id, 40)
    assert not journal.worth_cutting(100)
    journal.acknowledge(journal.journal_id, 90)
    assert journal.worth_cutting(100)
    assert not journal.worth_cutting(size)

    journal.compact()

    assert (tmp_path / "journal.jsonl").stat().st_size < size / 5
    assert journal.append(entries(1))[0]["seq"] == 101
    assert seqs(journal.batch()) == list(range(91, 102))
    assert seqs(Journal(str(tmp_path)).batch()) == list(range(91, 102))


def test_text_that_is_no_unicode_becomes_valid_json(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))

    journal.append([Entry("x", 1, {"a": "\udc80 \0 \u2028", "b\udcff": [float("nan"), float("inf"), 1.5]})])

    line = journal.batch().records[0]
    assert json.loads(line.decode("utf-8"))["data"] == {"a": "? \0 \u2028", "b?": [None, None, 1.5]}


FULL_DISK = """
import resource, sys
from shunter_agent.keeping.journal import Entry, Journal
from shunter_agent.keeping.recorder import Recorder
from shunter_agent.keeping.state import State

journal = Journal(sys.argv[1])
recorder = Recorder(journal, State(), lambda within_s: None)
recorder.record("boot", 0, {})
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
for number in range(20):
    recorder.record("progress", 1, {"step": number, "text": "x" * 100})
recorder.record("rank_exit", 1, {})
recorder.record("done", 1, {})
assert recorder.delayed
assert journal.dropped > 10
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
recorder.retry()
assert not recorder.delayed
records = list(Journal(sys.argv[1]).records())
assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
assert [record["type"] for record in records[-2:]] == ["rank_exit", "done"]
assert records[-1]["at"] >= records[-2]["at"]
"""


def test_a_full_disk_drops_metrics_and_only_delays_what_matters(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True)

    assert ended.returncode == 0, ended.stderr


def test_the_state_is_the_same_from_the_journal_and_from_its_saved_form(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "journal"))
    state = State()
    saved = tmp_path / "state.json"
    log = {"rank": 0, "stream": "stdout", "offset": 0, "length": 10}
    for entry in (Entry("log", 1, log), Entry("done", 1, {}), Entry("checkpoint", 1, {"step": 5})):
        state.apply(journal.append([entry])[0])
    state.save(str(saved), journal.journal_id)
    journal.append([Entry("log", 1, {**log, "offset": 10, "length": 5}), Entry("failed", 1, {})])

    found = State.load(str(saved), journal.journal_id, journal.records()).of(1)

    assert (found.end, found.drained, found.logs, found.checkpoints) == ("done", False, {"0-stdout": 15}, [5])


def test_the_state_outlives_a_journal_that_began_anew(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "journal"))
    state = State()
    for entry in (Entry("done", 1, {}), Entry("drained", 1, {}), Entry("stopped", 2, {})):
        state.apply(journal.append([entry])[0])
    state.save(str(tmp_path / "state.json"), journal.journal_id)
    journal.begin_anew()
    journal.append([Entry("drained", 2, {})])

    found = State.load(str(tmp_path / "state.json"), journal.journal_id, journal.records())

    assert [(number, one.end, one.drained) for number, one in found.items()] == [
        (1, "done", True),
        (2, "stopped", True),
    ]
