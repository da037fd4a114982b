"""Everything goes wrong at once, at random moments; what must hold all the same."""

from __future__ import annotations

import random
import subprocess

import pytest
from support.agents import AgentProcess, assignment, python
from support.node_service import NodeService
from support.waiting import wait_until

PROGRAM = """
import json, os, pathlib, time
metrics = open(os.environ["SHUNTER_METRICS_FILE"], "a")
for step in range(30):
    print("line", step, "x" * 200, flush=True)
    print(json.dumps({"step": step, "loss": 1.0}), file=metrics, flush=True)
    time.sleep(0.03)
pathlib.Path(os.environ["SHUNTER_OUTPUT_DIR"], "model").write_text("weights")
"""
GENERATIONS = 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_crashes_outages_and_lost_answers_lose_nothing_and_double_nothing(
    service: NodeService, agent: AgentProcess, seed: int
) -> None:
    chance = random.Random(seed)
    service.upload_logs = True
    service.refuse_puts = lambda key: chance.choice([None, None, None, 503, 500])

    for generation in range(1, GENERATIONS + 1):
        service.lost_answers = chance.choice([0, 0, 1, 3])
        service.run(assignment(python(PROGRAM), generation=generation, ranks={"ranks_per_node": 2}))
        if generation < GENERATIONS:
            disturb(service, agent, chance)
    service.wait_for("done", generation=GENERATIONS, seconds=30)
    service.wait_for("drained", generation=GENERATIONS, seconds=30)

    begun = sorted({record.generation for record in service.records() if record.generation})
    wait_until(
        lambda: all(service.records("drained", generation=number) for number in begun),
        description="every generation that began is drained",
        timeout_s=20,
    )
    for number in begun:
        assert len(service.records("done", "failed", "stopped", generation=number)) == 1
        assert len(service.records("drained", generation=number)) == 1
        assert steps_of(service, number) == sorted(set(steps_of(service, number)))
        for rank in (0, 1):
            written = agent.folder / f"logs/{number}/rank-{rank}.stdout"
            assert service.log(rank, "stdout", number) == (written.read_bytes() if written.exists() else b"")
    assert steps_of(service, GENERATIONS) == list(range(30))
    assert [data["file"]["path"] for data in service.data("artifact", GENERATIONS)] == ["model"]


def steps_of(service: NodeService, generation: int) -> list[int]:
    return [step for step, _ in service.points(generation)]


def disturb(service: NodeService, agent: AgentProcess, chance: random.Random) -> None:
    """Kill the agent, the service, or both, at some moment of the generation."""
    moment = chance.uniform(0.0, 0.8)
    waited = chance.choice(["crash", "outage", "both", "stop"])
    agent_alive_for(agent, moment)
    if waited in ("outage", "both"):
        service.away()
        agent_alive_for(agent, chance.uniform(0.0, 0.5))
    if waited in ("crash", "both"):
        agent.kill()
        agent.start()
    if waited in ("outage", "both"):
        service.back()
    if waited == "stop":
        service.stop(generation=service.desired["generation"])
        agent_alive_for(agent, chance.uniform(0.0, 0.5))


def agent_alive_for(agent: AgentProcess, seconds: float) -> None:
    """Let it run; it must not end by itself."""
    with pytest.raises(subprocess.TimeoutExpired):
        agent.wait(seconds)
