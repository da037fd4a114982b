"""The same control plane on PostgreSQL."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from shunter_store.sql.database import Database
from support.control_plane import ControlPlane, control_plane, plain
from support.databases import empty

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(120)]


@pytest.fixture
def plane(postgres_database: str, tmp_path: Path) -> Iterator[ControlPlane]:
    with closing(Database.connect(postgres_database)) as database:
        empty(database)
    with control_plane(tmp_path / "data", SHUNTER_DATABASE_URL=postgres_database) as running:
        yield running


def test_jobs_wait_run_recover_and_end_on_postgresql(plane: ControlPlane, tmp_path: Path) -> None:
    program = "import os, pathlib, sys, time; time.sleep(0 if os.environ['SHUNTER_GENERATION'] == '2' else 600)"
    killed = plane.submit(plain(sys.executable, "-c", program))
    plane.wait_for(killed, "running")
    others = [plane.submit(plain("true", resources={"cpu_processes": 2})) for _ in range(5)]

    os.kill(plane.ranks()[0], signal.SIGKILL)

    job = plane.wait_for(killed, "succeeded")
    assert job["generation"] == 2
    for job_id in others:
        plane.wait_for(job_id, "succeeded", timeout_s=60)
    assert not plane.agents()
    assert "Traceback" not in plane.log("worker")
