"""Metric points by step and generation, binned on request; and progress."""

from datetime import UTC, datetime, timedelta

import pytest
from shunter_schemas.node_sync import MetricPoint, Progress
from shunter_store.report import metrics
from shunter_store.report.metrics import STEPS_PER_CHUNK, Arrival, Series
from shunter_store.sql.database import Database
from shunter_store.tables import metric_chunks
from sqlalchemy import Connection, func, select, update
from support.store_rows import new_job

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_points_are_read_as_one_series_a_name(database: Database) -> None:
    job = new_job(database).id
    add(database, job, 1, {1: {"loss": 3.0, "lr": 0.1}, 2: {"loss": 2.0}})

    made = series(database, job)

    assert [(one.name, one.steps, one.means) for one in made] == [("loss", [1, 2], [3.0, 2.0]), ("lr", [1], [0.1])]
    assert made[0].mins == made[0].maxs == made[0].means
    assert made[0].at == [1.0, 2.0]


def test_adding_points_again_changes_nothing_and_new_values_join_their_step(database: Database) -> None:
    job = new_job(database).id
    add(database, job, 1, {1: {"loss": 3.0}, 2: {"loss": 2.0}})
    add(database, job, 1, {1: {"loss": 3.0}, 2: {"loss": 2.5, "val_loss": 4.0}})

    made = {one.name: (one.steps, one.means) for one in series(database, job)}

    assert made == {"loss": ([1, 2], [3.0, 2.5]), "val_loss": ([2], [4.0])}


def test_a_repeated_step_shows_the_newest_generation(database: Database) -> None:
    job = new_job(database).id
    add(database, job, 2, {3: {"loss": 1.0}, 4: {"loss": 0.9}})
    add(database, job, 1, {step: {"loss": 9.0} for step in range(1, 6)})

    [loss] = series(database, job)

    assert loss.generations == [1, 1, 2, 2, 1]
    assert loss.means == [9.0, 9.0, 1.0, 0.9, 9.0]


