"""Metrics over the API: curves with marks, and what arrives later."""

from typing import Any

import pytest
from shunter_schemas.node_sync import MetricPoint
from shunter_schemas.states import Reason
from shunter_store.report import metrics
from support.event_streams import read_whole
from support.service_app import App
from support.store_rows import new_job


@pytest.fixture
def job_id(app: App) -> str:
    return new_job(app.database).id


def add(app: App, job_id: str, generation: int, steps: range, **values: float) -> None:
    points = [MetricPoint(step=step, at=100.0 * generation + step, values=values or {"loss": step}) for step in steps]
    app.database.write(lambda conn: metrics.add_points(conn, job_id, generation, points))


async def get(app: App, job_id: str, **params: Any) -> dict[str, Any]:
    answer = await app.http.get(f"/v1/jobs/{job_id}/metrics", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def end(app: App, job_id: str) -> None:
    part = app.worker_part(job_id)
    part.run()
    part.end(Reason.DONE)


async def test_a_start_is_marked_with_what_it_repeated_and_a_range_shows_its_own_marks(app: App, job_id: str) -> None:
    add(app, job_id, 1, range(100))
    add(app, job_id, 2, range(80, 120))

    whole = await get(app, job_id, max_points=12)
    part = await get(app, job_id, from_step=50, to_step=90)

    assert whole["marks"] == [
        {"step": 0, "at": "1970-01-01T00:01:40.000Z", "kind": "generation", "generation": 1, "repeated_steps": 0},
        {"step": 80, "at": "1970-01-01T00:04:40.000Z", "kind": "generation", "generation": 2, "repeated_steps": 20},
    ]
    [loss] = whole["series"]
    assert (loss["steps"], loss["min"][0], loss["max"][-1]) == ([*range(0, 120, 10)], 0.0, 119.0)
    assert [mark["step"] for mark in part["marks"]] == [80]
    assert part["series"][0]["steps"] == [*range(50, 91)]
    assert part["series"][0]["times_s"][30] == 280.0


async def test_the_answer_for_the_longest_run_is_bounded_unasked_and_says_so_by_its_bins(app: App, job_id: str) -> None:
    add(app, job_id, 1, range(10_001))

    whole = await get(app, job_id)
    all_but_one = await get(app, job_id, from_step=1)

    [bins], [points] = whole["series"], all_but_one["series"]
    assert (len(bins["steps"]), bins["max"][-1]) == (10_000, 10_000.0)
    assert (len(points["steps"]), points.get("max")) == (10_000, None)


async def test_what_arrives_later_is_read_behind_a_number_until_the_job_has_ended(app: App, job_id: str) -> None:
    add(app, job_id, 1, range(10))
    first = await get(app, job_id, max_points=2)
    add(app, job_id, 1, range(8, 12), loss=0.5, lr=1.0)

    second = await get(app, job_id, after=first["next_after"])
    only = await get(app, job_id, after=first["next_after"], name="lr")
    third = await get(app, job_id, after=second["next_after"])
    end(app, job_id)
    last = await get(app, job_id, after=second["next_after"])

    assert [(one["name"], one["steps"]) for one in second["series"]] == [
        ("loss", [8, 9, 10, 11]),
        ("lr", [8, 9, 10, 11]),
    ]
    assert [one["name"] for one in only["series"]] == ["lr"]
    assert (third["series"], third["ended"], last["series"], last["ended"]) == ([], False, [], True)


async def test_the_stream_gives_every_point_and_goes_on_behind_any_message(app: App, job_id: str) -> None:
    add(app, job_id, 1, range(600))
    add(app, job_id, 2, range(500, 700))
    end(app, job_id)
    path = f"/v1/jobs/{job_id}/metrics"

    whole = await read_whole(app, path)
    middle = whole.messages[1]
    rest = await read_whole(app, path, **{"Last-Event-ID": middle.id})

    def steps(messages: list[Any]) -> list[tuple[int, int]]:
        return [(one.data["generation"], step) for one in messages for step in one.data["series"][0]["steps"]]

    assert steps(whole.messages) == [*((1, step) for step in range(600)), *((2, step) for step in range(500, 700))]
    assert rest.messages == whole.messages[2:]
    assert [int(one.id) for one in whole.messages] == [one.data["next_after"] for one in whole.messages]


async def test_curves_of_a_long_training_are_binned_quickly_enough(app: App, job_id: str) -> None:
    for first in range(0, 20_000, 5000):
        add(app, job_id, 1, range(first, first + 5000), loss=1.0, lr=0.1, grad_norm=2.0)

    found = await get(app, job_id, max_points=500)

    assert [len(one["steps"]) for one in found["series"]] == [500, 500, 500]
    assert found["next_after"] == 20_000
