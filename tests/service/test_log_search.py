"""The search through output: the same lines that a reader of all of them would pick, within bounds."""

import itertools
from typing import Any

import pytest
from shunter_schemas.states import Reason
from shunter_service.output import log_reading
from shunter_service.output.log_pages import Budget
from support.event_streams import read_whole
from support.log_output import Output, Reader
from support.service_app import App
from support.store_rows import new_job

LINES = [
    b"Loss 1.5",
    b"loss 1.25\r",
    b"  0%|     |\r 50%|##   | loss\r100%|#####| done",
    b"STRASSE",
    "straße \N{LATIN SMALL LETTER LONG S}trange \N{KELVIN SIGN} \N{LATIN SMALL LIGATURE FI}le".encode(),
    b"nul \x00 here",
    b"\xff\xfe broken loss",
    b"",
    "größte Löß".encode(),
    b"a\tb",
    b"\x1b[31mred loss\x1b[0m",
]
NEEDLES = [
    "loss",
    "LOSS",
    "strasse",
    "straße",
    "STR",
    "k",
    "file",
    "\N{LATIN SMALL LIGATURE FI}",
    "\ufffd",
    "nul \ufffd",
    "löss",
    "%|",
    "a\tb",
    "ß",
    "s",
]


@pytest.fixture
def job_id(lite: App) -> str:
    return new_job(lite.database).id


@pytest.fixture
def output(lite: App, job_id: str) -> Output:
    return Output(lite, job_id)


@pytest.fixture
def reader(lite: App, job_id: str) -> Reader:
    return Reader(lite, job_id)


def numbered(page: dict[str, Any]) -> list[tuple[int, str]]:
    return [(item["line"], item["text"]) for item in page["items"]]


def add_all(output: Output, times: int = 1) -> None:
    """The lines over two ranks, in pieces that are cut anywhere."""
    data = b"".join(line + b"\n" for line in LINES) * times
    for number, start in enumerate(range(0, len(data), 37)):
        output.add(data[start : start + 37], rank=number % 2 and 0)
        output.add(b"".join(line + b"\n" for line in LINES[number % len(LINES) :][:2]), rank=1)


@pytest.mark.parametrize("case", ["insensitive", "sensitive"])
async def test_what_is_found_is_what_a_reader_of_every_line_would_pick(
    output: Output, reader: Reader, case: str
) -> None:
    add_all(output, times=3)
    every = numbered(await reader.page(limit=10_000))

    def folded(text: str) -> str:
        return text if case == "sensitive" else text.casefold()

    for needle in NEEDLES:
        picked = [(line, text) for line, text in every if folded(needle) in folded(text)]
        assert numbered(await reader.page(q=needle, case=case)) == picked, needle
        assert numbered(await reader.page(q=needle, case=case, tail=3)) == picked[-3:], needle


async def test_lines_keep_the_numbers_that_they_have_in_what_was_selected(output: Output, reader: Reader) -> None:
    output.add("loss a\nother\n", rank=0)
    output.add("loss b\n", rank=1, stream="stderr")
    output.add("other\nloss c\n", rank=1)

    assert numbered(await reader.page(q="loss")) == [(1, "loss a"), (3, "loss b"), (5, "loss c")]
    assert numbered(await reader.page(q="loss", rank=1)) == [(1, "loss b"), (3, "loss c")]
    assert numbered(await reader.page(q="loss", rank=1, stream="stdout")) == [(2, "loss c")]


async def test_a_search_goes_on_page_by_page_forwards_and_backwards(output: Output, reader: Reader) -> None:
    for number in range(60):
        output.add(f"{number} {'find' if number % 7 == 0 else 'no'}\n" * 3, rank=number % 3)
    every = [line for line, text in numbered(await reader.page()) if "find" in text]

    forwards = [line for page in await reader.every_page(q="find", limit=4) for line, _ in numbered(page)]
    backwards: list[int] = []
    before: dict[str, int] = {}
    while True:
        page = await reader.page(q="FIND", tail=4, **before)
        backwards = [*(line for line, _ in numbered(page)), *backwards]
        before = {"before": page["first_line"]}
        if page["first_line"] <= 1:
            break

    assert forwards == every
    assert backwards == every


