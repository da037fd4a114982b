"""The API's answers, version 1. `/v1` only gains fields."""

from shunter_schemas.api.base import Answer, Timestamp, rfc3339
from shunter_schemas.api.files import Artifact, ArtifactPage, Bundle, Checkpoint, CheckpointPage
from shunter_schemas.api.identity import Me, ProblemKind
from shunter_schemas.api.jobs import (
    Attempt,
    Cost,
    Job,
    JobNode,
    JobPage,
    JobPlan,
    JobSummary,
    Progress,
    Transition,
    Tried,
    Waiting,
)
from shunter_schemas.api.requests import CancelledJobs, CancelRequest, JobCounts, JobPatch, RetryRequest
from shunter_schemas.api.service import Check, Problem, ProblemError, ProviderInfo, ProviderPage, Readiness
from shunter_schemas.api.streams import Event, EventPage, LogLine, LogPage, MetricMark, MetricsAnswer, MetricSeries

__all__ = [
    "Answer",
    "Artifact",
    "ArtifactPage",
    "Attempt",
    "Bundle",
    "CancelRequest",
    "CancelledJobs",
    "Check",
    "Checkpoint",
    "CheckpointPage",
    "Cost",
    "Event",
    "EventPage",
    "Job",
    "JobCounts",
    "JobNode",
    "JobPage",
    "JobPatch",
    "JobPlan",
    "JobSummary",
    "LogLine",
    "LogPage",
    "Me",
    "MetricMark",
    "MetricSeries",
    "MetricsAnswer",
    "Problem",
    "ProblemError",
    "ProblemKind",
    "Progress",
    "ProviderInfo",
    "ProviderPage",
    "Readiness",
    "RetryRequest",
    "Timestamp",
    "Transition",
    "Tried",
    "Waiting",
    "rfc3339",
]
