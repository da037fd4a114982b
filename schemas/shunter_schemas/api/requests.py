"""What clients send besides job documents: changes of a job, and filters over many. As strict as the document."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from shunter_schemas.api.base import Answer
from shunter_schemas.base import Part, text_like
from shunter_schemas.job import LabelName, LabelValue, Priority
from shunter_schemas.limits import Limits
from shunter_schemas.placement import Placement
from shunter_schemas.resources import Resources
from shunter_schemas.states import State
from shunter_schemas.strategies import Strategy

_JOB = "job_01kb9m4t8zq3v5x7y9a1c3e5g7"

LabelFilter = Annotated[
    str,
    text_like(
        r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}(=[^\x00]{0,128})?$",
        "must be `key=value`, or a key alone",
    ),
]
"""A label that a job must carry: with this value, or with any."""

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")


def _moment(given: Any) -> Any:
    """Numbers and other spellings are refused, which pydantic would take."""
    try:
        if isinstance(given, datetime):
            return given
        if isinstance(given, str) and _RFC3339.fullmatch(given):
            return datetime.fromisoformat(given.upper())
    except ValueError:
        pass  # there is no such day
    raise PydanticCustomError("moment", "must be a moment with its zone, such as 2026-11-30T04:53:15Z")


Moment = Annotated[AwareDatetime, BeforeValidator(_moment), WithJsonSchema({"type": "string", "format": "date-time"})]
"""As RFC 3339 has it."""

Words = Annotated[str, text_like(r"^[^\x00]{1,200}$", "must be a text of 1 to 200 characters")]

Commit = Annotated[str, text_like(r"^[0-9a-f]{7,64}$", "must be 7 to 64 hexadecimal digits of a commit")]
"""A commit, or its beginning."""


class JobPatch(Part):
    """Changes of a job, as a merge patch (RFC 7396): what is left out stays, null takes a label or a limit away."""

    labels: Annotated[dict[LabelName, LabelValue | None], Field(max_length=64)] = Field(
        default_factory=dict, description="Labels to set; null removes one.", examples=[{"team": "nlp", "draft": None}]
    )
    priority: Priority | None = Field(
        default=None, description="Which jobs go first. Null: as it is.", examples=["high"]
    )
    limits: Limits = Field(
        default=Limits(),
        description="Limits to set, also of a job that runs; null lifts one.",
        examples=[{"max_duration_s": 7200, "max_cost_usd": None}],
    )


class RetryRequest(JobPatch):
    """How a new job begins from the document of one that ended; with changes, as a merge patch."""

    from_: Literal["checkpoint", "start"] | None = Field(
        default=None,
        alias="from",
        description="`checkpoint`: from the last committed one (409 without any), with the same commit of the source. "
        "`start`: from the beginning. Null: from a checkpoint where there is one.",
        examples=["checkpoint"],
    )
    strategy: Strategy | None = Field(
        default=None,
        description="Instead of the job's, as a whole: every checkpoint of a `training` goes on under every strategy.",
        examples=[{"kind": "fsdp"}],
    )
    resources: Resources | None = Field(
        default=None,
        description="Instead of the job's, as a whole; a `training` goes on with any number of ranks.",
        examples=[{"gpus": 4}],
    )


class MoveRequest(Part):
    """How a job goes on, from its last checkpoint: the parts of its document that change. At least one is needed."""

    strategy: Strategy | None = Field(
        default=None,
        description="Instead of the job's, as a whole: every checkpoint of a `training` goes on under every strategy.",
        examples=[{"kind": "fsdp"}],
    )
    resources: Resources | None = Field(
        default=None,
        description="As a merge patch (RFC 7396): what is left out stays, null takes a member away.",
        examples=[{"gpus": 4}],
    )
    placement: Placement | None = Field(
        default=None,
        description="As a merge patch (RFC 7396): what is left out stays.",
        examples=[{"providers": ["lambda"]}],
    )


class CancelRequest(Part):
    """Which jobs to end: those that fit every filter. At least one filter is needed."""

    state: tuple[State, ...] = Field(
        default=(), max_length=9, description="In one of these states.", examples=[["queued", "running"]]
    )
    label: tuple[LabelFilter, ...] = Field(
        default=(), max_length=32, description="With all of these labels.", examples=[["team=nlp", "sweep"]]
    )
    name: Words | None = Field(default=None, description="Of exactly this name.", examples=["sft-8b"])
    name_prefix: Words | None = Field(default=None, description="Whose names begin so.", examples=["sweep-42-"])
    created_by: Words | None = Field(default=None, description="Submitted by this key.", examples=["local"])
    provider: Words | None = Field(default=None, description="On this provider instance.", examples=["lambda"])
    commit: Commit | None = Field(
        default=None, description="Whose source is this commit.", examples=["5f70bf18a086007016e948b04aed3b82103a36be"]
    )
    created_after: Moment | None = Field(
        default=None, description="Accepted after this moment.", examples=["2026-11-30T04:53:15.123Z"]
    )
    created_before: Moment | None = Field(
        default=None, description="Accepted before this moment.", examples=["2026-11-30T04:53:15.123Z"]
    )


class CancelledJobs(Answer):
    """The jobs that were asked to end."""

    ids: tuple[str, ...] = Field(description="Those that this request asked, newest first.", examples=[[_JOB]])
    more: bool = Field(
        default=False,
        description="Whether more fit the filters than one request takes: send it again, with another key.",
        examples=[False],
    )


class JobCounts(Answer):
    """How many jobs there are."""

    states: dict[State, int] = Field(
        description="By state; every state is there.",
        examples=[{"queued": 3, "running": 2, "succeeded": 40, "failed": 1}],
    )
    paused: int = Field(default=0, description="Of the queued ones, those that are paused.", examples=[1])
    total: int = Field(description="All of them.", examples=[46])
