"""A worker process dies between two lines of a step; another one carries on, and there is never a twin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from shunter_providers.contract import Instance, OfferQuery
from shunter_providers.local import LocalProvider
from shunter_providers.testing import make_intent
from shunter_schemas.node_sync import LaunchFile
from shunter_schemas.states import NodeState
from shunter_store.installation import deployment
from shunter_store.node import ledger
from shunter_workers.packing import pack_launch
from support.control_plane import ControlPlane, plain
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TESTS = Path(__file__).parent.parent


def crash(plane: ControlPlane, point: str) -> None:
    """Let a doomed process step what is due until it dies there."""
    command = [sys.executable, "-m", "support.crashing_step", point]
    died = subprocess.run(command, env=plane.environ | {"PYTHONPATH": str(TESTS)}, timeout=60, check=False)
    assert died.returncode == 9, f"{point} was never reached"


@pytest.mark.parametrize(
    "point", [pytest.param("before_create", marks=pytest.mark.nightly), "after_create", "after_handle"]
)
def test_a_step_that_dies_around_a_create_leaves_one_node(own_plane: ControlPlane, tmp_path: Path, point: str) -> None:
    own_plane.kill("worker")
    gate = tmp_path / "gate"
    job_id = own_plane.submit(plain("sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done"))

    crash(own_plane, point)
    with own_plane.database() as database:
        rows = database.read(lambda conn: ledger.of_job(conn, job_id))
    own_plane.start_worker()

    assert len(rows) == 1, "the intent was committed before the call"
    own_plane.wait_for(job_id, "running", timeout_s=60)
    assert len(own_plane.agents()) == 1
    gate.touch()
    job = own_plane.wait_for(job_id, "succeeded")
    if point != "before_create":
        assert [node["token"] for node in job["nodes"]] == [rows[0].token], "found again by its token"
    assert not own_plane.agents()


@pytest.mark.parametrize("point", [pytest.param("before_terminate", marks=pytest.mark.nightly), "after_terminate"])
def test_a_step_that_dies_around_a_terminate_leaves_no_node(own_plane: ControlPlane, point: str) -> None:
    job_id = own_plane.submit(plain("sleep", "600"))
    own_plane.wait_for(job_id, "running")
    own_plane.kill("worker")
    own_plane.cancel(job_id)

    crash(own_plane, point)
    with own_plane.database() as database:
        (row,) = database.read(lambda conn: ledger.of_job(conn, job_id))
    own_plane.start_worker()

    assert row.state is NodeState.RELEASING, "nothing is closed without proof"
    own_plane.wait_for(job_id, "cancelled", timeout_s=60)
    assert not own_plane.agents()


async def test_a_node_that_the_ledger_does_not_know_is_ended(own_plane: ControlPlane) -> None:
    with own_plane.database() as database:
        ours = database.read(deployment.get_or_create).id
    provider = LocalProvider(Instance("local", "local", {}, str(own_plane.data_dir)))
    (offer, *_) = await provider.offers(OfferQuery())
    launch = pack_launch(LaunchFile(node="stranger", sync_token="unknown", service_url=own_plane.url))
    known = own_plane.submit(plain("sleep", "600"))
    own_plane.wait_for(known, "running")

    stranger = await provider.create(make_intent(ours, offer, launch))

    wait_until(lambda: stranger not in own_plane.agents(), description="the stranger is ended")
    assert own_plane.job(known)["state"] == "running", "and nobody else"
    own_plane.cancel(known)
    own_plane.wait_for(known, "cancelled")
