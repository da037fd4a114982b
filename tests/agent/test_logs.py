"""Log chunks: every byte once, cut at line ends, soon when somebody watches."""

from __future__ import annotations

from pathlib import Path

import pytest
from shunter_agent.files import tail
from shunter_agent.reporting.logs import read_chunk
from support.agents import AgentMaker, AgentProcess, assignment, python
from support.clocks import set_clock, settable_clock
from support.node_service import NodeService
from support.waiting import wait_until


def test_streams_arrive_byte_for_byte(service: NodeService, agent: AgentProcess) -> None:
    program = (
        "import os\n"
        "os.write(1, bytes(range(256)) * 50 + b'no line end')\n"
        "os.write(2, 'é\\n'.encode() + b'\\xff\\xfe\\r50%\\r100%')"
    )
    service.run(assignment(python(program), ranks={"ranks_per_node": 2}))

    service.wait_for("drained")

    for rank in (0, 1):
        assert service.log(rank, "stdout") == bytes(range(256)) * 50 + b"no line end"
        assert service.log(rank, "stderr") == "é\n".encode() + b"\xff\xfe\r50%\r100%"


def test_a_long_log_is_cut_into_chunks_at_line_ends(service: NodeService, make_agent: AgentMaker) -> None:
    make_agent(environment={"SHUNTER_AGENT_LOG_CHUNK_BYTES": "1000"}).start()
    service.run(assignment(python("for number in range(2000): print('line', number)")))

    service.wait_for("drained")

    chunks = [service.objects[chunk["object"]] for chunk in service.data("log")]
    assert b"".join(chunks) == b"".join(b"line %d\n" % number for number in range(2000))
    assert all(len(chunk) <= 1000 and chunk.endswith(b"\n") for chunk in chunks)


def test_full_chunks_go_up_while_the_rank_still_runs(service: NodeService, make_agent: AgentMaker) -> None:
    make_agent(environment={"SHUNTER_AGENT_LOG_CHUNK_BYTES": "1000"}).start()

    service.run(
        assignment(python("import time\nprint('x' * 99, flush=True)\nprint('y' * 1900, flush=True)\ntime.sleep(60)"))
    )

    service.wait_for("log", 2)
    assert service.log(0, "stdout").startswith(b"x" * 99 + b"\n" + b"y" * 1000)
    assert service.records("done") == []


def test_the_set_up_is_told_before_the_ranks(service: NodeService, agent: AgentProcess) -> None:
    service.run(assignment(python("print('trained')"), document={"environment": {"setup": ["echo made ready"]}}))

    service.wait_for("drained")

    assert [chunk["stream"] for chunk in service.data("log")] == ["setup", "stdout"]


def test_an_unwatched_line_waits_its_time_and_a_watched_one_does_not(
    service: NodeService, make_agent: AgentMaker
) -> None:
    make_agent(environment={"SHUNTER_AGENT_LOG_S": "300"}).start()
    service.run(assignment(python("import time\nprint('hello', flush=True)\ntime.sleep(60)")))
    service.wait_for("rank_up")
    exchanges = service.exchanges
    wait_until(lambda: service.exchanges > exchanges + 3, description="more exchanges")

    assert service.records("log") == []
    service.upload_logs = True
    service.wait_for("log", seconds=3)

    assert service.log(0, "stdout") == b"hello\n"


def test_a_clock_that_is_set_back_holds_no_line_up(service: NodeService, make_agent: AgentMaker) -> None:
    agent = make_agent(environment={"SHUNTER_AGENT_LOG_S": "2", **settable_clock()})
    set_clock(agent.folder, 0.0)
    agent.start()
    service.run(assignment(python("import time\nprint('hello', flush=True)\ntime.sleep(60)")))
    service.wait_for("rank_up")
    exchanges = service.exchanges
    wait_until(lambda: service.exchanges > exchanges + 3, description="the line was seen")

    set_clock(agent.folder, -3600.0)

    service.wait_for("log", seconds=10)
    assert service.log(0, "stdout") == b"hello\n"


def test_a_line_that_waited_long_goes_up_unwatched(service: NodeService, make_agent: AgentMaker) -> None:
    make_agent(environment={"SHUNTER_AGENT_LOG_S": "0.2"}).start()

    service.run(assignment(python("import time\nprint('hello', flush=True)\ntime.sleep(60)")))

    chunk = service.wait_for("log", seconds=5)
    assert chunk["first_at"] <= chunk["last_at"]


def test_uploads_are_tried_until_they_succeed(service: NodeService, agent: AgentProcess) -> None:
    answers = iter([503, 500, 429, 403])
    service.refuse_puts = lambda key: next(answers, None)
    service.run(assignment(python("print('hello')")))

    service.wait_for("drained")

    assert service.log(0, "stdout") == b"hello\n"


@pytest.mark.parametrize(
    ("text", "limit", "chunk"),
    [
        (b"one\ntwo\nthree", 100, b"one\ntwo\n"),
        (b"one\ntwo\nthree", 6, b"one\n"),
        (b"one two three", 6, b"one tw"),
        (b"one two three", 100, b"one two three"),
    ],
)
def test_a_chunk_ends_at_a_line_end_if_there_is_one(tmp_path: Path, text: bytes, limit: int, chunk: bytes) -> None:
    (tmp_path / "log").write_bytes(b"skipped" + text)

    assert read_chunk(str(tmp_path / "log"), 7, limit).data == chunk


def test_a_tail_is_bounded_and_takes_progress_bars_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(100)) + b" 1%\r 2%\r\n\n\xffend")

    assert tail(str(path), lines=4) == "line 99\n 1%\n 2%\n\ufffdend"
    assert len(tail(str(path), lines=100, limit=50).encode()) <= 50
    assert tail(str(tmp_path / "missing")) == ""
