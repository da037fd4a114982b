"""The job document, version 1: what to train, how to spread it, and within which limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from shunter_schemas.base import CLOSED_KEYS, Name, NotNegative, Part, text_like
from shunter_schemas.environment import Environment
from shunter_schemas.inputs import Input, InputName
from shunter_schemas.limits import Limits, Recovery
from shunter_schemas.outputs import Outputs, Tracking
from shunter_schemas.placement import Placement
from shunter_schemas.resources import GangShape, Resources
from shunter_schemas.script import ScriptWorkload
from shunter_schemas.source import Source
from shunter_schemas.strategies import AutoStrategy, OwnStrategy, Strategy
from shunter_schemas.training import TrainingWorkload

Workload = Annotated[TrainingWorkload | ScriptWorkload, Field(discriminator="kind")]
Priority = Literal["low", "normal", "high"]
LabelName = Annotated[
    str, text_like(r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$", "must be 1 to 63 letters, digits and `._/-`")
]
LabelValue = Annotated[
    str, text_like(r"^[^\x00-\x1f\x7f]*$", "must be a text without control characters", max_length=128)
]
Labels = Annotated[dict[LabelName, LabelValue], Field(max_length=32)]


def _default_strategy(seen: dict[str, Any]) -> AutoStrategy | OwnStrategy:
    if isinstance(seen.get("workload"), ScriptWorkload):
        return OwnStrategy(kind="own")
    return AutoStrategy(kind="auto")


class JobSpec(Part):
    """One training job.

    The models alone check shapes and ranges; `shunter_schemas.parse.parse_job` also checks what concerns several
    fields, and is the door for documents from outside.
    """

    schema_url: Annotated[str, StringConstraints(max_length=2048)] | None = Field(
        default=None,
        alias="$schema",
        exclude=True,
        description="Where editors find this document's JSON Schema. Not kept.",
        examples=["http://127.0.0.1:8000/v1/schemas/job.json"],
    )
    version: Literal["1"] = Field(description="Version of the document.", examples=["1"])
    name: Name = Field(description="A label for people; it need not be unique.", examples=["sft-8b"])
    labels: Labels = Field(
        default_factory=dict,
        json_schema_extra=CLOSED_KEYS,
        description="Labels to filter and group by.",
        examples=[{"team": "nlp"}],
    )
    priority: Priority = Field(
        default="normal",
        description="Which jobs go first; projects set ceilings.",
        examples=["normal"],
    )
    source: Source | None = Field(
        default=None,
        description="The user's own code. Null: none is needed.",
        examples=[{"kind": "folder", "path": "."}],
    )
    inputs: Annotated[dict[InputName, Input], Field(max_length=64)] = Field(
        default_factory=dict,
        json_schema_extra=CLOSED_KEYS,
        description="Data for every node, by name. Its files carry no write permission; a program that runs as root "
        "can write them all the same, and a later start on the same node then reads what it wrote.",
        examples=[{"train": {"from": "./data"}}],
    )
    workload: Workload = Field(
        description="What runs: a declared training, or the user's own program.",
        examples=[{"kind": "script", "entrypoint": "train.py"}],
    )
    strategy: Strategy = Field(
        default_factory=_default_strategy,
        description="How the training is spread over the ranks. Default: `auto` for `training`, `own` for `script`.",
        examples=[{"kind": "ddp"}],
    )
    resources: Resources = Field(description="How many ranks, on what.", examples=[{"gpus": 8}])
    placement: Placement = Field(
        default=Placement(), description="Where the job may run.", examples=[{"providers": ["local"]}]
    )
    limits: Limits = Field(
        default=Limits(), description="When the service stops the job.", examples=[{"max_duration_s": 3600}]
    )
    recovery: Recovery = Field(
        default=Recovery(), description="How often the job is started again.", examples=[{"node_recoveries": 10}]
    )
    environment: Environment = Field(
        default=Environment(),
        description="What is installed and set on the nodes.",
        examples=[{"requirements": ["einops"]}],
    )
    outputs: Outputs = Field(
        default=Outputs(),
        description="Where results go besides the service's own store.",
        examples=[{"uri": "s3://acme/runs", "secret": "ACME_S3"}],
    )
    tracking: Annotated[tuple[Tracking, ...], Field(max_length=8)] = Field(
        default=(),
        description="Experiment trackers that get the metrics too.",
        examples=[[{"kind": "wandb", "project": "sft", "secret": "WANDB"}]],
    )
    keep_alive_s: NotNegative = Field(
        default=0.0,
        description="Keep the nodes this long after the end for a next job.",
        examples=[0],
    )

    def gang(self) -> GangShape:
        """How many ranks, and how they lie on nodes as far as the document says (see `Resources.gang`)."""
        return self.resources.gang()

    def world_size(self) -> int:
        """The number of ranks."""
        return self.resources.gang().world_size


def load_job(document: Mapping[str, Any]) -> JobSpec:
    """A stored document as a model; it was checked when it was accepted.

    Goes through JSON, since the strict models take lists for tuples only there.

    Raises:
        pydantic.ValidationError: this is no job document of this version.
    """
    return JobSpec.model_validate_json(json.dumps(document))
