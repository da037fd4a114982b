"""Whatever the bytes: a document or a refusal whose pointers resolve, never anything else."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from shunter_schemas.faults import DocumentError, nearest_existing
from shunter_schemas.job import JobSpec
from shunter_schemas.parse import parse_job, parse_posted_job
from shunter_schemas.reading import read_json
from support.documents import everything, script, tiny_lm

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["auto", "ddp", "input:a/b", "${inputs.a}", "bundle:x", "s3://x", "..", "training", "python"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8) | st.sampled_from(["kind", "min", "fraction", "from"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def _places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path]
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in members:
        found += _places(item, (*path, step))
    return found


def _put(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    if not path:
        return value
    result = copy.deepcopy(document)
    place = result
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return result


@st.composite
def _mutants(draw: st.DrawFn) -> bytes:
    document: Any = draw(st.sampled_from([tiny_lm(), script(), everything()]))
    for _ in range(draw(st.integers(1, 3))):
        places = _places(document)
        path = draw(st.sampled_from(places))
        if draw(st.booleans()):
            path = (*path, draw(st.sampled_from(["kind", "training", "x", "from", "a/~b", "path", "gpus"])))
            document = document if isinstance(_at(document, path[:-1]), dict) else {}
            path = path if document else ()
        document = _put(document, path, draw(VALUES))
    return json.dumps(document, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


def _at(document: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


def _check(body: bytes) -> None:
    try:
        job = parse_job(body)
    except DocumentError as refusal:
        _check_refusal(body, refusal)
    else:
        assert isinstance(job, JobSpec)
        assert JobSpec.model_validate_json(job.model_dump_json()) == job


def _check_refusal(body: bytes, refusal: DocumentError) -> None:
    assert refusal.faults
    assert all(fault.detail for fault in refusal.faults)
    if refusal.parseable:
        document = json.loads(body)
        assert [fault.pointer for fault in refusal.faults] == [
            nearest_existing(fault.pointer, document) for fault in refusal.faults
        ]
    else:
        assert [fault.pointer for fault in refusal.faults] == [""]


@settings(max_examples=300, deadline=None)
@given(_mutants())
def test_a_mutated_document_is_accepted_or_refused_with_pointers_that_resolve(body: bytes) -> None:
    _check(body)


@settings(max_examples=200, deadline=None)
@given(VALUES.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=100))
@example(b"")
@example(b"[" * 100_000)
@example(b'{"version": "1", "workload": {"kind": "training", "training": {"kind": "training"}}}')
def test_arbitrary_bytes_are_refused_and_nothing_else_happens(body: bytes) -> None:
    _check(body)


@settings(max_examples=100, deadline=None)
@given(_mutants())
def test_what_the_service_accepts_the_command_line_accepts_too(body: bytes) -> None:
    try:
        job = parse_posted_job(body)
    except DocumentError:
        return

    assert parse_job(body) == job
    assert isinstance(read_json(body), dict)
