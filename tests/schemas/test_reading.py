"""Bytes that are no document: each is refused for what it is, and none hurts the reader."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shunter_schemas.faults import DocumentError
from shunter_schemas.reading import MAX_DEPTH, read_json


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "not JSON: it is empty"),
        (b"{", "not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        (b"{} {}", "not JSON: Extra data at line 1, column 4"),
        (b'{"a": "b', "not JSON: Unterminated string starting at line 1, column 7"),
        (b'{"a": "\x00"}', "not JSON: Invalid control character at line 1, column 8"),
        (b'{"a": NaN}', "not JSON: NaN is no JSON number"),
        (b'{"a": -Infinity}', "not JSON: -Infinity is no JSON number"),
        (b"\xef\xbb\xbf{}", "not JSON: it begins with a byte order mark; save it without"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        (b'"\xed\xa0\x80"', "not UTF-8 at byte 1"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8 at byte 0"),
        (b"[" * 5000, f"nested deeper than {MAX_DEPTH} levels"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, f"nested deeper than {MAX_DEPTH} levels"),
        (b"[" * 500_000 + b"]" * 500_000, f"nested deeper than {MAX_DEPTH} levels"),
    ],
)
def test_bytes_that_are_no_readable_json_are_not_parseable(body: bytes, detail: str) -> None:
    with pytest.raises(DocumentError) as refusal:
        read_json(body)

    assert refusal.value.faults == [("", detail)]
    assert not refusal.value.parseable


@pytest.mark.parametrize(
    ("body", "pointer", "detail"),
    [
        (b'{"a": {"b": 1, "c": 2, "b": 3}}', "/a/b", "the key stands here more than once"),
        (b'[{"x": [{"a": 1, "a": 1}]}]', "/0/x/0/a", "the key stands here more than once"),
        (b'{"a": 1e400}', "/a", "the number is out of range"),
        (b'{"a": [0, -1e999]}', "/a/1", "the number is out of range"),
        (b'{"a": ' + b"9" * 5000 + b"}", "/a", "an integer of 5000 digits is out of range"),
        (b'{"a": -' + b"9" * 20 + b"}", "/a", "an integer of 20 digits is out of range"),
        (b'{"a~/b": "x\\u0000"}', "/a~0~1b", "the text holds NUL or half of a surrogate pair"),
        (b'{"a": ["\\ud800"]}', "/a/0", "the text holds NUL or half of a surrogate pair"),
        (b'{"a": {"\\udfff": 1}}', "/a", "a key holds NUL or half of a surrogate pair"),
    ],
)
def test_json_that_readers_disagree_about_is_refused_with_a_pointer(body: bytes, pointer: str, detail: str) -> None:
    with pytest.raises(DocumentError) as refusal:
        read_json(body)

    assert refusal.value.faults == [(pointer, detail)]
    assert refusal.value.parseable


def test_depth_counts_brackets_outside_of_texts_only() -> None:
    deepest = "[" * MAX_DEPTH + '"[[[[\\"[[[["' + "]" * MAX_DEPTH

    assert read_json(deepest.encode()) == json.loads(deepest)


def test_numbers_at_the_edge_of_the_range_are_kept_exactly() -> None:
    edges = [9_223_372_036_854_775_807, -9_223_372_036_854_775_808, 1.7976931348623157e308, 5e-324, -0.0]

    assert read_json(json.dumps(edges).encode()) == edges


def test_a_pair_of_surrogate_escapes_is_one_character() -> None:
    assert read_json(b'{"a": "\\ud83d\\ude82"}') == {"a": "\N{STEAM LOCOMOTIVE}"}


def test_a_document_with_a_hundred_thousand_faults_lists_a_hundred() -> None:
    body = b"[" + b",".join([b"1e999"] * 100_000) + b"]"

    with pytest.raises(DocumentError) as refusal:
        read_json(body)

    assert len(refusal.value.faults) == 100


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(_JSON, st.booleans())
def test_ordinary_json_is_read_as_it_is(value: object, ascii_only: bool) -> None:
    assert read_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(DocumentError):
        read_json(body)
