"""Requests that are no documents, and what a change makes of a stored document."""

from __future__ import annotations

import json
from typing import Any

import pytest
from shunter_schemas.api import CancelRequest, JobPatch, RetryRequest
from shunter_schemas.changes import parse_request, with_changes
from shunter_schemas.faults import DocumentError
from shunter_schemas.job import JobSpec, load_job
from shunter_schemas.resources import Resources
from shunter_schemas.states import State
from shunter_schemas.strategies import FsdpStrategy
from support.documents import body, changed, tiny_lm


def stored(**changes: Any) -> dict[str, Any]:
    return load_job(changed(tiny_lm(), changes)).model_dump(mode="json")


def patched(document: dict[str, Any], patch: dict[str, Any]) -> JobSpec:
    return with_changes(document, parse_request(body(patch), JobPatch))


def faults(call: Any) -> dict[str, str]:
    with pytest.raises(DocumentError) as refused:
        call()
    return dict(refused.value.faults)


def test_labels_are_merged_and_null_takes_one_away() -> None:
    job = patched(stored(labels={"team": "nlp", "draft": "yes"}), {"labels": {"team": "vision", "draft": None}})

    assert job.labels == {"team": "vision"}


def test_limits_are_merged_and_null_lifts_one() -> None:
    document = stored(limits={"max_duration_s": 60, "max_queue_s": 5})

    job = patched(document, {"limits": {"max_duration_s": None, "max_cost_usd": 10}})

    assert (job.limits.max_duration_s, job.limits.max_queue_s, job.limits.max_cost_usd) == (None, 5, 10)


def test_what_is_left_out_stays() -> None:
    document = stored(labels={"team": "nlp"}, priority="high", limits={"max_queue_s": 5})

    assert patched(document, {}).model_dump(mode="json") == document


def test_the_rest_of_the_document_is_not_touched() -> None:
    document = stored()

    job = patched(document, {"priority": "low", "labels": {"a": "b"}, "limits": {"max_queue_s": 1}})

    mine = ("priority", "labels", "limits")
    rest = {name: value for name, value in job.model_dump(mode="json").items() if name not in mine}
    assert rest == {name: value for name, value in document.items() if name not in mine}


@pytest.mark.parametrize(
    ("patch", "pointer", "words"),
    [
        ({"limits": {"max_duration": 60}}, "/limits/max_duration", "did you mean `max_duration_s`"),
        ({"limits": {"max_duration_s": True}}, "/limits/max_duration_s", "must be a number"),
        ({"limits": {"max_cost_usd": -1}}, "/limits/max_cost_usd", "greater than 0"),
        ({"priority": "hihg"}, "/priority", "did you mean `high`"),
        ({"labels": {"-x": "y"}}, "/labels/-x", "the key must be"),
        ({"labels": ["team"]}, "/labels", "must be an object"),
        ({"name": "another"}, "/name", "unknown field"),
        ([], "", "must be an object"),
    ],
)
def test_a_patch_that_is_wrong_is_refused_with_its_place(patch: Any, pointer: str, words: str) -> None:
    assert words in faults(lambda: parse_request(body(patch), JobPatch))[pointer]


def test_a_patch_that_is_no_json_is_told_apart() -> None:
    with pytest.raises(DocumentError) as refused:
        parse_request(b"{", JobPatch)

    assert not refused.value.parseable


def test_more_labels_than_a_job_takes_are_refused_after_the_merge() -> None:
    document = stored(labels={f"old{number}": "" for number in range(20)})

    found = faults(lambda: patched(document, {"labels": {f"new{number}": "" for number in range(20)}}))

    assert list(found) == ["/labels"]


def test_a_limit_that_this_release_cannot_keep_is_refused() -> None:
    assert list(faults(lambda: patched(stored(), {"limits": {"max_gpu_idle_s": 60}}))) == ["/limits/max_gpu_idle_s"]


def test_a_retry_says_where_it_begins_and_may_change_what_a_patch_may() -> None:
    request = parse_request(b'{"from": "start", "limits": {"max_cost_usd": 5}}', RetryRequest)

    assert (request.from_, request.limits.max_cost_usd) == ("start", 5)


def test_a_retry_may_replace_strategy_and_resources() -> None:
    request = parse_request(
        b'{"strategy": {"kind": "fsdp", "wrap": ["Block"]}, "resources": {"cpu_processes": 4}}', RetryRequest
    )

    job = with_changes(stored(), request)

    assert job.strategy == FsdpStrategy(kind="fsdp", wrap=("Block",))
    assert job.resources == Resources(cpu_processes=4)


def test_what_a_replaced_part_clashes_with_is_named() -> None:
    request = RetryRequest(resources=Resources(cpu_processes=3))

    assert list(faults(lambda: with_changes(stored(), request))) == ["/workload/batch/global_size"]
    assert parse_request(b"{}", RetryRequest).from_ is None
    assert "/from" in faults(lambda: parse_request(b'{"from": "middle"}', RetryRequest))


@pytest.mark.parametrize(
    ("request_", "pointer"),
    [
        ({"state": ["runing"]}, "/state/0"),
        ({"state": "running"}, "/state"),
        ({"label": ["=x"]}, "/label/0"),
        ({"label": ["a b=c"]}, "/label/0"),
        ({"commit": "HEAD"}, "/commit"),
        ({"created_after": "yesterday"}, "/created_after"),
        ({"created_after": "2026-11-30T00:00:00"}, "/created_after"),
        ({"states": ["running"]}, "/states"),
    ],
)
def test_filters_of_a_cancel_are_checked(request_: dict[str, Any], pointer: str) -> None:
    assert pointer in faults(lambda: parse_request(body(request_), CancelRequest))


def test_filters_of_a_cancel_are_read() -> None:
    sent = {"state": ["running"], "label": ["team=nlp", "sweep", "empty="], "created_after": "2026-11-30T04:53:15Z"}

    request = parse_request(json.dumps(sent).encode(), CancelRequest)

    assert request.state == (State.RUNNING,)
    assert request.label == ("team=nlp", "sweep", "empty=")
    assert request.created_after is not None
