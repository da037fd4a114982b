"""The API's answers: their size, their times, and that readers bear what they do not know."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from shunter_schemas.api import Job, JobSummary, Timestamp, Transition
from shunter_schemas.states import State

TIMESTAMP: TypeAdapter[datetime] = TypeAdapter(Timestamp)
LEAST_JOB: dict[str, Any] = {
    "id": "job_01kb9m4t8zq3v5x7y9a1c3e5g7",
    "name": "a",
    "state": "queued",
    "created_at": "2026-11-30T04:53:15.123Z",
    "updated_at": "2026-11-30T04:53:15.123Z",
    "revision": 1,
    "spec": {},
}


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 11, 30, 4, 53, 15, 123456, UTC), "2026-11-30T04:53:15.123Z"),
        (datetime(2026, 11, 30, 4, 53, 15, 0, UTC), "2026-11-30T04:53:15.000Z"),
        (datetime(2026, 11, 30, 1, 0, 0, 0, timezone(timedelta(hours=2))), "2026-11-29T23:00:00.000Z"),
    ],
)
def test_times_are_written_in_utc_with_milliseconds(moment: datetime, text: str) -> None:
    written = TIMESTAMP.dump_json(TIMESTAMP.validate_python(moment))

    assert json.loads(written) == text
    assert TIMESTAMP.validate_json(written).tzinfo is UTC


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="timezone"):
        TIMESTAMP.validate_python(datetime(2026, 11, 30))  # that is the point


def test_the_longest_summary_of_a_job_takes_300_bytes_or_less() -> None:
    moment = datetime(2026, 11, 30, tzinfo=UTC)
    summary = JobSummary(
        id="job_" + "7" * 26,
        name="n" * 63,
        state=State.PROVISIONING,
        reason="recovery_exhausted",
        step=1_000_000_000,
        total_steps=1_000_000_000,
        created_at=moment,
        finished_at=moment,
    )

    assert len(summary.model_dump_json(exclude_none=True)) <= 300
    assert (
        len(summary.model_copy(update={"finished_at": None, "paused": True}).model_dump_json(exclude_none=True)) <= 300
    )


def test_a_reader_ignores_fields_that_a_newer_service_adds() -> None:
    job = Job.model_validate_json(json.dumps({**LEAST_JOB, "colour": "red", "cost": {"usd": 1.0, "eur": 0.9}}))

    assert job.cost.usd == 1.0
    assert not hasattr(job, "colour")


def test_a_transition_is_written_with_from_and_to() -> None:
    moment = datetime(2026, 11, 30, tzinfo=UTC)
    transition = Transition(at=moment, from_=State.QUEUED, to=State.PROVISIONING)

    written = transition.model_dump(mode="json", exclude_none=True)

    assert written == {"at": "2026-11-30T00:00:00.000Z", "from": "queued", "to": "provisioning"}
    assert Transition.model_validate(written) == transition


def test_a_job_reads_back_as_it_was_written() -> None:
    job = Job.model_validate_json(json.dumps(LEAST_JOB))

    assert Job.model_validate_json(job.model_dump_json()) == job