async def test_a_search_that_takes_long_answers_with_where_it_stopped(
    output: Output, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        output.add(f"{number}\n" * 10 + ("needle\n" if number in (3, 29) else ""))
    monkeypatch.setattr(log_reading, "Budget", lambda: Budget(read_bytes=50))

    pages = await reader.every_page(q="needle")

    assert [found for page in pages for found in numbered(page)] == [(41, "needle"), (302, "needle")]
    assert sum(not page["items"] for page in pages) > 5


async def test_the_end_of_an_ended_jobs_output_is_searched_too(
    lite: App, job_id: str, output: Output, reader: Reader
) -> None:
    output.add("fine\nTraceback", rank=0)
    output.add("no end either", rank=1)
    lite.worker_part(job_id).run()
    lite.worker_part(job_id).end(Reason.USER_ERROR)

    page = await reader.page(q="trace")

    assert numbered(page) == [(2, "Traceback")]
    assert (page["next_line"], page["lines_total"], page["ended"]) == (4, 3, True)
    assert numbered(await reader.page(q="i", tail=1)) == [(3, "no end either")]


async def test_text_is_searched_too(output: Output, reader: Reader) -> None:
    output.add("loss 1\nother\nloss 2\n", rank=0)

    assert await reader.text(q="loss", rank=0, stream="stdout") == (200, b"loss 1\nloss 2\n")


async def test_a_followed_search_tells_what_it_finds(lite: App, job_id: str, output: Output) -> None:
    output.add("loss 1\nother\n" + "other\n" * 50 + "LOSS 2\n")
    lite.worker_part(job_id).run()
    lite.worker_part(job_id).end(Reason.DONE)

    found = await read_whole(lite, f"/v1/jobs/{job_id}/logs?q=loss")
    rest = await read_whole(lite, f"/v1/jobs/{job_id}/logs?q=loss", **{"Last-Event-ID": "1"})

    assert [(one.id, one.data["text"]) for one in found.messages] == [("1", "loss 1"), ("53", "LOSS 2")]
    assert [one.data["line"] for one in rest.messages] == [53]


@pytest.mark.parametrize(
    ("params", "pointer"),
    [({"q": ""}, "/q"), ({"q": "x" * 1001}, "/q"), ({"q": "x", "case": "none"}, "/case"), ({"before": 3}, "/before")],
)
async def test_a_search_that_makes_no_sense_is_a_422(
    lite: App, job_id: str, params: dict[str, Any], pointer: str
) -> None:
    answer = await lite.http.get(f"/v1/jobs/{job_id}/logs", params=params)

    assert answer.status_code == 422
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [pointer]


@pytest.mark.parametrize("machine", ["quick", "slow"])
async def test_windows_before_a_line_are_its_neighbours(
    output: Output, reader: Reader, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if machine == "slow":
        monkeypatch.setattr(log_reading, "Budget", lambda: Budget(until=0.0))
    for number in range(50):
        output.add(f"{number + 1}\n", rank=number % 2)

    assert await reader.lines(tail=20) == [str(line) for line in range(31, 51)]
    for tail, before in itertools.product((1, 7, 100), (1, 2, 30, 51, 80)):
        lines = await reader.lines(tail=tail, before=before)
        assert lines == [str(line) for line in range(max(1, before - tail), min(before, 51))]


async def test_the_last_lines_of_very_many_begin_late_when_they_take_long_and_say_so(
    output: Output, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    output.add("".join(f"{number + 1}\n" for number in range(5000)))
    monkeypatch.setattr(log_reading, "Budget", lambda: Budget(until=0.0))

    pages = await reader.every_page_back(4500)
    beyond = await reader.page(tail=1000, before=5500)

    assert [int(item["text"]) for page in pages for item in page["items"]] == list(range(501, 5001))
    assert [page["first_line"] for page in pages] == [501, 1001, 3001]
    assert (beyond["first_line"], len(beyond["items"]), beyond["next_line"]) == (4500, 501, 5001)


async def test_a_window_behind_the_end_is_gone_on_from_the_end(output: Output, reader: Reader) -> None:
    output.add("one\ntwo\n")

    page = await reader.page(tail=3, before=80)

    assert (page["items"], page["next_line"]) == ([], 3)
