"""Points, progress and events from what ranks write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shunter_agent.keeping.tuning import Tuning
from shunter_agent.reporting.metrics import Feed, RankTail
from shunter_agent.reporting.tails import LineTail
from support.agents import TRAINING, AgentMaker, AgentProcess, assignment, python, trainer
from support.node_service import NodeService


def read(path: Path, *lines: Any) -> tuple[RankTail, list[dict[str, Any]]]:
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    feed, tail = Feed(Tuning(metrics_s=0.0)), RankTail(str(path))
    tail.read(feed, final=True)
    return tail, [{"type": entry.type, **entry.data} for entry in feed.due(1, final=True)]


def test_points_hold_every_finite_number_and_nothing_else(tmp_path: Path) -> None:
    line = '{"step": 3.0, "loss": 2, "bad": NaN, "worse": 1e999, "text": "x", "flag": true, "huge": 1%s, "at": 5.5}\n'

    _, records = read(tmp_path / "m", line % ("0" * 400))

    assert records[0] == {"type": "metrics", "points": [{"step": 3, "at": 5.5, "values": {"loss": 2.0}}]}
    assert records[1]["values"] == {"loss": 2.0}


def test_what_came_of_trying_the_micro_batch_is_handed_on_once(tmp_path: Path) -> None:
    found = {"micro_size": 4, "accumulation": 2, "planned": 8, "tried": [8, 4]}

    tail, records = read(tmp_path / "m", {"event": "micro_batch", **found})

    assert tail.take_trials() == [found]
    assert tail.take_trials() == []
    assert records == []


def test_lines_that_are_no_points_are_passed_over(tmp_path: Path) -> None:
    wrong = [
        "no json\n",
        "[1]\n",
        '{"loss": 1}\n',
        '{"step": -1, "loss": 1}\n',
        '{"step": 1.5, "loss": 1}\n',
        "[" * 5000 + "\n",
    ]

    _, records = read(tmp_path / "m", *wrong, {"step": True, "loss": 1}, {"step": 1, "loss": 1}, '{"step": 2, "lo')

    assert [record["type"] for record in records] == ["metrics", "progress"]
    assert [point["step"] for point in records[0]["points"]] == [1]


def test_progress_is_the_newest_and_keeps_the_total(tmp_path: Path) -> None:
    lines = [{"step": 1, "total_steps": 9, "loss": 3}, {"step": 2, "loss": 2, "eta_s": 4}, {"step": 3}]

    _, records = read(tmp_path / "m", *lines)

    assert records[-1] == {"type": "progress", "step": 3, "total_steps": 9, "values": {"loss": 2.0}, "eta_s": None}


def test_progress_keeps_the_newest_value_of_every_metric(tmp_path: Path) -> None:
    lines = [{"step": 1, "loss": 3}, {"step": 2, "loss": 2, "val_loss": 2.5}, {"step": 3, "loss": 1}]

    _, records = read(tmp_path / "m", *lines)

    assert records[-1]["values"] == {"loss": 1.0, "val_loss": 2.5}


def test_batches_hold_64_points_and_come_once_an_interval() -> None:
    feed = Feed(Tuning(metrics_s=3600))
    for step in range(130):
        feed.add({"step": step, "loss": 1.0})

    first = feed.due(1)
    feed.add({"step": 130, "loss": 1.0})

    assert [len(entry.data["points"]) for entry in first if entry.type == "metrics"] == [64, 64, 2]
    assert feed.due(1) == []
    assert len(feed.due(1, final=True)) == 2


def test_a_tail_gives_each_line_once_also_when_it_is_written_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = LineTail(str(path))

    assert tail.read() == []
    with path.open("a") as file:
        for piece, lines in (("on", []), ("e\ntw", ["one"]), ("o\r\n\nthree", ["two"])):
            file.write(piece)
            file.flush()
            assert tail.read() == lines
    assert tail.read_all() == ["three"]
    assert tail.read_all() == []


def test_a_trainers_ranks_are_up_when_they_say_so(service: NodeService, make_agent: AgentMaker) -> None:
    program = (
        "import os, time\n"
        "metrics = open(os.environ['SHUNTER_METRICS_FILE'], 'a')\n"
        "if os.environ['RANK'] == '1': print('{\"event\": \"up\"}', file=metrics, flush=True)\n"
        "time.sleep(60)"
    )
    trainer(make_agent(), program).start()
    service.run(assignment(TRAINING, ranks={"ranks_per_node": 2}))

    service.wait_for("rank_up")
    service.stop()
    service.wait_for("drained")

    assert [data["rank"] for data in service.data("rank_up")] == [1]


def test_warnings_and_an_early_end_are_told(service: NodeService, make_agent: AgentMaker) -> None:
    lines = [
        {"event": "up"},
        {"event": "warning", "at_step": 7, "message": "the loss jumped"},
        {"event": "done", "message": "stopped early at step 9"},
    ]
    program = (
        "import os\n"
        "with open(os.environ['SHUNTER_METRICS_FILE'], 'a') as metrics:\n"
        f"    metrics.write({''.join(json.dumps(line) + chr(10) for line in lines)!r})"
    )
    trainer(make_agent(), program).start()
    service.run(assignment(TRAINING))

    service.wait_for("drained")

    assert service.data("warning") == [{"rank": 0, "at_step": 7, "message": "the loss jumped"}]
    assert service.data("done") == [{"exit_code": 0, "message": "stopped early at step 9"}]


def test_a_program_that_warns_without_end_is_told_in_part(tmp_path: Path) -> None:
    tail, _ = read(tmp_path / "m", *[{"event": "warning", "message": str(number)} for number in range(200)])

    warnings = tail.take_warnings()

    assert len(warnings) == 100
    assert warnings[0] == {"at_step": None, "message": "0"}
    assert tail.take_warnings() == []


def test_what_a_rank_says_of_its_failure_is_told(service: NodeService, make_agent: AgentMaker) -> None:
    program = (
        "import json, os, time\n"
        "rank = int(os.environ['RANK'])\n"
        "reason = ['peer_lost', 'disk_full'][rank]\n"
        "time.sleep(0.3 * rank)\n"
        "event = {'event': 'failure', 'reason': reason, 'message': f'rank {rank} says {reason}'}\n"
        "event.update(rank=7) if rank else None\n"
        "print(json.dumps(event), file=open(os.environ['SHUNTER_METRICS_FILE'], 'a'), flush=True)\n"
        "raise SystemExit(1)"
    )
    trainer(make_agent(), program).start()
    service.run(assignment(TRAINING, ranks={"ranks_per_node": 2}))

    failed = service.wait_for("failed")

    assert (failed["rank"], failed["failure_class"], failed["reason"]) == (7, "node", "disk_full")
    assert "rank 1 exited with code 1\nrank 1 says disk_full" in failed["message"]


def test_prints_are_read_only_from_programs_that_write_no_metrics(service: NodeService, agent: AgentProcess) -> None:
    program = (
        "import os, time\n"
        "print('iter 1: loss 9.5, time 3ms', flush=True)\n"
        "time.sleep(0.5)\n"
        "print('{\"step\": 2, \"loss\": 1.0}', file=open(os.environ['SHUNTER_METRICS_FILE'], 'a'), flush=True)\n"
        "time.sleep(0.5)\n"
        "print('iter 3: loss 9.5, time 3ms', flush=True)\n"
    )
    service.run(assignment(python(program)))

    service.wait_for("drained")

    assert service.points() == [(1, {"loss": 9.5}), (2, {"loss": 1.0})]


def test_only_rank_0_tells_the_jobs_points(service: NodeService, agent: AgentProcess) -> None:
    program = (
        "import os\nrank = os.environ['RANK']\n"
        "print('{\"step\": 1, \"loss\": %s}' % rank, file=open(os.environ['SHUNTER_METRICS_FILE'], 'a'))"
    )
    service.run(assignment(python(program), ranks={"ranks_per_node": 2}))

    service.wait_for("drained")

    assert service.points() == [(1, {"loss": 0.0})]
