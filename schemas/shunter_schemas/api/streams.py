"""What a job reports while it lives: events, log lines, metrics."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from shunter_schemas.api.base import Answer, Timestamp
from shunter_schemas.api.jobs import JobSummary

_AT = "2026-11-30T04:53:15.123Z"
_JOB = "job_01kb9m4t8zq3v5x7y9a1c3e5g7"


class Event(Answer):
    """Something that happened to a job. `seq` starts at 1 and has no gaps within a job."""

    seq: int = Field(description="Its number within the job.", examples=[3])
    at: Timestamp = Field(description="When.", examples=[_AT])
    type: str = Field(description="A slug; an open list.", examples=["state_changed"])
    data: dict[str, Any] = Field(
        default_factory=dict,
        description="What belongs to this type.",
        examples=[{"from": "queued", "to": "provisioning"}],
    )


class EventPage(Answer):
    """Events in order."""

    items: tuple[Event, ...] = Field(
        description="The events of this page.", examples=[[{"seq": 1, "at": _AT, "type": "job_created"}]]
    )
    next_after: int = Field(description="Pass it as `after` for what follows.", examples=[1])
    ended: bool = Field(
        default=False, description="Whether the last event of the job is on or before this page.", examples=[False]
    )


class LogLine(Answer):
    """One line of output."""

    line: int = Field(description="Its number in the order that was asked for, from 1.", examples=[812])
    at: Timestamp | None = Field(
        default=None, description="When it was written, as near as it is known.", examples=[_AT]
    )
    generation: int = Field(description="The start of the gang it belongs to.", examples=[1])
    node: int = Field(description="The node's place in the gang.", examples=[0])
    rank: int = Field(description="The rank; -1 for the node's set-up.", examples=[0])
    stream: Literal["stdout", "stderr", "setup"] = Field(description="Where it was written to.", examples=["stdout"])
    text: str = Field(description="The line without its line feed; control characters replaced.", examples=["step 10"])


class LogPage(Answer):
    """Lines of output in order."""

    items: tuple[LogLine, ...] = Field(
        description="The lines of this page.",
        examples=[[{"line": 1, "generation": 1, "node": 0, "rank": 0, "stream": "stdout", "text": "step 10"}]],
    )
    lines_total: int = Field(description="Lines that are known at this moment.", examples=[812])
    first_line: int | None = Field(
        default=None,
        description="Lines from here on were looked at. With `tail`: pass it as `before` for earlier ones, or for the "
        "rest of those that were asked for when they do not all fit.",
        examples=[1],
    )
    next_line: int = Field(
        description="Lines before it were looked at: pass it as `line` for what follows, until it is above "
        "`lines_total`. A page may end early, when it is full or has read for long; with `q` even without a line.",
        examples=[813],
    )
    ended: bool = Field(default=False, description="Whether no more lines will come.", examples=[False])


class MetricSeries(Answer):
    """One metric as columns of equal length."""

    name: str = Field(description="The metric.", examples=["loss"])
    steps: tuple[int, ...] = Field(description="Optimizer steps, growing.", examples=[[10, 20]])
    times_s: tuple[float, ...] = Field(
        description="Seconds since 1970 (UTC) by the node's clock.", examples=[[1796014395.1, 1796014396.2]]
    )
    values: tuple[float, ...] = Field(
        description="Values; means where points were put into bins.", examples=[[3.1, 2.8]]
    )
    min: tuple[float, ...] | None = Field(
        default=None, description="Least values of the bins. Null: no bins.", examples=[[3.0, 2.7]]
    )
    max: tuple[float, ...] | None = Field(
        default=None, description="Greatest values of the bins. Null: no bins.", examples=[[3.2, 2.9]]
    )


class MetricMark(Answer):
    """A place on the step axis where something happened."""

    step: int = Field(description="The step.", examples=[100])
    at: Timestamp | None = Field(default=None, description="When.", examples=[_AT])
    kind: Literal["generation", "checkpoint"] = Field(description="What happened.", examples=["generation"])
    generation: int = Field(description="The start of the gang it belongs to.", examples=[2])
    repeated_steps: int = Field(default=0, description="For `generation`: steps that were done again.", examples=[20])


class MetricsAnswer(Answer):
    """Metrics of a job; over all attempts the newest value of a step wins."""

    series: tuple[MetricSeries, ...] = Field(
        description="The metrics that were asked for.",
        examples=[[{"name": "loss", "steps": [10], "times_s": [1796014395.1], "values": [3.1]}]],
    )
    marks: tuple[MetricMark, ...] = Field(
        default=(),
        description="Starts and checkpoints within the steps that were asked for.",
        examples=[[{"step": 0, "kind": "generation", "generation": 1}]],
    )
    next_after: int | None = Field(
        default=None, description="Pass it as `after`, or a stream, for what arrives later.", examples=[512]
    )
    ended: bool = Field(default=False, description="Whether no more points will come.", examples=[False])


class MetricsUpdate(Answer):
    """Points that arrived. A value for a step that is known replaces what it had, and takes its place in the curve."""

    generation: int = Field(description="The start of the gang that reported them.", examples=[1])
    series: tuple[MetricSeries, ...] = Field(
        description="The points as columns.",
        examples=[[{"name": "loss", "steps": [10], "times_s": [1796014395.1], "values": [3.1]}]],
    )
    next_after: int = Field(description="The number of the last of these points.", examples=[12])


class JobChange(JobSummary):
    """A job that is new or has changed, as it is now."""

    revision: int = Field(description="Grows with every change, but not with progress.", examples=[4])


class StreamMessage(Answer):
    """One message of `/v1/stream`: its topic, and one of the others."""

    topic: str = Field(description="The topic as it was asked for, without a place.", examples=["job:ID:events"])
    job: JobChange | None = Field(
        default=None,
        description="Of `jobs`. May come again as it was; of two of one job the later one is right.",
        examples=[{"id": _JOB, "name": "tiny-lm-ddp", "state": "running", "created_at": _AT, "revision": 4}],
    )
    deleted: str | None = Field(
        default=None,
        description="Of `jobs`: the id of a job whose record was deleted. May come again.",
        examples=[_JOB],
    )
    event: Event | None = Field(
        default=None, description="Of `job:ID:events`.", examples=[{"seq": 2, "at": _AT, "type": "job.state"}]
    )
    line: LogLine | None = Field(
        default=None,
        description="Of `job:ID:logs`.",
        examples=[{"line": 1, "generation": 1, "node": 0, "rank": 0, "stream": "stdout", "text": "step 10"}],
    )
    metrics: MetricsUpdate | None = Field(
        default=None,
        description="Of `job:ID:metrics`.",
        examples=[{"generation": 1, "series": [], "next_after": 12}],
    )
    end: Literal["ended", "deleted", "not_found"] | None = Field(
        default=None,
        description="Nothing more comes for this topic: the job has ended, its record was deleted, there is none.",
        examples=["ended"],
    )


class StreamPage(Answer):
    """What a stream would have told by now."""

    items: tuple[StreamMessage, ...] = Field(
        description="The messages, by topic.", examples=[[{"topic": "job:ID:events", "end": "ended"}]]
    )
    cursor: str = Field(description="Pass it as `cursor` for what follows.", examples=["AUx8s1kVKgAB"])
    ended: bool = Field(default=False, description="Whether every topic has ended.", examples=[False])
