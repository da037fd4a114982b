import pytest
from shunter_schemas.states import Reason
from support.log_output import Output, Reader
from support.service_app import App
from support.store_rows import new_job


@pytest.fixture
def job_id(app: App) -> str:
    return new_job(app.database).id


@pytest.fixture
def output(app: App, job_id: str) -> Output:
    return Output(app, job_id)


@pytest.fixture
def reader(app: App, job_id: str) -> Reader:
    return Reader(app, job_id)


async def test_a_job_that_printed_nothing_has_an_empty_page(reader: Reader) -> None:
    page = await reader.page()

    assert page == {"items": [], "lines_total": 0, "first_line": 1, "next_line": 1, "ended": False}


async def test_lines_of_all_ranks_come_in_the_order_in_which_they_arrived(output: Output, reader: Reader) -> None:
    output.add("a1\na2\n", rank=0)
    output.add("b1\n", rank=1)
    output.add("e1\n", rank=0, stream="stderr")
    output.add("a3\n", rank=0)

    page = await reader.page()

    assert [(item["line"], item["rank"], item["stream"], item["text"]) for item in page["items"]] == [
        (1, 0, "stdout", "a1"),
        (2, 0, "stdout", "a2"),
        (3, 1, "stdout", "b1"),
        (4, 0, "stderr", "e1"),
        (5, 0, "stdout", "a3"),
    ]
    assert (page["lines_total"], page["next_line"]) == (5, 6)


async def test_output_can_be_narrowed_to_a_rank_a_stream_and_a_start(output: Output, reader: Reader) -> None:
    output.add("pip install\n", rank=-1, stream="setup")
    output.add("a1\n", rank=0)
    output.add("b1\nb2\n", rank=1)
    output.add("e1\n", rank=1, stream="stderr")
    output.add("b3\n", rank=1, generation=2)

    assert await reader.lines(rank=1) == ["b1", "b2", "e1", "b3"]
    assert await reader.lines(rank=1, stream="stdout") == ["b1", "b2", "b3"]
    assert await reader.lines(rank=1, generation=2) == ["b3"]
    assert await reader.lines(stream="setup") == ["pip install"]
    assert await reader.lines(rank=-1) == ["pip install"]
    assert [item["line"] for item in (await reader.page(rank=1, stream="stdout"))["items"]] == [1, 2, 3]


async def test_a_line_that_was_uploaded_in_pieces_is_one_line(output: Output, reader: Reader) -> None:
    output.add("begin")
    output.add("ning, ", rank=0)
    output.add("other\n", rank=1)
    output.add("middle, end\nnext\nlast without end")

    lines = await reader.lines()

    assert lines == ["other", "beginning, middle, end", "next"]
    assert await reader.lines(rank=0, line=2) == ["next"]
    assert await reader.lines(rank=0, tail=2) == ["beginning, middle, end", "next"]
    assert await reader.lines(line=2, limit=1) == ["beginning, middle, end"]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_pieces_without_a_line_feed_between_others_are_not_lost(
    output: Output, reader: Reader, limit: int
) -> None:
    for number in range(4):
        output.add(f"a{number} begins", rank=0)
        output.add(f"b{number} begins", rank=1)
        output.add(", goes on", rank=0)
        output.add(", goes on", rank=1)
        output.add(", ends\n", rank=1)
        output.add(", ends\nand", rank=0)

    lines: list[str] = []
    while page := await reader.lines(line=len(lines) + 1, limit=limit):
        lines += page

    assert lines == [
        f"{'and' if rank == 'a' and number else ''}{rank}{number} begins, goes on, ends"
        for number in range(4)
        for rank in "ba"
    ]


async def test_a_character_that_was_cut_between_two_pieces_is_whole(output: Output, reader: Reader) -> None:
    encoded = "grüße\n".encode()
    output.add(encoded[:3])
    output.add(encoded[3:])

    assert await reader.lines() == ["grüße"]


async def test_reading_on_behind_a_line_misses_nothing_and_repeats_nothing(output: Output, reader: Reader) -> None:
    seen: list[str] = []
    line = 1
    for number in range(6):
        output.add(f"a{number}\npart", rank=0)
        output.add(f"b{number}\n", rank=1)
        page = await reader.page(line=line, limit=3)
        seen += [item["text"] for item in page["items"]]
        line = page["next_line"]

    seen += await reader.lines(line=line)

    assert sorted(seen) == sorted([*(f"b{n}" for n in range(6)), "a0", *(f"parta{n}" for n in range(1, 6))])
    assert seen == await reader.lines()


