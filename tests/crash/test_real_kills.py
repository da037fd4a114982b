"""A worker process kills itself with SIGKILL in the middle of a step; a real worker goes on, and the cloud's own books,
the ledger, the events and the output are held against each other."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from chaos import promises, record
from chaos.evidence import Told, gather
from chaos.programs import SOLO, counting
from support.control_plane import ControlPlane, control_plane
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TESTS = Path(__file__).parent.parent
KILLS = 1
POINTS_OF_A_LIFE = 260
"""About as many lie in the steps of one job; a point that a life does not reach kills nobody."""


def test_a_worker_that_is_killed_anywhere_in_a_step_breaks_no_promise(tmp_path: Path) -> None:
    cloud = {"sim": {"plugin": "simulated", "settings": {"boot_s": 0.3, "types": [SOLO]}}}
    points = Random().sample(range(POINTS_OF_A_LIFE), KILLS)
    data, marks = tmp_path / "data", tmp_path / "marks"
    marks.mkdir()
    with control_plane(data, SHUNTER_PROVIDERS=json.dumps(cloud)) as plane, plane.database() as database:
        record.begin(database)
        names = {kill_once(plane, marks, point): f"job-{point}" for point in points}

        broken = promises.broken(gather(database, data, marks, Told(names)))

    assert broken == [], points


def kill_once(plane: ControlPlane, marks: Path, point: int) -> str:
    """Let a doomed worker die at that point of a job's life and a real one bring it to its end; the job's id."""
    plane.kill("worker")
    job_id = plane.submit(counting(marks, f"job-{point}", 5))
    command = [sys.executable, "-m", "crash.doomed", str(point)]
    died = subprocess.run(command, env=plane.environ | {"PYTHONPATH": str(TESTS)}, timeout=90, check=False)
    assert died.returncode in (0, -signal.SIGKILL), f"point {point}: {died}"
    plane.start_worker()
    plane.wait_for(job_id, "succeeded", timeout_s=90)
    wait_until(lambda: not plane.agents(), timeout_s=30, description="no agent is left")
    return job_id
