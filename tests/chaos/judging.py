"""Judges a control plane that goes on: for tests that share one."""

from __future__ import annotations

from pathlib import Path

from support.waiting import wait_until

from chaos import promises
from chaos.evidence import Told, gather
from chaos.site import Site


def judged(played: Site, marks: Path) -> list[str]:
    """What was broken so far, of all jobs that there are. Waits until no node is left."""
    wait_until(lambda: not played.agents(), timeout_s=60, description="every node is gone")
    wait_until(lambda: set(played.states().values()) <= {"succeeded"}, timeout_s=60, description="every job is over")
    with played.database() as database:
        names = {job_id: job_id for job_id in played.states()}
        return promises.broken(gather(database, played.data_dir, marks, Told(names)))