async def test_pages_of_any_size_give_the_same_lines(output: Output, reader: Reader) -> None:
    for number in range(40):
        output.add(f"{number}a\n{number}b\n{number}c\n", rank=number % 3)
    whole = await reader.lines()

    paged: list[str] = []
    line = 1
    while items := (await reader.page(line=line, limit=7))["items"]:
        paged += [item["text"] for item in items]
        line = items[-1]["line"] + 1

    assert len(whole) == 120
    assert paged == whole


@pytest.mark.parametrize("tail", [0, 1, 5, 100])
async def test_the_tail_is_the_end(output: Output, reader: Reader, tail: int) -> None:
    for number in range(20):
        output.add(f"{number}\n", rank=number % 2)

    lines = await reader.lines(tail=tail)

    assert lines == [str(number) for number in range(20)][20 - min(tail, 20) :]


async def test_a_last_line_without_an_end_is_shown_when_no_more_can_come(
    app: App, job_id: str, output: Output, reader: Reader
) -> None:
    output.add("whole\nrest of rank 0", rank=0)
    output.add("rest of rank 1", rank=1)
    running = await reader.page()
    app.worker_part(job_id).run()
    app.worker_part(job_id).end(Reason.USER_ERROR)

    ended = await reader.page()

    assert [item["text"] for item in running["items"]] == ["whole"]
    assert not running["ended"]
    assert [(item["line"], item["text"]) for item in ended["items"]] == [
        (1, "whole"),
        (2, "rest of rank 0"),
        (3, "rest of rank 1"),
    ]
    assert (ended["lines_total"], ended["ended"]) == (3, True)
    assert await reader.lines(tail=2) == ["rest of rank 0", "rest of rank 1"]
    assert await reader.lines(line=3) == ["rest of rank 1"]
    assert (await reader.page(line=4))["items"] == []


async def test_a_window_deep_in_a_piece_of_many_short_lines_has_the_right_lines(output: Output, reader: Reader) -> None:
    output.add("".join(f"{number}\n" for number in range(1, 100_001)))

    page = await reader.page(line=90_000, limit=3)

    assert [(item["line"], item["text"]) for item in page["items"]] == [(n, str(n)) for n in range(90_000, 90_003)]
    assert await reader.lines(tail=2) == ["99999", "100000"]


async def test_two_journals_of_one_rank_do_not_mix_their_pieces(output: Output, reader: Reader) -> None:
    output.add("first agent, cut", journal="one")
    output.add("second agent\n", journal="two")

    assert await reader.lines() == ["second agent"]


async def test_nothing_in_a_line_steers_the_readers_terminal(output: Output, reader: Reader) -> None:
    output.add(b"\x1b[31mred\x07\n10%\r50%\r100%\ncarriage\r\n\ttab \xff\n\n")

    assert await reader.lines() == ["\ufffd[31mred\ufffd", "100%", "carriage", "\ttab \ufffd", ""]


async def test_text_of_one_stream_is_the_exact_bytes(output: Output, reader: Reader) -> None:
    pieces = [b"\x1b[31mred\r\n", b"no end", b" yet\n\xff\xfe", b"rest"]
    for piece in pieces:
        output.add(piece)
        output.add("other rank\n", rank=1)
    whole = b"".join(pieces)

    assert await reader.text(rank=0, stream="stdout") == (200, whole)
    assert await reader.text(rank=0, stream="stdout", range_="bytes=5-20") == (206, whole[5:21])
    assert await reader.text(rank=0, stream="stdout", range_="bytes=-4") == (206, b"rest")


async def test_text_of_all_ranks_is_their_lines(output: Output, reader: Reader) -> None:
    output.add("a\n", rank=0)
    output.add("b\n", rank=1)

    assert await reader.text() == (200, b"a\nb\n")
    assert await reader.text(tail=1) == (200, b"b\n")


async def test_a_range_behind_the_end_is_a_416_that_says_how_long_it_is(app: App, job_id: str, output: Output) -> None:
    output.add("abc\n")

    answer = await app.http.get(
        f"/v1/jobs/{job_id}/logs",
        params={"rank": 0, "stream": "stdout"},
        headers={"Accept": "text/plain", "Range": "bytes=4-"},
    )

    assert answer.status_code == 416
    assert answer.headers["Content-Range"] == "bytes */4"


async def test_an_object_that_an_operator_removed_costs_its_lines_only(
    app: App, job_id: str, output: Output, reader: Reader
) -> None:
    output.add("gone\ngone too\n")
    [lost] = [path for path in (app.service.data.data_dir / "objects" / job_id).rglob("*") if path.is_file()]
    lost.unlink()
    output.add("still here\n")

    assert await reader.lines() == ["", "", "still here"]
