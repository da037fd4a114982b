"""Documents with comments: what is read back is what was written."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shunter.reading import read_commented_json, read_yaml
from shunter.starting import starting_document
from shunter.writing import Style, commented
from shunter_schemas.parse import parse_job
from support.documents import everything, script, tiny_lm

READERS = {Style.YAML: read_yaml, Style.JSON: read_commented_json}
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize("style", Style)
@pytest.mark.parametrize("document", [tiny_lm(), script(), everything()], ids=["training", "script", "everything"])
def test_a_document_is_read_back_as_it_was(style: Style, document: dict[str, Any]) -> None:
    text = commented(document, style, schema_url="http://x/job.json", head=["one", "", "two"])

    read = READERS[style](text.encode())
    read.pop("$schema", None)
    assert read == document


@settings(max_examples=60)
@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
def test_whatever_stands_in_it_is_read_back(value: dict[str, Any]) -> None:
    for style, read in READERS.items():
        assert read(commented(value, style).encode()) == value


@pytest.mark.parametrize("style", Style)
def test_fields_are_explained_by_the_schema_also_those_of_the_kind_that_is_there(style: Style) -> None:
    text = commented(tiny_lm(), style)

    assert "Width of the residual stream" in text
    assert "Peak learning rate" in text


@pytest.mark.parametrize("style", Style)
def test_what_could_be_added_stands_there_as_a_comment_if_this_release_takes_it(style: Style) -> None:
    text = commented(tiny_lm(), style)

    assert "Data for every node" in text
    assert "Experiment trackers" not in text


@pytest.mark.parametrize("kind", ["script", "training"])
def test_what_one_starts_from_is_valid(kind: Any) -> None:
    parse_job(json.dumps(starting_document(kind)).encode())
