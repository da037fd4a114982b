"""The service goes away, loses answers, forgets, moves: nothing is lost, nothing comes twice, no training stops."""

from __future__ import annotations

from pathlib import Path

from support.agents import AgentMaker, AgentProcess, assignment, command, python
from support.node_service import NodeService
from support.waiting import wait_until

STEPS = (
    "import json, os, sys, time\n"
    "metrics = open(os.environ['SHUNTER_METRICS_FILE'], 'a')\n"
    "for step in range(40):\n"
    "    print(json.dumps({'step': step, 'loss': 1 / (step + 1)}), file=metrics, flush=True)\n"
    "    print('step', step, flush=True)\n"
    "    time.sleep(0.03)\n"
)


def test_a_training_goes_on_without_the_service_and_is_caught_up_with(
    service: NodeService, agent: AgentProcess
) -> None:
    service.run(assignment(python(STEPS)))
    service.wait_for("metrics")

    with service.absent():
        wait_until(
            lambda: any(one["type"] == "done" for one in agent.journal()), description="done without the service"
        )
    service.wait_for("drained")

    assert [step for step, _ in service.points()] == list(range(40))
    assert service.log(0, "stdout") == b"".join(b"step %d\n" % step for step in range(40))
    assert [record.seq for record in service.records()] == list(range(1, len(service.records()) + 1))


def test_answers_that_get_lost_make_no_record_come_twice(service: NodeService, agent: AgentProcess) -> None:
    service.lost_answers = 5
    service.run(assignment(python(STEPS)))

    service.wait_for("drained")

    assert service.lost_answers == 0
    assert [step for step, _ in service.points()] == list(range(40))
    assert len(service.records("done")) == 1


def test_a_refused_token_stops_nothing(service: NodeService, agent: AgentProcess) -> None:
    service.run(assignment(python(STEPS)))
    service.wait_for("rank_up")

    service.status_code = 401
    wait_until(lambda: any(one["type"] == "done" for one in agent.journal()), description="done without the service")
    service.status_code = None

    service.wait_for("drained")


def test_an_agent_that_the_service_forgot_ends_only_when_nothing_runs(
    service: NodeService, agent: AgentProcess
) -> None:
    service.run(assignment(command("sleep", "1.5")))
    service.wait_for("rank_up")

    service.status_code = 410
    wait_until(lambda: any(one["type"] == "done" for one in agent.journal()), description="the training ends well")

    assert agent.wait() == 0


def test_an_agent_follows_a_service_that_moves(tmp_path: Path, make_agent: AgentMaker, service: NodeService) -> None:
    where = tmp_path / "url"
    where.write_text("http://127.0.0.1:9")  # nobody listens there
    agent = make_agent(service_url_file=str(where), environment={"SHUNTER_AGENT_RETRY_FIRST_S": "60"})
    agent.start()
    wait_until(lambda: "sync:" in agent.log(), description="the agent has failed to reach it")

    where.write_text(service.url)

    service.wait_for("boot", seconds=3)


def test_what_is_of_note_does_not_wait_for_the_next_exchange(make_agent: AgentMaker, service: NodeService) -> None:
    service.next_sync_s = 300
    service.run(assignment(command("sleep", "0.4")))
    make_agent(environment={"SHUNTER_AGENT_LOOK_S": "300", "SHUNTER_AGENT_UP_AFTER_S": "0"}).start()

    service.wait_for("done", seconds=5)


def test_many_records_go_in_several_messages(service: NodeService, make_agent: AgentMaker) -> None:
    program = (
        "import os\n"
        "lines = ''.join('{\"step\": %d, \"loss\": 1.0}\\n' % step for step in range(40000))\n"
        "open(os.environ['SHUNTER_METRICS_FILE'], 'w').write(lines)\n"
    )
    service.next_sync_s = 300
    service.run(assignment(python(program)))

    make_agent().start()
    service.wait_for("drained")

    assert [step for step, _ in service.points()] == list(range(40000))
