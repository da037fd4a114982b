"""Reading what an agent sent: nothing that it can send stops the exchange for ever."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from shunter_schemas.node_sync import Record
from shunter_store.node.sync_reading import MOST_RECORDS, Told, read_request, sort_records
from shunter_store.report.texts import LONGEST_TEXT, clean, clean_text
from shunter_store.sql.sqltypes import dump_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
TYPES = ("boot", "prepare", "rank_up", "rank_exit", "done", "failed", "metrics", "progress", "checkpoint", "log", "x")


def test_a_request_is_read() -> None:
    request = read_request(body({"seq": 1, "at": 1.5, "type": "note", "data": {"a": "é"}}))

    assert [(one.seq, one.type, one.data) for one in request.records] == [(1, "note", {"a": "é"})]


@pytest.mark.parametrize(
    "bad",
    [
        {"seq": 2, "at": "noon", "type": "note"},
        {"seq": 2, "at": 1.0},
        {"seq": 2, "at": 1.0, "type": "note", "data": 3},
        {"seq": 2, "at": float("nan"), "type": "note"},
        {"seq": 2, "at": 1.0, "type": 7},
    ],
)
def test_a_record_that_cannot_be_read_keeps_its_number_and_spoils_nothing(bad: dict[str, Any]) -> None:
    good = {"seq": 1, "at": 1.0, "type": "note"}

    request = read_request(body(good, bad, {**good, "seq": 3}))

    assert [(one.seq, one.type) for one in request.records] == [(1, "note"), (2, "unreadable"), (3, "note")]


def test_a_record_without_a_number_is_left_out() -> None:
    request = read_request(body({"at": 1.0, "type": "note"}, 3, None, {"seq": -1}, {"seq": 1, "at": 1.0, "type": "n"}))

    assert [one.seq for one in request.records] == [1]


def test_more_records_than_a_request_may_hold_are_cut() -> None:
    records = [{"seq": seq, "at": 1.0, "type": "note"} for seq in range(1, MOST_RECORDS + 50)]

    request = read_request(body(*records))

    assert [one.seq for one in request.records] == list(range(1, MOST_RECORDS + 1))


def test_lone_surrogates_are_replaced() -> None:
    text = body({"seq": 1, "at": 1.0, "type": "note", "data": {"a": "SURROGATE"}}).replace(b"SURROGATE", rb"\ud800!")

    request = read_request(text)

    assert request.records[0].data == {"a": "\ufffd!"}


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"[" * 100_000, b"{}", b'{"records": 3}', b"\xff\xfe", b'"x"'])
def test_what_is_no_request_is_refused(text: bytes) -> None:
    with pytest.raises(ValidationError):
        read_request(text)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(TYPES), st.integers(), JSON), max_size=6))
def test_whatever_records_hold_they_are_sorted_and_can_be_stored(records: list[tuple[str, int, Any]]) -> None:
    entries = [
        {"seq": seq, "at": 1.0, "type": kind, "generation": generation, "data": data}
        for seq, (kind, generation, data) in enumerate(records, 1)
    ]

    request = read_request(json.dumps(envelope(*entries)).encode())
    told = sort(request.records)

    assert [one.seq for one in request.records] == list(range(1, len(records) + 1))
    stored = dump_json(told.events)
    assert "\\u0000" not in stored
    assert stored.encode().decode() == stored


@pytest.mark.parametrize(
    ("kind", "generation", "data", "error"),
    [
        ("note", -1, {}, "no generation"),
        ("note", 1 << 40, {}, "no generation"),
        ("metrics", 1, {}, "no list of points"),
        ("checkpoint", 1, {"step": 1, "node_rank": 0, "files": [{"path": "/etc/x"}]}, "Field required"),
        ("artifact", 1, {"file": {"path": "a/../b", "size": 1, "sha256": "0" * 64, "object": "job/1/b"}}, "relative"),
        ("artifact", 1, {"file": {"path": "b", "size": 1, "sha256": "0" * 64, "object": "job/2/b"}}, "generation's"),
        ("artifact", 1, {"file": {"path": "b", "size": 1, "sha256": "0" * 64, "object": "job/1/../b"}}, "generation's"),
        ("artifact", 1, {"file": {"path": "b", "size": 1, "sha256": "0", "object": "job/1/b"}}, "sha256"),
        ("artifact", 1, {"file": {"path": "b" * 2000, "size": 1, "sha256": "0" * 64, "object": "job/1/b"}}, "relative"),
    ],
)
def test_an_unusable_record_is_told_of_with_its_cause(kind: str, generation: int, data: Any, error: str) -> None:
    told = sort([Record(seq=7, at=1.0, type=kind, generation=generation, data=data)])

    [(event_type, event_data)] = told.events
    assert (event_type, event_data["seq"], event_data["type"]) == ("node.bad_record", 7, kind)
    assert error in event_data["error"]


def test_a_point_keeps_the_values_that_are_numbers() -> None:
    values = {"loss": 1, "nan": float("nan"), "inf": float("inf"), "text": "x", "flag": True}
    points = [{"step": 1, "at": 1.0, "values": values}, {"step": -1, "at": 1.0, "values": {}}, 7]

    told = sort([Record(seq=1, at=1.0, type="metrics", generation=1, data={"points": points})])

    [point] = told.points[1]
    assert point.values == {"loss": 1.0}


def test_the_newest_progress_of_an_exchange_wins() -> None:
    told = sort([Record(seq=seq, at=seq, type="progress", generation=1, data={"step": seq}) for seq in (1, 2)])

    assert told.progress is not None
    assert told.progress[2].step == 2


@pytest.mark.parametrize(
    ("record_type", "event_type"),
    [("rank_exit", "node.rank_exit"), ("Weird Type\x00", "node.unknown"), ("x" * 200, "node.unknown")],
)
def test_a_record_of_an_unknown_type_becomes_an_event(record_type: str, event_type: str) -> None:
    told = sort([Record(seq=1, at=1.0, type=record_type, data={"a": 1})])

    [(kind, data)] = told.events
    assert kind == event_type
    assert data == {"node": "n", "generation": 0, "node_at": 1.0, "a": 1}


def test_an_event_that_would_be_too_big_keeps_its_figures() -> None:
    big = {f"k{index}": "x" * 10_000 for index in range(20)} | {"rank": 3}

    told = sort([Record(seq=1, at=1.0, type="note", data=big)])

    [(_, data)] = told.events
    assert data["rank"] == 3
    assert data["left_out_bytes"] > 200_000
    assert len(dump_json(data)) < 1000


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain é 漢 \t\n", "plain é 漢 \t\n"),
        ("10%\r20%\r\nend", "10%\n20%\nend"),
        ("\x00\x07\x1b[2J\x7f\x9b", "\ufffd\ufffd\ufffd[2J\ufffd\ufffd"),
        ("\ud800\udfff", "\ufffd\ufffd"),
    ],
)
def test_text_is_cleaned(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned


def test_of_a_long_text_the_end_is_kept() -> None:
    text = "".join(random.Random(1).choices("ab", k=LONGEST_TEXT + 5)) + "the cause"

    kept = clean_text(text)

    assert len(kept) == LONGEST_TEXT
    assert kept.startswith("…")
    assert kept.endswith("the cause")


@settings(max_examples=150, deadline=None)
@given(JSON)
def test_cleaned_json_can_be_stored_and_cleaning_twice_changes_nothing(value: Any) -> None:
    cleaned = clean(value)

    dump_json(cleaned)
    assert clean(cleaned) == cleaned


def sort(records: list[Record]) -> Told:
    return sort_records(records, job_id="job", origin={"node": "n"})


def envelope(*records: Any) -> dict[str, Any]:
    return {"protocol": 1, "node": "shn", "journal_id": "j", "status": {"phase": "idle"}, "records": list(records)}


def body(*records: Any) -> bytes:
    return json.dumps(envelope(*records)).encode()
