"""One generation from its start to `drained`, by real processes."""

from __future__ import annotations

import os
import signal

import pytest
from support.agents import TRAINING, AgentProcess, assignment, command, python, trainer
from support.node_service import NodeService
from support.waiting import wait_until


def test_a_program_that_ends_well_is_done_then_drained(service: NodeService, agent: AgentProcess) -> None:
    service.run(assignment(command("echo", "hello"), ranks={"ranks_per_node": 2}))

    service.wait_for("drained")

    types = [record.type for record in service.records(generation=1)]
    assert types[-1] == "drained"
    assert types.count("done") == 1
    assert sorted(data["rank"] for data in service.data("rank_up")) == [0, 1]
    assert sorted((data["rank"], data["exit_code"]) for data in service.data("rank_exit")) == [(0, 0), (1, 0)]
    assert service.log(0, "stdout") == service.log(1, "stdout") == b"hello\n"


def test_the_first_failing_rank_is_named_with_its_last_lines(service: NodeService, agent: AgentProcess) -> None:
    program = "import os, time\nif os.environ['RANK'] == '1': raise ValueError('no such column')\ntime.sleep(60)"
    service.run(assignment(python(program), ranks={"ranks_per_node": 3}))

    failed = service.wait_for("failed")

    assert (failed["rank"], failed["failure_class"], failed["reason"]) == (1, "user", "user_error")
    assert failed["exit_code"] == 1
    assert "ValueError: no such column" in failed["message"]
    assert service.wait_for("drained") == {}
    assert len(service.records("done", "failed", "stopped")) == 1


def test_a_rank_that_somebody_kills_is_the_nodes_fault(service: NodeService, agent: AgentProcess) -> None:
    service.run(assignment(command("sleep", "60"), ranks={"ranks_per_node": 2}))
    service.wait_for("rank_up", 2)
    victim = next(data["pid"] for data in service.data("rank_up") if data["rank"] == 1)

    os.kill(victim, signal.SIGKILL)
    failed = service.wait_for("failed")

    assert (failed["rank"], failed["failure_class"], failed["reason"]) == (1, "node", "signal")
    assert "SIGKILL" in failed["message"]
    assert not agent.ranks()


def test_a_stop_lets_the_ranks_save_and_tells_so(service: NodeService, agent: AgentProcess) -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(75)))\n"
        "print('ready', flush=True)\nwhile True: time.sleep(0.05)"
    )
    service.upload_logs = True
    service.run(assignment(python(program)))
    wait_until(lambda: service.log(0, "stdout") == b"ready\n", description="the handler is in place")

    service.stop()
    stopped = service.wait_for("stopped")

    assert (stopped["reason"], stopped["exit_code"]) == ("cancelled_by_user", 75)
    service.wait_for("drained")
    assert service.log(0, "stdout") == b"ready\nsaved\n"


def test_a_rank_that_does_not_stop_in_time_is_killed(service: NodeService, agent: AgentProcess) -> None:
    program = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(0.05)"
    service.run(assignment(python(program), stop_grace_s=0.3))
    service.wait_for("rank_up")

    service.stop()
    stopped = service.wait_for("stopped")

    assert "killed" in stopped["message"]
    assert stopped["exit_code"] is None


def test_a_grandchild_in_a_session_of_its_own_does_not_outlive_the_gang(
    service: NodeService, agent: AgentProcess
) -> None:
    service.run(assignment(command("bash", "-c", "setsid sleep 60 & sleep 0.3; exit 3")))

    service.wait_for("failed")

    wait_until(lambda: not agent.ranks(), description="the sleep is gone", timeout_s=3)


def test_a_higher_generation_replaces_the_one_that_runs(service: NodeService, agent: AgentProcess) -> None:
    service.run(assignment(command("sleep", "60")))
    service.wait_for("rank_up")

    service.run(assignment(command("echo", "second"), generation=2))
    service.wait_for("done", generation=2)

    assert service.wait_for("stopped", generation=1)["reason"] == "superseded"
    service.wait_for("drained", 2)
    assert service.log(0, "stdout", generation=2) == b"second\n"


