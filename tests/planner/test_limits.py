"""Limits against predictions: what is refused and how, what is told, and what a job that ran still needs."""

from __future__ import annotations

from typing import Any

import pytest
from shunter_planner import Candidate, Facts, History, Plan, Refusal, plan
from shunter_planner.limits import human_s
from shunter_schemas.job import JobSpec
from shunter_schemas.states import Reason
from support.plans import H100, TINY, on_cpus, training


def answer(document: JobSpec, candidate: Candidate = H100, **facts: Any) -> Plan | Refusal:
    return plan(document, [candidate], Facts(instances=("alpha",), **facts), History())


def taken(document: JobSpec, candidate: Candidate = H100, **facts: Any) -> Plan:
    found = answer(document, candidate, **facts)
    assert isinstance(found, Plan), found
    return found


def refused(document: JobSpec, **facts: Any) -> Refusal:
    found = answer(document, **facts)
    assert isinstance(found, Refusal), found
    return found


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.5, "0.5 s"),
        (44.6, "45 s"),
        (100, "1.7 min"),
        (1800, "30 min"),
        (9076, "2.5 h"),
        (145_104, "40 h"),
        (900_000, "10 days"),
        (86_400 * 1234, "1,200 days"),
    ],
)
def test_durations_are_told_in_two_digits_and_the_unit_that_people_use(seconds: float, words: str) -> None:
    assert human_s(seconds) == words


def test_a_training_that_surely_takes_longer_is_refused_with_the_field_and_the_number_that_would_do() -> None:
    found = refused(training(limits={"max_duration_s": 1800}))

    assert found.reason is Reason.DURATION_EXCEEDED
    assert "at most 30 min allowed (limits.max_duration_s)" in found.detail
    assert "; raise limits.max_duration_s to 5" in found.detail
    assert found.detail.endswith("or ask for fewer steps (workload.duration), or more GPUs (resources.gpus)")


def test_with_the_duration_that_the_refusal_names_the_training_goes_without_a_note() -> None:
    told = refused(training(limits={"max_duration_s": 1800})).detail
    named = float(told.partition("raise limits.max_duration_s to ")[2].partition(",")[0])

    assert taken(training(limits={"max_duration_s": named})).notes == ()


def test_a_budget_that_is_surely_too_small_is_refused_with_the_one_that_would_do() -> None:
    told = refused(training(limits={"max_cost_usd": 5.0})).detail
    named = float(told.partition("raise limits.max_cost_usd to ")[2].partition(",")[0])

    assert taken(training(limits={"max_cost_usd": named})).notes == ()


def on_a_cpu(**limits: float) -> JobSpec:
    workload = {
        "model": TINY,
        "data": {"kind": "synthetic", "sequence_length": 128},
        "duration": {"steps": 1_000_000},
        "precision": "fp32",
    }
    return training(workload=workload, resources={"cpu_processes": 2}, limits=limits)


def test_the_speed_of_cpus_is_a_guess_so_that_a_limit_of_time_there_is_told_and_not_refused() -> None:
    found = taken(on_a_cpu(max_duration_s=60.0), on_cpus())

    (note,) = found.notes
    assert note.startswith("limits.max_duration_s (60 s) is likely to be reached before the end: ")


def test_a_job_that_goes_on_needs_only_what_is_left_of_it_on_top_of_what_it_cost() -> None:
    """The whole costs 23 USD at the least."""
    document = training(limits={"max_cost_usd": 20.0})

    whole = refused(document)
    late = taken(document, spent_usd=15.0, steps_done=950)
    spent = refused(document, spent_usd=19.9, steps_done=900)

    assert whole.reason is spent.reason is Reason.BUDGET_EXHAUSTED
    assert late.notes == ()


def test_a_job_that_goes_on_has_the_rest_of_its_time() -> None:
    document = training(limits={"max_duration_s": 3000})

    assert isinstance(answer(document, ran_s=2700.0, steps_done=980), Plan)
    assert refused(document, ran_s=2900.0, steps_done=500).reason is Reason.DURATION_EXCEEDED


def test_sizes_that_ran_out_of_memory_are_not_planned_again() -> None:
    first = taken(training())
    assert first.micro_size is not None
    smaller = max(1, first.micro_size // 2)

    again = taken(training(), most_micro_size=smaller)

    assert (again.micro_size, again.accumulation) == (smaller, 8 // smaller)