def test_steps_lie_in_chunks(database: Database) -> None:
    job = new_job(database).id
    for first in range(0, 1000, 50):
        add(database, job, 1, {step: {"loss": float(step)} for step in range(first, first + 50)})

    rows = database.read(lambda conn: conn.execute(select(func.count()).select_from(metric_chunks)).scalar_one())

    [loss] = series(database, job)
    assert rows == -(-1000 // STEPS_PER_CHUNK)
    assert loss.means == [float(step) for step in range(1000)]


@pytest.mark.parametrize(
    ("from_step", "to_step", "steps"),
    [(0, None, [0, 255, 256, 511, 512]), (255, 511, [255, 256, 511]), (300, 400, []), (512, 512, [512])],
)
def test_a_range_takes_both_its_ends(database: Database, from_step: int, to_step: int | None, steps: list[int]) -> None:
    job = new_job(database).id
    add(database, job, 1, {step: {"loss": 1.0} for step in (0, 255, 256, 511, 512)})

    made = database.read(lambda conn: metrics.series(conn, job, from_step=from_step, to_step=to_step))

    assert [one.steps for one in made] == ([steps] if steps else [])


def test_bins_show_mean_least_and_greatest_and_lose_no_point(database: Database) -> None:
    job = new_job(database).id
    add(database, job, 1, {step: {"loss": float(step % 10)} for step in range(1000)})

    [loss] = database.read(lambda conn: metrics.series(conn, job, max_points=10))

    assert loss.steps == list(range(0, 1000, 100))
    assert loss.means == [4.5] * 10
    assert (loss.mins, loss.maxs) == ([0.0] * 10, [9.0] * 10)


@pytest.mark.parametrize(("points", "max_points", "bins"), [(3, 10, 3), (7, 3, 3), (5, 1, 1), (4, None, 4)])
def test_there_are_never_more_bins_than_points_or_than_asked(
    database: Database, points: int, max_points: int | None, bins: int
) -> None:
    job = new_job(database).id
    add(database, job, 1, {step: {"loss": 1.0} for step in range(points)})

    [loss] = database.read(lambda conn: metrics.series(conn, job, max_points=max_points))

    assert len(loss.steps) == bins


def test_series_are_chosen_by_name(database: Database) -> None:
    job = new_job(database).id
    add(database, job, 1, {1: {"a": 1.0, "b": 2.0, "c": 3.0}})

    made = database.read(lambda conn: metrics.series(conn, job, names=["c", "a", "nothing"]))

    assert [one.name for one in made] == ["a", "c"]


def test_the_newest_progress_wins_whatever_order_it_comes_in(database: Database) -> None:
    job, other = new_job(database).id, new_job(database).id
    for generation, second, step in [(1, 5, 50), (1, 3, 30), (2, 1, 40), (1, 9, 90)]:
        at = START + timedelta(seconds=second)
        reported = Progress(step=step, total_steps=100, values={"loss": 1.0}, eta_s=None)
        database.write(lambda conn, g=generation, a=at, r=reported: metrics.set_progress(conn, job, g, a, r))  # type: ignore[misc]

    known = database.read(lambda conn: metrics.progress(conn, [job, other]))

    assert set(known) == {job}
    assert (known[job].generation, known[job].step, known[job].total_steps) == (2, 40, 100)
    each = database.read(lambda conn: metrics.progress_by_generation(conn, job))
    assert [(row.generation, row.step) for row in each] == [(1, 90), (2, 40)]


def test_nobodys_progress_is_nothing(database: Database) -> None:
    assert database.read(lambda conn: metrics.progress(conn, [])) == {}


def test_a_reader_goes_on_behind_the_last_point_that_it_took(database: Database) -> None:
    job = new_job(database).id
    for first in range(0, 2000, 100):
        add(database, job, 1, {step: {"loss": float(step)} for step in range(first, first + 100)})

    taken = read_on(database, job, limit=300)

    assert [point.step for point in taken] == list(range(2000))
    assert [point.number for point in taken] == list(range(1, 2001))
    assert arrivals(database, job, taken[-1].number) == []


def test_a_value_that_comes_late_brings_its_step_again_and_no_other(database: Database) -> None:
    job = new_job(database).id
    for first in range(0, 3000, 500):
        add(database, job, 1, {step: {"loss": 1.0} for step in range(first, first + 500)})
    before = read_on(database, job)[-1].number
    add(database, job, 1, {10: {"loss": 1.0}, 700: {"loss": 1.0, "val_loss": 2.0}, 3001: {"loss": 0.5}})

    found = arrivals(database, job, before)

    assert [(point.step, point.values) for point in found] == [
        (700, {"loss": 1.0, "val_loss": 2.0}),
        (3001, {"loss": 0.5}),
    ]


def test_points_that_moved_to_the_end_are_not_taken_for_the_end(database: Database) -> None:
    job = new_job(database).id
    steps = range(0, 100 * STEPS_PER_CHUNK, STEPS_PER_CHUNK)
    add(database, job, 1, {step: {"loss": 1.0} for step in steps})
    add(database, job, 1, {step: {"val_loss": 1.0} for step in steps})

    taken = read_on(database, job, after=1, limit=7)

    assert [point.step for point in taken] == list(steps)


def test_points_of_the_time_before_numbers_come_first(database: Database) -> None:
    job = new_job(database).id
    add(database, job, 1, {step: {"loss": 1.0} for step in range(600)})
    database.write(lambda conn: conn.execute(update(metric_chunks).values(first_arrival=0, last_arrival=0)))
    database.write(forget_numbers)
    add(database, job, 1, {600: {"loss": 0.5}})

    first = arrivals(database, job, 0, limit=10)

    assert [point.step for point in first] == list(range(601))
    assert arrivals(database, job, first[-1].number) == []


def test_a_start_says_where_it_began_and_how_much_it_repeated(database: Database) -> None:
    job = new_job(database).id
    add(database, job, 1, {step: {"loss": 1.0} for step in range(1, 901)})
    add(database, job, 2, {step: {"loss": 1.0} for step in range(801, 851)})
    add(database, job, 3, {step: {"loss": 1.0} for step in range(841, 1001)})
    add(database, job, 4, {step: {"loss": 1.0} for step in range(1001, 1003)})

    found = database.read(lambda conn: metrics.starts(conn, job))

    assert [(start.generation, start.step, start.at, start.repeated_steps) for start in found] == [
        (1, 1, 1.0, 0),
        (2, 801, 801.0, 50),
        (3, 841, 841.0, 60),
        (4, 1001, 1001.0, 0),
    ]


def arrivals(database: Database, job_id: str, after: int, limit: int = 256) -> list[Arrival]:
    return database.read(lambda conn: metrics.arrivals(conn, job_id, after, limit))


def read_on(database: Database, job_id: str, *, after: int = 0, limit: int = 256) -> list[Arrival]:
    """Every point, page by page."""
    taken: list[Arrival] = []
    while page := arrivals(database, job_id, taken[-1].number if taken else after, limit):
        taken += page
    return taken


def forget_numbers(conn: Connection) -> None:
    for row in conn.execute(select(metric_chunks.c.chunk, metric_chunks.c.points)).all():
        old = {name: column for name, column in row.points.items() if name != "arrived"}
        conn.execute(update(metric_chunks).where(metric_chunks.c.chunk == row.chunk).values(points=old))


def add(database: Database, job_id: str, generation: int, steps: dict[int, dict[str, float]]) -> None:
    points = [MetricPoint(step=step, at=float(step), values=values) for step, values in steps.items()]
    database.write(lambda conn: metrics.add_points(conn, job_id, generation, points))


def series(database: Database, job_id: str) -> list[Series]:
    return database.read(lambda conn: metrics.series(conn, job_id))
