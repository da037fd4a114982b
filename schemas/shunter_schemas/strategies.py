"""`strategy`: how the training is spread over the ranks; changing this one field runs the same training otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, cast

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


ZeroStage = Literal[0, 1, 2, 3]
Device = Literal["none", "cpu"]
USUAL_STAGE: Final = 2


def _of_config(seen: dict[str, Any], *path: str) -> Any:
    found: Any = seen.get("config")
    for name in ("zero_optimization", *path):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _stage_of_config(seen: dict[str, Any]) -> ZeroStage:
    stage = _of_config(seen, "stage")
    return cast("ZeroStage", stage) if type(stage) is int and 0 <= stage <= 3 else USUAL_STAGE


def _device_of_config(part: str) -> Callable[[dict[str, Any]], Device]:
    return lambda seen: "cpu" if _of_config(seen, part, "device") == "cpu" else "none"


class DeepSpeedStrategy(Part):
    """DeepSpeed ZeRO."""

    kind: Literal["deepspeed"] = Field(description="DeepSpeed ZeRO.", examples=["deepspeed"])
    config: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="A DeepSpeed document that is merged in.",
        examples=[{"zero_optimization": {"overlap_comm": True}}],
    )
    zero_stage: ZeroStage = Field(
        default_factory=_stage_of_config,
        description="0: nothing is split. 1: optimizer state. 2: gradients too. 3: parameters too. "
        f"Default: `zero_optimization.stage` of `config`, else {USUAL_STAGE}.",
        examples=[3],
    )
    offload_optimizer: Device = Field(
        default_factory=_device_of_config("offload_optimizer"),
        description="Where optimizer state lives. Default: what `config` says, else `none`.",
        examples=["cpu"],
    )
    offload_parameters: Device = Field(
        default_factory=_device_of_config("offload_param"),
        description="Where parameters live; stage 3 only. Default: what `config` says, else `none`.",
        examples=["none"],
    )


Strategy = Annotated[
    AutoStrategy | OwnStrategy | DdpStrategy | FsdpStrategy | HsdpStrategy | DeepSpeedStrategy,
    Field(discriminator="kind"),
]
