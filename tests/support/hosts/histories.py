"""What a job over several hosts went through, read from its events and its rows in the ledger."""

from __future__ import annotations

from typing import Any

from shunter_store.node import ledger
from shunter_store.node.ledger import NodeRow
from support.control_plane import TERMINAL, ControlPlane
from support.hosts.plane import agents_on, ranks_on
from support.hosts.pool import Pool
from support.waiting import wait_until

RATE_USD_PER_HOUR = 1.0
"""What each host costs."""
_CENT = 0.01


def events_of(plane: ControlPlane, job_id: str, kind: str) -> list[dict[str, Any]]:
    """The data of the job's events of one kind, each with its number as `seq`."""
    return [{**event["data"], "seq": event["seq"]} for event in plane.events(job_id) if event["type"] == kind]


def committed(plane: ControlPlane, job_id: str, generation: int = 1) -> list[int]:
    """Steps of the checkpoints that a generation committed, in order."""
    found = events_of(plane, job_id, "checkpoint.committed")
    return [event["step"] for event in found if event["generation"] == generation]


def await_generation(plane: ControlPlane, job_id: str, generation: int, timeout_s: float = 150.0) -> dict[str, Any]:
    """The meeting of the gang whose ranks run, once that is of this generation or a later one."""
    seen: dict[str, Any] = {}

    def runs() -> bool:
        seen.update(plane.job(job_id))
        assert seen["state"] not in TERMINAL, seen
        return bool(seen["generation"] >= generation and seen["state"] == "running")

    wait_until(runs, timeout_s=timeout_s, description=f"generation {generation} of {job_id} runs")
    return next(met for met in events_of(plane, job_id, "gang.met") if met["generation"] == seen["generation"])


def rows_of(plane: ControlPlane, job_id: str) -> list[NodeRow]:
    """Every row of the ledger that the job ever had."""
    with plane.database() as database:
        return database.read(lambda conn: ledger.of_job(conn, job_id))


def assert_resumed_from_the_last_checkpoint(plane: ControlPlane, job_id: str, generation: int) -> None:
    """All nodes of the generation go on from what was committed last before they were told to run."""
    met = next(met for met in events_of(plane, job_id, "gang.met") if met["generation"] == generation)
    before = [event for event in events_of(plane, job_id, "checkpoint.committed") if event["seq"] < met["seq"]]
    points = [
        row.assignment["resume"]
        for row in rows_of(plane, job_id)
        if row.run_generation == generation and row.assignment
    ]
    assert before, "no checkpoint was committed"
    assert {(point["generation"], point["step"]) for point in points} == {
        (before[-1]["generation"], before[-1]["step"])
    }


def assert_nothing_is_left(plane: ControlPlane, pool: Pool, job_id: str) -> None:
    """No process on any host, no row open, and the job's cost is what its rows were held for."""
    wait_until(
        lambda: not any(ranks_on(host) or agents_on(host) for host in pool.hosts if host.is_on),
        timeout_s=60,
        description="nothing of the job runs on any host",
    )
    rows = rows_of(plane, job_id)
    assert {str(row.state) for row in rows} == {"gone"}
    held_s = sum(
        (row.gone_at - row.created_at).total_seconds() for row in rows if row.gone_at and row.created_at is not None
    )
    assert abs(plane.job(job_id)["cost"]["usd"] - held_s / 3600 * RATE_USD_PER_HOUR) < _CENT
