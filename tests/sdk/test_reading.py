"""Files that people write: JSON with comments, and YAML as version 1.2 reads it."""

import json
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shunter.reading import read_commented_json, read_yaml
from shunter.reading.comments import without_comments
from shunter_schemas.faults import DocumentError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(string.printable),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(string.printable), inner, max_size=4),
    max_leaves=20,
)


class TestCommentedJson:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ('{"a": 1} // the end', {"a": 1}),
            ('/* one\ntwo */ {"a": /* three */ 1}', {"a": 1}),
            ("[1, 2, // two\n /* three, ] */ 3,\n]", [1, 2, 3]),
            ('{"a": {"b": [1,],},}', {"a": {"b": [1]}}),
            ('{"url": "http://x/*y*/", "q": "\\"//,]"}', {"url": "http://x/*y*/", "q": '"//,]'}),
        ],
    )
    def test_comments_and_trailing_commas_are_left_out(self, text: str, value: Any) -> None:
        assert read_commented_json(text.encode()) == value

    @settings(max_examples=40)
    @given(VALUES)
    def test_strict_json_stays_what_it_is(self, value: Any) -> None:
        text = json.dumps(value, ensure_ascii=False)

        assert without_comments(text) == text

    @settings(max_examples=40)
    @given(VALUES)
    def test_comments_may_stand_between_any_two_tokens(self, value: Any) -> None:
        text = json.dumps(value, separators=("/*,]*/,//}\n", "/**/:"))

        assert read_commented_json(text.encode()) == value

    def test_an_error_is_told_at_its_place_in_the_file(self) -> None:
        with pytest.raises(DocumentError, match="at line 2, column 8"):
            read_commented_json("/* ä\nöü */ 1, 2".encode())

    @pytest.mark.parametrize("text", ["[,]", "[1,,]", "{,}", '{"a":,}', "[1 / 2]", "{'a': 1}", '{"a": "no end}'])
    def test_what_json_does_not_know_stays_refused(self, text: str) -> None:
        with pytest.raises(DocumentError, match="not JSON"):
            read_commented_json(text.encode())

    def test_a_comment_without_end_is_named_by_its_line(self) -> None:
        with pytest.raises(DocumentError, match="the comment that begins in line 2 has no end"):
            read_commented_json(b'{"a": 1,\n /* never\n}')


class TestYaml:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("3e-4", 3e-4),
            ("1.", 1.0),
            (".5", 0.5),
            ("010", 10),
            ("0x10", 16),
            ("0o10", 8),
            ("-3", -3),
            ("no", "no"),
            ("on", "on"),
            ("true", True),
            ("~", None),
            ("1:30", "1:30"),
            ("2024-01-01", "2024-01-01"),
            ('"1"', "1"),
            ("1.2.3", "1.2.3"),
        ],
    )
    def test_scalars_are_those_of_yaml_1_2(self, text: str, value: Any) -> None:
        read = read_yaml(f"key: {text}\n".encode())["key"]

        assert (read, type(read)) == (value, type(value))

    def test_anchors_and_merges_work(self) -> None:
        assert read_yaml(b"a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n")["b"] == {"x": 1, "y": 3}

    @settings(max_examples=40)
    @given(VALUES)
    def test_json_is_yaml(self, value: Any) -> None:
        assert read_yaml(json.dumps({"key": value}).encode()) == {"key": value}

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("a: 1\na: 2", "the key a stands here more than once at line 2, column 1"),
            ("1: x", "a key must be text; quote it at line 1"),
            ("a: [", "at line 1, column 5"),
            ("a: !!python/object:os.system x", "could not determine a constructor"),
            ("--- {a: 1}\n--- {a: 2}", "another document at line 2"),
            ("a: !!binary aGk=", "/a: JSON has no word for a bytes"),
            ("[" * 3000, "nested too deeply"),
            ("x: &a [*a]", "nested deeper than 64 levels"),
            ("\x00", "unacceptable character"),
        ],
    )
    def test_what_json_could_not_say_is_refused_with_the_place(self, text: str, complaint: str) -> None:
        with pytest.raises(DocumentError, match=complaint):
            read_yaml(text.encode())

    def test_anchors_cannot_make_a_small_file_large(self) -> None:
        levels = [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]

        with pytest.raises(DocumentError, match="anchors make it larger"):
            read_yaml("\n".join(["a0: &a0 [x, x]", *levels]).encode())
