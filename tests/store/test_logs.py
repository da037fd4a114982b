"""The index of logs: lines are counted as chunks arrive, and a chunk counts once."""

import pytest
from shunter_schemas.node_sync import LogChunk
from shunter_store.report import logs
from shunter_store.sql.database import Database
from support.store_rows import new_job


def test_lines_are_numbered_as_chunks_arrive(database: Database) -> None:
    job = new_job(database).id
    add(database, job, offset=0, lines=3)
    add(database, job, offset=10, lines=0)
    add(database, job, offset=20, lines=2)

    found = chunks(database, job)

    assert [(one.offset, one.first_line, one.lines) for one in found] == [(0, 0, 3), (10, 3, 0), (20, 3, 2)]
    [stream] = database.read(lambda conn: logs.streams(conn, job))
    assert (stream.lines, stream.bytes) == (5, 30)


def test_a_chunk_counts_once(database: Database) -> None:
    job = new_job(database).id

    counted = [add(database, job, offset=0, lines=3), add(database, job, offset=0, lines=3)]

    assert counted == [True, False]
    [stream] = database.read(lambda conn: logs.streams(conn, job))
    assert stream.lines == 3


def test_the_same_offset_of_another_journal_is_another_chunk(database: Database) -> None:
    job = new_job(database).id
    add(database, job, offset=0, lines=3)

    add(database, job, offset=0, lines=2, journal="second")

    assert [one.first_line for one in chunks(database, job)] == [0, 3]


def test_streams_ranks_and_generations_count_for_themselves(database: Database) -> None:
    job = new_job(database).id
    add(database, job, lines=1)
    add(database, job, lines=2, stream="stderr")
    add(database, job, lines=3, rank=-1, stream="setup")
    add(database, job, lines=4, generation=2)

    streams = database.read(lambda conn: logs.streams(conn, job))

    assert [(one.generation, one.rank, one.stream, one.lines) for one in streams] == [
        (1, -1, "setup", 3),
        (1, 0, "stderr", 2),
        (1, 0, "stdout", 1),
        (2, 0, "stdout", 4),
    ]


@pytest.mark.parametrize(
    ("after_line", "tail", "offsets"),
    [
        (-1, None, [0, 10, 20]),
        (3, None, [0, 10, 20]),
        (4, None, [10, 20]),
        (9, None, [20]),
        (14, None, []),
        (-1, 1, [20]),
        (-1, 4, [20]),
        (-1, 5, [10, 20]),
        (-1, 100, [0, 10, 20]),
    ],
)
def test_readers_get_the_chunks_that_hold_their_lines(
    database: Database, after_line: int, tail: int | None, offsets: list[int]
) -> None:
    job = new_job(database).id
    for offset, lines in [(0, 4), (10, 5), (20, 5)]:
        add(database, job, offset=offset, lines=lines)

    found = chunks(database, job, after_line=after_line, tail=tail)

    # Line 4 may begin in the first chunk: it has 4 line feeds, and what follows the last belongs to line 4.
    assert [one.offset for one in found] == offsets


def test_the_times_of_a_mad_clock_are_moved_into_the_calendar(database: Database) -> None:
    job = new_job(database).id
    add(database, job, lines=1, first_at=-1e30, last_at=1e300)

    [found] = chunks(database, job)

    assert (found.first_at.year, found.last_at.year) == (1970, 9999)


def add(
    database: Database,
    job_id: str,
    *,
    offset: int = 0,
    lines: int = 1,
    rank: int = 0,
    stream: str = "stdout",
    generation: int = 1,
    journal: str = "first",
    first_at: float = 1.0,
    last_at: float = 2.0,
) -> bool:
    chunk = LogChunk.model_validate(
        {
            "rank": rank,
            "stream": stream,
            "offset": offset,
            "length": 10,
            "lines": lines,
            "object": "x",
            "first_at": first_at,
            "last_at": last_at,
        }
    )
    return database.write(lambda conn: logs.add_chunk(conn, job_id, generation, journal, chunk))


def chunks(
    database: Database, job_id: str, *, after_line: int = logs.ALL_LINES, tail: int | None = None
) -> list[logs.LogChunkRow]:
    return database.read(
        lambda conn: logs.chunks(conn, job_id, generation=1, rank=0, stream="stdout", after_line=after_line, tail=tail)
    )
