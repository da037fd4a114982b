"""Metric points outlive the change of their chunks' size, forward and back."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from shunter_schemas.node_sync import MetricPoint
from shunter_store.migrate import downgrade, upgrade
from shunter_store.report import metrics
from shunter_store.sql.database import Database
from shunter_store.tables import metric_chunks
from sqlalchemy import Connection, select
from support.store_rows import new_job

STEPS = [0, 1, 31, 32, 255, 256, 600, 1_000_000, 1_000_001]


def values(step: int) -> dict[str, float]:
    """Not every point has every value."""
    return {"loss": step / 7} | ({"eval": 1.0 + step} if step % 2 else {})


def look(conn: Connection, job_ids: list[str]) -> Any:
    """Everything that readers can see of the points, and the numbers of chunks."""
    seen = [
        (
            [(one.name, one.steps, one.at, one.generations, one.means) for one in metrics.series(conn, job_id)],
            metrics.arrivals(conn, job_id, 0, 10_000),
            metrics.starts(conn, job_id),
        )
        for job_id in job_ids
    ]
    columns = (metric_chunks.c.job_id, metric_chunks.c.generation, metric_chunks.c.chunk, metric_chunks.c.points)
    chunks = conn.execute(select(*columns)).all()
    return seen, sorted(
        (job_id, generation, chunk, len(points["steps"])) for job_id, generation, chunk, points in chunks
    )


@pytest.fixture
def jobs_with_points(database: Database) -> list[str]:
    made = [new_job(database).id for _ in range(3)]
    for job_id in made[:2]:
        for generation, steps in ((1, STEPS), (2, STEPS[3:6]), (1, [33])):
            points = [MetricPoint(step=step, at=1000.0 + step, values=values(step)) for step in steps]
            database.write(lambda conn, j=job_id, g=generation, p=points: metrics.add_points(conn, j, g, p))  # type: ignore[misc]
    return made


def test_points_are_the_same_after_the_way_back_and_forward(
    database: Database, database_url: str, jobs_with_points: list[str]
) -> None:
    before, small = database.read(lambda conn: look(conn, jobs_with_points))

    downgrade(database_url, "0007")
    with closing(Database.connect(database_url)) as old:
        large = old.read(lambda conn: conn.execute(select(metric_chunks.c.chunk).distinct()).scalars().all())
    upgrade(database_url)

    with closing(Database.connect(database_url)) as new:
        after, again = new.read(lambda conn: look(conn, jobs_with_points))
    assert after == before
    assert again == small
    assert sorted(large) == [0, 1, 2, 3906]
    assert {chunk for _, _, chunk, _ in small} == {0, 1, 7, 8, 18, 31250}
