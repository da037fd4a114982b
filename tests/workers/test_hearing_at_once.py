"""What is wanted of a node reaches it at once, through the whole control plane, however seldom its agent comes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.control_plane import ControlPlane, control_plane, plain
from support.documents import changed, tiny_lm
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SIMULATED = {
    "nodes": "fleet",
    "boot_s": 0.1,
    "types": [{"name": "cpu-2", "usd_per_hour": 1.0, "cpu_slots": 2}],
    "fleet": {"prepare_s": 0.1, "stop_s": 0.1},
}
PROVIDERS = {"local": {"plugin": "local"}, "sim": {"plugin": "simulated", "settings": SIMULATED}}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Agents that run come once in ten minutes."""
    with control_plane(
        tmp_path_factory.mktemp("hearing") / "data",
        SHUNTER_PROVIDERS=json.dumps(PROVIDERS),
        SHUNTER_PACE__QUIET_S="600",
        SHUNTER_PACE__WATCHED_S="600",
    ) as running:
        yield running


def test_a_cancel_does_not_wait_for_the_turn_of_a_node(plane: ControlPlane) -> None:
    real = plane.submit(changed(plain("sleep", "600"), {"placement": {"providers": ["local"]}}))
    played = [plane.submit(changed(tiny_lm(), {"placement": {"providers": ["sim"]}})) for _ in range(3)]
    jobs = [real, *played]
    wait_until(lambda: all(plane.job(one)["state"] == "running" for one in jobs), timeout_s=90, description="all run")

    for job_id in jobs:
        plane.cancel(job_id)

    ended = [plane.wait_for(job_id, "cancelled", timeout_s=90) for job_id in jobs]
    assert {job["reason"] for job in ended} == {"cancelled_by_user"}
