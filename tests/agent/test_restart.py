"""The agent dies and comes again on the same folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from support.agents import JOB, AgentMaker, AgentProcess, assignment, command, python
from support.node_service import NodeService
from support.waiting import wait_until

TALK = "import time\nfor number in range(10**6):\n    print('line', number, flush=True)\n    time.sleep(0.01)"

COUNT = """
import json, os, time
with open(os.environ["SHUNTER_METRICS_FILE"], "a") as metrics:
    for step in range(20):
        print(json.dumps({"step": step, "loss": 1.0}), file=metrics, flush=True)
        time.sleep(0.05)
time.sleep(600)
"""


def test_ranks_die_with_their_agent_and_its_successor_says_so(service: NodeService, agent: AgentProcess) -> None:
    service.run(assignment(python(TALK), ranks={"ranks_per_node": 2}))
    service.wait_for("rank_up", 2)

    agent.kill()
    wait_until(lambda: not agent.ranks(), description="the ranks die with the agent")
    agent.start()
    failed = service.wait_for("failed")

    assert (failed["failure_class"], failed["reason"]) == ("node", "agent_restarted")
    service.wait_for("drained")
    assert len(service.journals) == 1
    assert len(service.records("done", "failed", "stopped")) == 1
    assert len(service.records("boot")) == 2


def test_no_log_byte_is_lost_or_doubled_by_a_crash(service: NodeService, agent: AgentProcess) -> None:
    service.upload_logs = True
    service.run(assignment(python(TALK)))
    wait_until(lambda: len(service.data("log")) >= 2, description="some chunks")

    agent.kill()
    written = (agent.folder / "logs/1/rank-0.stdout").read_bytes()
    agent.start()
    service.wait_for("drained")

    assert service.log(0, "stdout") == written


def test_points_that_were_written_and_not_read_before_a_crash_are_told_after_it_once(
    service: NodeService, make_agent: AgentMaker
) -> None:
    agent = make_agent(environment={"SHUNTER_AGENT_METRICS_S": "3600"}).start()
    service.run(assignment(python(COUNT)))
    service.wait_for("metrics")
    written = agent.folder / "metrics/1/rank-0.jsonl"
    wait_until(lambda: written.read_bytes().count(b"\n") == 20, description="the program has told everything")
    told_before = service.points()

    agent.kill()
    agent.start()
    service.wait_for("drained")

    assert len(told_before) < 20
    assert service.points() == [(step, {"loss": 1.0}) for step in range(20)]


def test_a_chunk_that_was_stored_but_not_recorded_is_stored_again_under_another_key(
    service: NodeService, agent: AgentProcess
) -> None:
    service.run(assignment(python(TALK)))
    service.wait_for("rank_up")
    journal = next(iter(service.journals))
    service.objects[f"{JOB}/1/logs/{journal}/0-stdout-000000000000"] = b"line 0\n"

    service.stop()
    service.wait_for("drained")

    assert service.log(0, "stdout") == (agent.folder / "logs/1/rank-0.stdout").read_bytes()


def test_a_generation_that_had_ended_is_only_drained(service: NodeService, agent: AgentProcess) -> None:
    service.refuse_puts = lambda key: 503
    service.run(assignment(command("echo", "the end")))
    service.wait_for("done")

    agent.kill()
    service.refuse_puts = lambda key: None
    agent.start()
    service.wait_for("drained")

    assert len(service.records("done", "failed", "stopped")) == 1
    assert service.log(0, "stdout") == b"the end\n"


def test_a_drained_generation_is_left_alone(service: NodeService, agent: AgentProcess) -> None:
    service.run(assignment(command("echo", "once")))
    service.wait_for("drained")

    agent.kill()
    agent.start()
    service.wait_for("boot", 2)
    exchanges = service.exchanges
    wait_until(lambda: service.exchanges > exchanges + 2, description="more exchanges")

    assert [record.type for record in service.records(generation=1)].count("drained") == 1
    assert service.statuses[-1].phase == "drained"
    assert service.statuses[-1].generation == 1


def test_what_escaped_its_ranks_is_killed_by_the_successor(service: NodeService, agent: AgentProcess) -> None:
    service.run(assignment(command("bash", "-c", "setsid sleep 60 & sleep 60")))
    service.wait_for("rank_up")
    wait_until(lambda: len(agent.ranks()) == 3, description="the shell and both sleeps")

    agent.kill()
    assert agent.ranks()
    agent.start()
    service.wait_for("failed")

    assert not agent.ranks()


def test_records_of_a_cut_journal_are_still_known(service: NodeService, make_agent: AgentMaker) -> None:
    agent = make_agent(environment={"SHUNTER_AGENT_JOURNAL_BYTES": "200"}).start()
    service.run(assignment(command("echo", "once")))
    service.wait_for("drained")
    wait_until(lambda: len(agent.journal()) < 4, description="the journal is cut")

    agent.kill()
    agent.start()
    service.wait_for("boot", 2)

    assert [record.seq for record in service.records()] == list(range(1, len(service.records()) + 1))
    assert len(service.records("drained")) == 1


def test_a_second_agent_on_a_folder_is_refused(service: NodeService, agent: AgentProcess) -> None:
    service.wait_for("boot")

    second = start_daemon(agent.folder)

    assert second.returncode == 1
    assert "another agent runs" in second.stderr
    assert agent.process.poll() is None


def test_start_returns_when_the_daemon_stands_and_says_who_it_is(tmp_path: Path, service: NodeService) -> None:
    folder = AgentProcess(tmp_path / "node", service).folder

    started = start_daemon(folder)
    identity = json.loads((folder / "agent.json").read_text())

    fields = Path(f"/proc/{identity['pid']}/stat").read_text().rsplit(")", 1)[1].split()
    assert (started.returncode, started.stdout, started.stderr) == (0, "", "")
    assert int(fields[19]) == identity["start_time"]
    assert os.getsid(identity["pid"]) != os.getsid(0)
    assert identity["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    service.wait_for("boot")
    os.kill(identity["pid"], signal.SIGTERM)
    wait_until(lambda: not Path(f"/proc/{identity['pid']}").exists(), description="the daemon ends")


def test_start_says_what_is_wrong_with_the_launch_file(tmp_path: Path) -> None:
    (tmp_path / "launch.json").write_text('{"node": "shn-x"}')

    refused = start_daemon(tmp_path)

    assert refused.returncode == 1
    assert "lacks sync_token, service_url" in refused.stderr


def start_daemon(folder: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "shunter_agent", "start", "--dir", str(folder)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=20)
