"""`strategy: auto` through a whole service: planned, pinned, run, and shown with what was predicted and measured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shunter import Client
from support.documents import REPOSITORY
from support.up_process import Up, running_up
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.trainer, pytest.mark.timeout(400)]

EXAMPLE = REPOSITORY / "examples" / "tiny-lm-ddp.json"
SHORT = ("strategy.kind=auto", "workload.duration.steps=40", "workload.evaluation.every_steps=20")
SIMULATED = """
[providers.local]
plugin = "local"

[providers.sim]
plugin = "simulated"
"""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A service on a simulated cloud beside this machine, which has read what both offer."""
    folder = tmp_path_factory.mktemp("cloud")
    (folder / "shunter.toml").write_text(SIMULATED)
    with running_up(folder) as process, Client(data_dir=process.data_dir) as client:
        wait_until(
            lambda: all(one.status == "ok" for one in client.providers()),
            description="both providers were read",
            timeout_s=60,
        )
        yield process


@pytest.mark.parametrize("provider", [pytest.param("local", marks=pytest.mark.nightly), "sim"])
def test_auto_is_pinned_by_a_plan_and_runs_as_it_says(cloud: Up, provider: str) -> None:
    where = f'placement.providers=["{provider}"]'
    with Client(data_dir=cloud.data_dir) as client:
        submitted = client.submit(EXAMPLE, settings=[*SHORT, where, "limits.max_cost_usd=5"])
        job = client.wait(submitted.id, timeout_s=300)

    assert (job.state, job.message) == ("succeeded", None)
    assert job.spec["strategy"] == {"kind": "auto"}
    plan = job.plan
    assert plan is not None
    assert (plan.strategy, plan.provider) == ("ddp", provider)
    assert plan.why.startswith("the simplest strategy, and it fits: needs ")
    assert plan.micro_size is not None
    assert plan.accumulation is not None
    assert plan.micro_size * plan.accumulation * plan.world_size == job.spec["workload"]["batch"]["global_size"]
    assert plan.time is not None
    assert plan.time.steps == 40
    assert plan.measured is not None
    assert plan.measured.tokens_per_s is not None
    assert plan.measured.start_up_s is not None


def test_what_is_planned_before_is_what_the_job_then_gets(cloud: Up) -> None:
    with Client(data_dir=cloud.data_dir) as client:
        planned = client.plan(EXAMPLE, settings=[*SHORT, 'placement.providers=["sim"]', "limits.max_cost_usd=5"])

    assert planned.chosen is not None, planned.refused
    assert planned.chosen.strategy["kind"] == "ddp"
    assert planned.chosen.instance_type == "cpu-2"
    assert planned.chosen.cost.usd_per_hour > 0
