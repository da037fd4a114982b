"""Pages of output, whatever the lines are like: right at any place, and never larger than the bound."""

import random
from collections.abc import Iterator

import pytest
from shunter_schemas.states import Reason
from shunter_service.output import log_index
from shunter_service.output.log_pages import ANSWER_BYTES
from shunter_service.output.log_text import LONGEST_LINE_BYTES
from support.log_output import Output, Reader
from support.service_app import App
from support.store_rows import new_job

STREAMS = ("stdout", "stderr")
MANY_BYTES = ANSWER_BYTES + 4 * LONGEST_LINE_BYTES


@pytest.fixture
def job_id(app: App) -> str:
    return new_job(app.database).id


@pytest.fixture
def output(app: App, job_id: str) -> Output:
    return Output(app, job_id)


@pytest.fixture
def reader(app: App, job_id: str) -> Reader:
    return Reader(app, job_id)


@pytest.fixture(params=["few streams", "several streams", "many streams"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each way to the lines of a part of the output, whatever the number of its streams."""
    if request.param != "few streams":
        monkeypatch.setattr(log_index, "_FEW_STREAMS", 0)
    if request.param == "many streams":
        monkeypatch.setattr(log_index, "_SEVERAL_STREAMS", 0)
    monkeypatch.setattr(log_index, "_FIRST_CHUNKS", 2)
    monkeypatch.setattr(log_index, "MOST_CHUNKS", 5)
    return iter(())


@pytest.mark.usefixtures("way")
async def test_any_window_of_any_part_holds_the_lines_that_arrived_there(output: Output, reader: Reader) -> None:
    chance = random.Random(7)
    arrived: list[tuple[int, int, str, str]] = []
    begun: dict[tuple[int, int, str], str] = {}
    for number in range(60):
        file = (chance.randint(1, 2), chance.randint(0, 2), chance.choice(STREAMS))
        text = "".join(f"{number}-{place}\n" for place in range(chance.choice((0, 1, 1, 2, 5)))) or "part "
        text += chance.choice(("", "", f"begin{number} "))
        output.add(text, generation=file[0], rank=file[1], stream=file[2])  # type: ignore[arg-type]  # one of both
        *whole, begun[file] = (begun.get(file, "") + text).split("\n")
        arrived += [(*file, line) for line in whole]

    for _ in range(15):
        chosen = {
            "generation": chance.choice((None, None, 1, 2)),
            "rank": chance.choice((None, 0, 1, 2)),
            "stream": chance.choice((None, None, *STREAMS)),
        }
        wanted = {name: value for name, value in chosen.items() if value is not None}
        lines = [
            line
            for generation, rank, stream, line in arrived
            if {"generation": generation, "rank": rank, "stream": stream} | wanted
            == {"generation": generation, "rank": rank, "stream": stream}
        ]
        line, limit = chance.randint(1, len(arrived)), chance.randint(5, 40)
        pages = await reader.every_page(line=line, limit=limit, **wanted)
        assert [item["text"] for page in pages for item in page["items"]] == lines[line - 1 :]
        assert pages[0]["lines_total"] == len(lines)
        assert [item["line"] for item in pages[0]["items"]] == [
            *range(line, line + len(pages[0]["items"])),
        ]
        tail = await reader.every_page_back(limit, **wanted)
        assert [item["text"] for page in tail for item in page["items"]] == lines[max(0, len(lines) - limit) :]


async def test_a_line_of_ten_megabytes_is_cut_and_takes_nothing_from_its_neighbours(
    output: Output, reader: Reader
) -> None:
    output.add("before\n")
    for _ in range(10):
        output.add("x" * 1_000_000)
        output.add("meanwhile\n", rank=1)
    output.add("end\nafter\n")

    page = await reader.page(rank=0)

    assert [len(item["text"]) for item in page["items"]] == [6, LONGEST_LINE_BYTES, 5]
    assert page["items"][1]["text"].endswith("xxx … (the line goes on)")
    assert await reader.lines(rank=0, line=3) == ["after"]
    assert len(await reader.lines()) == 13


async def test_of_an_endless_progress_bar_the_last_state_is_shown(output: Output, reader: Reader) -> None:
    output.add("start\n")
    for number in range(30):
        output.add("".join(f"\r{number}-{step} {'#' * 80}" for step in range(1200)))
    output.add("\rdone\nnext\n")

    assert await reader.lines() == ["start", "done", "next"]


async def test_pages_of_long_lines_stay_below_the_bound_and_lose_none(
    app: App, job_id: str, output: Output, reader: Reader
) -> None:
    for first in range(0, 3000, 250):
        output.add("".join(f"{number:06d}{'é' * 1500}\n" for number in range(first, first + 250)))

    path = f"/v1/jobs/{job_id}/logs"
    answers = [await app.http.get(path, params={"limit": 10_000})]
    while (page := answers[-1].json())["next_line"] <= page["lines_total"]:
        answers.append(await app.http.get(path, params={"limit": 10_000, "line": page["next_line"]}))
    tail = await reader.every_page_back(2000)
    text = await app.http.get(path, params={"limit": 10_000}, headers={"Accept": "text/plain"})

    assert [item["line"] for answer in answers for item in answer.json()["items"]] == list(range(1, 3001))
    assert max(len(answer.content) for answer in answers) < MANY_BYTES
    assert len(answers) == 3
    assert [item["line"] for page in tail for item in page["items"]] == list(range(1001, 3001))
    assert len(tail) == 2
    assert len(text.content) < MANY_BYTES
    assert int(text.headers["X-Next-Line"]) == text.text.count("\n") + 1
    assert text.headers["X-Lines-Total"] == "3000"


async def test_last_lines_without_an_end_are_bounded_too(app: App, job_id: str, output: Output, reader: Reader) -> None:
    for rank in range(80):
        output.add(f"{rank} {'z' * 100_000}", rank=rank)
    app.worker_part(job_id).run()
    app.worker_part(job_id).end(Reason.USER_ERROR)

    pages = await reader.every_page()

    assert [item["text"].partition(" ")[0] for page in pages for item in page["items"]] == [*map(str, range(80))]
    assert len(pages) == 2
    assert pages[-1]["ended"]


async def test_a_piece_that_arrives_out_of_order_changes_no_number(output: Output, reader: Reader) -> None:
    output.add("one\ntwo ", offset=0)
    output.add("four\nfive\n", offset=18)
    before = await reader.lines()
    output.add("ends\nthree ", offset=8)

    after = await reader.page()

    assert [item["line"] for item in after["items"]] == [1, 2, 3, 4]
    assert before == ["one", "two four", "five"]
    assert sorted(item["text"] for item in after["items"]) == sorted(["one", "two ends", "three four", "five"])


async def test_bytes_that_are_no_text_are_shown_as_such(output: Output, reader: Reader) -> None:
    output.add(b"nul \x00\x00 \xc3\x28 \xed\xa0\x80 \xf4\x90\x80\x80 end\n\x00\n")

    first, second = await reader.lines()

    assert first.startswith("nul \ufffd\ufffd ")
    assert first.endswith(" end")
    assert second == "\ufffd"
