"""What schemathesis loads beside its own: stricter about status codes, and job documents that are worth posting."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from support.documents import tiny_lm

_JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)

_LONGEST_WAIT_S = 0.2


@schemathesis.hook
def before_load_schema(context: schemathesis.HookContext, raw_schema: dict[str, Any]) -> None:
    """Take out the answer that stands for any status, so that each that happens must be written down."""
    for path in raw_schema["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict):
                operation.get("responses", {}).pop("default", None)


@schemathesis.hook
def before_generate_body(context: schemathesis.HookContext, strategy: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """Documents that are accepted, so that there are jobs to walk over, and such with one wrong member.

    From the schema alone nearly every document would be refused, for what no schema can say. Documents from the schema
    have tests of their own.
    """
    if _operation(context) not in ("POST /v1/jobs", "POST /v1/plans"):
        return strategy
    good = st.builds(_named, st.integers(0, 99))
    return st.one_of(good, good, st.builds(_spoilt, good, st.sampled_from(sorted(tiny_lm())), _JSON_VALUES))


@schemathesis.hook
def map_query(context: schemathesis.HookContext, query: dict[str, Any] | None) -> dict[str, Any] | None:
    """A long poll takes as long as the client asks for; tests ask for little."""
    wait_s = (query or {}).get("wait_s") if _operation(context) == "GET /v1/jobs/{job_id}" else None
    if query and isinstance(wait_s, int | float) and _LONGEST_WAIT_S < wait_s <= 60 and wait_s is not True:
        return query | {"wait_s": _LONGEST_WAIT_S}
    return query


def _operation(context: schemathesis.HookContext) -> str | None:
    return context.operation.label if context.operation is not None else None


def _named(number: int) -> dict[str, Any]:
    return tiny_lm() | {"name": f"job-{number}"}


def _spoilt(document: dict[str, Any], member: str, value: Any) -> dict[str, Any]:
    return document | {member: value}
