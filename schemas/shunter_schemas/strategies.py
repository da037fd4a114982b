"""`strategy`: how the training is spread over the ranks; changing this one field runs the same training otherwise."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, Tag

from shunter_schemas.base import BY_SHAPE, Part, Path, Positive, Text


class AutoStrategy(Part):
    """The planner picks a strategy and says why. For `training` only."""

    kind: Literal["auto"] = Field(description="The planner picks.", examples=["auto"])


class OwnStrategy(Part):
    """The program distributes itself. For `script` only, and its default."""

    kind: Literal["own"] = Field(description="The program distributes itself.", examples=["own"])
    deepspeed_file: Path | None = Field(
        default=None,
        description="A DeepSpeed configuration in the source; `${deepspeed_config}` is its path.",
        examples=["ds_z3.json"],
    )


class DdpStrategy(Part):
    """Every rank holds the whole model; gradients are averaged in buckets while the backward pass runs."""

    kind: Literal["ddp"] = Field(description="DistributedDataParallel.", examples=["ddp"])
    bucket_mb: Positive = Field(default=25.0, description="Size of a gradient bucket in MiB.", examples=[25])
    static_graph: bool = Field(
        default=False,
        description="Promise that the set of used parameters never changes.",
        examples=[False],
    )
    find_unused_parameters: bool = Field(
        default=False,
        description="Look for parameters without a gradient in each step.",
        examples=[False],
    )
    sync_batch_norm: bool = Field(
        default=False, description="Take batch-norm statistics over all ranks.", examples=[False]
    )


Wrap = Annotated[
    Annotated[Literal["auto"], Tag("text")]
    | Annotated[tuple[Text, ...], Field(min_length=1, max_length=64), Tag("list")],
    BY_SHAPE,
]


Reshard = Annotated[
    Annotated[bool, Tag("boolean")] | Annotated[int, Field(ge=2, le=65_536), Tag("number")],
    BY_SHAPE,
]


class _Sharded(Part):
    reshard_after_forward: Reshard = Field(
        default=True,
        description="Drop gathered parameters after the forward pass; a number: keep them split over so many ranks.",
        examples=[True, 8],
    )
    offload: Literal["none", "cpu"] = Field(
        default="none", description="Where the split state lives.", examples=["none"]
    )
    wrap: Wrap = Field(
        default="auto",
        description="`auto`, or class names of the modules that become units.",
        examples=["auto", ["Block"]],
    )


class FsdpStrategy(_Sharded):
    """Parameters, gradients and optimizer state are split over all ranks (FSDP2 `fully_shard`)."""

    kind: Literal["fsdp"] = Field(description="Fully sharded data parallel.", examples=["fsdp"])


ShardSize = Annotated[
    Annotated[Literal["node"], Tag("text")] | Annotated[int, Field(ge=2, le=65_536), Tag("number")],
    BY_SHAPE,
]


class HsdpStrategy(_Sharded):
    """FSDP inside a group of ranks, DDP between the groups."""

    kind: Literal["hsdp"] = Field(description="FSDP inside groups, DDP between them.", examples=["hsdp"])
    shard_size: ShardSize = Field(
        default="node", description="Ranks of one group; `node`: the ranks of one node.", examples=["node", 8]
    )


class DeepSpeedStrategy(Part):
    """DeepSpeed ZeRO."""

    kind: Literal["deepspeed"] = Field(description="DeepSpeed ZeRO.", examples=["deepspeed"])
    zero_stage: Literal[0, 1, 2, 3] = Field(
        description="0: nothing is split. 1: optimizer state. 2: gradients too. 3: parameters too.",
        examples=[3],
    )
    offload_optimizer: Literal["none", "cpu"] = Field(
        default="none", description="Where optimizer state lives.", examples=["cpu"]
    )
    offload_parameters: Literal["none", "cpu"] = Field(
        default="none", description="Where parameters live; stage 3 only.", examples=["none"]
    )
    config: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="A DeepSpeed document that is merged in.",
        examples=[{"zero_optimization": {"overlap_comm": True}}],
    )


Strategy = Annotated[
    AutoStrategy | OwnStrategy | DdpStrategy | FsdpStrategy | HsdpStrategy | DeepSpeedStrategy,
    Field(discriminator="kind"),
]
