"""`workload` of kind `script`: the user's own program, unmodified."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from shunter_schemas.base import Count, Part, text_like
from shunter_schemas.hints import Hints

Argument = Annotated[str, StringConstraints(max_length=32_768)]

SUBSTITUTIONS: tuple[str, ...] = (
    "checkpoint_dir",
    "latest_checkpoint",
    "output_dir",
    "deepspeed_config",
    "accelerate_config",
    "world_size",
    "job_id",
)
"""Names that `${…}` takes in commands, arguments and variables, besides `inputs.NAME`."""


class ScriptCheckpoint(Part):
    """How the program's own checkpoints are recognised. They lie in `${checkpoint_dir}`."""

    pattern: Annotated[str, text_like(r"^[^/\x00]{1,255}$", "must be the name of a folder, without `/`")] = Field(
        default="checkpoint-*", description="Name of a checkpoint folder.", examples=["checkpoint-*"]
    )
    complete_file: Annotated[str, text_like(r"^[^/\x00][^\x00]{0,511}$", "must be a relative path")] = Field(
        description="A file in the folder that is written last.", examples=["trainer_state.json"]
    )
    keep: Count = Field(default=2, description="How many of the newest are kept.", examples=[2])
    world_size: Literal["fixed", "any"] = Field(
        default="fixed",
        description="Whether the program resumes on another number of ranks.",
        examples=["fixed"],
    )


class ScriptWorkload(Part):
    """The user's own program: `entrypoint` (a Python file or module) or `command` (any argv, no shell of ours)."""

    kind: Literal["script"] = Field(description="The user's own program.", examples=["script"])
    entrypoint: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = Field(
        default=None,
        description="A Python file relative to the source, or a module name with `module`.",
        examples=["run_sft.py"],
    )
    module: bool = Field(default=False, description="Whether `entrypoint` is a module (`python -m`).", examples=[False])
    command: Annotated[tuple[Argument, ...], Field(min_length=1, max_length=1024)] | None = Field(
        default=None,
        description="Any program, instead of `entrypoint`; `${…}` is replaced as in `arguments`.",
        examples=[["bash", "run.sh"]],
    )
    launcher: Literal["torch", "torchrun", "accelerate", "plain"] = Field(
        default="torch",
        description="`torch`: one process a rank with exactly torchrun's environment. `torchrun`, `accelerate`: one "
        "launcher process a node. `plain`: one process a node.",
        examples=["torch"],
    )
    arguments: Annotated[tuple[Argument, ...], Field(max_length=1024)] = Field(
        default=(),
        description="Arguments of the program. `${inputs.NAME}`, `${checkpoint_dir}`, `${output_dir}`, "
        "`${world_size}`, `${job_id}`, `${deepspeed_config}` and `${accelerate_config}` are replaced, without a shell.",
        examples=[["--output_dir", "${checkpoint_dir}"]],
    )
    resume_arguments: Annotated[tuple[Argument, ...], Field(max_length=1024)] = Field(
        default=(),
        description="Appended to `arguments` only when there is a checkpoint, `${latest_checkpoint}`.",
        examples=[["--resume_from_checkpoint", "${latest_checkpoint}"]],
    )
    checkpoint: ScriptCheckpoint | None = Field(
        default=None,
        description="How checkpoints are recognised. Null: the program writes none.",
        examples=[{"pattern": "checkpoint-*", "complete_file": "trainer_state.json"}],
    )
    hints: Hints | None = Field(
        default=None,
        description="What the planner should know.",
        examples=[{"parameters": 7.6e9, "layers": 28}],
    )