def test_a_stop_before_anything_ran_is_drained_at_once(service: NodeService, agent: AgentProcess) -> None:
    service.stop(generation=1)

    service.wait_for("drained", generation=1)
    service.run(assignment(command("echo", "late")))
    exchanges = service.exchanges
    wait_until(lambda: service.exchanges > exchanges + 2, description="more exchanges")

    assert service.records("rank_up") == []
    assert len(service.records("stopped")) == 1


def test_a_released_agent_ends_by_itself(service: NodeService, agent: AgentProcess) -> None:
    service.run(assignment(command("sleep", "60")))
    service.wait_for("rank_up")

    service.release()

    assert agent.wait() == 0
    assert service.data("stopped")[0]["reason"] == "released"
    assert not agent.ranks()


def test_a_program_that_cannot_be_started_fails_with_its_name(service: NodeService, agent: AgentProcess) -> None:
    service.run(assignment(command("no-such-program-here")))

    failed = service.wait_for("failed")

    assert (failed["failure_class"], failed["reason"]) == ("user", "user_error")
    assert "no-such-program-here" in failed["message"]
    service.wait_for("drained")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0)])
def test_an_agent_that_is_asked_to_stop_saves_and_calls_it_an_interruption(
    service: NodeService, agent: AgentProcess, number: signal.Signals, code: int
) -> None:
    program = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(75))\nwhile True: time.sleep(0.05)"
    service.run(assignment(python(program)))
    service.wait_for("rank_up")

    agent.process.send_signal(number)

    assert agent.wait() == code
    failed = service.data("failed")[0]
    assert (failed["failure_class"], failed["reason"], failed["exit_code"]) == ("node", "interrupted", 75)


SAVES = """
import json, os, signal, sys, time
def tell(**values):
    with open(os.environ["SHUNTER_METRICS_FILE"], "a") as file:
        file.write(json.dumps(values) + "\\n")
saved = 0
def save(*_):
    global saved
    saved += 1
    print("saved", saved, flush=True)
signal.signal(signal.SIGUSR1, save)
tell(event="up")
print("rank", os.environ["RANK"], "is up", flush=True)
while True: time.sleep(0.05)
"""


def test_a_wish_for_a_checkpoint_reaches_the_first_rank_once_and_the_training_goes_on(
    service: NodeService, agent: AgentProcess
) -> None:
    service.upload_logs = True
    trainer(agent, SAVES)
    service.run(assignment(TRAINING, ranks={"ranks_per_node": 2}))
    service.desired["checkpoint"] = 4  # what was asked of earlier generations
    service.wait_for("rank_up", 2)

    service.desired["checkpoint"] = 5
    wait_until(lambda: b"saved" in service.log(0, "stdout"), description="the first rank has heard of it")
    exchanges = service.exchanges
    wait_until(lambda: service.exchanges > exchanges + 3, description="it is told of it again and again")
    service.desired["checkpoint"] = 6
    wait_until(lambda: b"saved 2" in service.log(0, "stdout"), description="the first rank has heard of the next")

    assert service.log(0, "stdout") == b"rank 0 is up\nsaved 1\nsaved 2\n"
    assert service.log(1, "stdout") == b"rank 1 is up\n"
    assert len(agent.ranks()) == 2


def test_a_wish_for_a_checkpoint_does_not_reach_a_script(service: NodeService, agent: AgentProcess) -> None:
    service.run(assignment(command("sleep", "60")))
    service.wait_for("rank_up")
    service.desired["checkpoint"] = 1
    exchanges = service.exchanges

    wait_until(lambda: service.exchanges > exchanges + 3, description="the agent has heard of it")

    assert len(agent.ranks()) == 1
    assert not service.records("rank_exit")
