"""`workload` of kind `training`: our trainer builds everything from the document."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from shunter_schemas.base import (
    BY_SHAPE,
    AutoOrCount,
    Count,
    Part,
    Positive,
    Slug,
)
from shunter_schemas.data import Data, ImageFolderData, PythonData, WebDatasetData
from shunter_schemas.models import LoraAdapter, Model
from shunter_schemas.optimization import AdamW, ConstantSchedule, Loss, Optimizer, Schedule
from shunter_schemas.oversight import EarlyStopping, Guards, Profile


class Batch(Part):
    """Batch sizes in samples. Gradient accumulation is derived, never given."""

    global_size: Count = Field(description="Samples of one optimizer step over all ranks.", examples=[256])
    micro_size: AutoOrCount = Field(
        default="auto",
        description="Samples of one forward pass on one rank. `auto`: the largest that fits.",
        examples=["auto", 4],
    )


class Duration(Part):
    """How long to train: exactly one of the three."""

    steps: Count | None = Field(default=None, description="Optimizer steps.", examples=[1000])
    epochs: Positive | None = Field(default=None, description="Passes over the data.", examples=[3])
    tokens: Count | None = Field(
        default=None, description="Tokens, rounded up to whole steps.", examples=[2_000_000_000]
    )


Dtype = Literal["fp32", "bf16", "fp16"]
ComputeDtype = Literal["fp32", "bf16", "fp16", "fp8"]


class PrecisionParts(Part):
    """The long form of `precision`."""

    parameters: Dtype = Field(default="fp32", description="Type in which parameters are kept.", examples=["fp32"])
    compute: ComputeDtype = Field(default="bf16", description="Type of forward and backward.", examples=["bf16"])
    reduce: Dtype = Field(
        default="fp32", description="Type in which gradients are reduced between ranks.", examples=["fp32"]
    )


Precision = Annotated[
    Annotated[ComputeDtype, Tag("text")] | Annotated[PrecisionParts, Tag("object")],
    BY_SHAPE,
]


class TrainingCheckpoint(Part):
    """When checkpoints are written. One is always written at the end and when the job is asked to stop."""

    every_steps: Count | None = Field(default=None, description="Write one every N steps.", examples=[100])
    every_s: Positive | None = Field(
        default=None, description="Write one when this many seconds have passed.", examples=[600]
    )
    keep: Count = Field(default=3, description="How many of the newest are kept.", examples=[3])
    keep_best: Slug | None = Field(
        default=None,
        description="Also keep the one with the best value of this metric: the highest of `val_top1` and `val_top5`, "
        "the lowest of others.",
        examples=["val_loss"],
    )


class Evaluation(Part):
    """Runs the model over the validation data while it trains."""

    every_steps: Count = Field(description="Evaluate every N steps, and at the end.", examples=[100])
    batches: Count | None = Field(
        default=None,
        description="Global batches of one evaluation. Null: the whole validation data.",
        examples=[20],
    )
    early_stopping: EarlyStopping | None = Field(
        default=None,
        description="End the training, with success, when evaluations no longer get better. Null: train to the end.",
        examples=[{"metric": "val_loss", "patience": 3}],
    )


class Export(Part):
    """What is left in the job's artifacts when the training succeeds."""

    weights: Literal["full", "adapter", "merged"] = Field(
        default="full",
        description="`full`: the whole model, with an adapter folded in and also by itself. `merged`: the whole model "
        "with the adapter folded in. `adapter`: the adapter alone.",
        examples=["full"],
    )
    format: Literal["safetensors"] = Field(
        default="safetensors", description="The file format.", examples=["safetensors"]
    )
    dtype: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        default="auto",
        description="The type of exported weights. `auto`: that of the pretrained weights; without any, that of the "
        "parameters. Adapters keep the type in which they were trained.",
        examples=["auto", "bf16"],
    )


class TrainingWorkload(Part):
    """A training that our trainer builds from the document alone."""

    kind: Literal["training"] = Field(description="Our trainer, from the document.", examples=["training"])
    model: Model = Field(
        description="What is trained.",
        examples=[{"kind": "transformer", "layers": 12, "hidden": 768, "heads": 12, "vocab": 50304, "context": 1024}],
    )
    adapter: LoraAdapter | None = Field(
        default=None,
        description="Train small adapters on frozen weights. Null: train all weights.",
        examples=[{"kind": "lora", "rank": 16, "alpha": 32, "targets": ["q_proj", "v_proj"]}],
    )
    data: Data = Field(
        description="What it is trained on.", examples=[{"kind": "sample", "name": "python-docs", "tokenizer": "bytes"}]
    )
    loss: Loss | None = Field(
        default=None,
        description="How outputs become a loss. Null: the model's own (`causal_lm` for a `transformer`; that of its "
        "task for a `huggingface` model).",
        examples=[{"kind": "cross_entropy", "label_smoothing": 0.1}],
    )
    metrics: tuple[Literal["top1", "top5", "perplexity"], ...] = Field(
        default=(), description="Further values at each evaluation.", examples=[["top1"]]
    )
    optimizer: Optimizer = Field(
        default=AdamW(kind="adamw", lr=3e-4),
        description="How gradients become steps.",
        examples=[{"kind": "adamw", "lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}],
    )
    schedule: Schedule = Field(
        default=ConstantSchedule(kind="constant"),
        description="How the learning rate moves over the training.",
        examples=[{"kind": "cosine", "warmup_steps": 100, "min_lr_ratio": 0.1}],
    )
    batch: Batch = Field(description="Batch sizes.", examples=[{"global_size": 256, "micro_size": "auto"}])
    duration: Duration = Field(description="How long to train.", examples=[{"steps": 1000}])
    precision: Precision = Field(
        default="bf16",
        description="`bf16`: fp32 parameters, bf16 compute, fp32 reduction. `fp16`: the same with fp16 and a loss "
        "scale that adapts itself. `fp32`: everything in fp32. Or the long form. Frozen parameters take the compute "
        "type.",
        examples=["bf16", {"parameters": "fp32", "compute": "bf16", "reduce": "fp32"}],
    )
    gradient_clip_norm: Positive | None = Field(
        default=None, description="Largest norm of all gradients together. Null: no clipping.", examples=[1.0]
    )
    activation_checkpointing: Literal["auto", "none", "selective", "full"] = Field(
        default="auto",
        description="Recompute activations in the backward pass to save memory. `full`: all of each block. "
        "`selective`: all but the results of matrix products and attention. `auto`: nothing, unless a plan pins it.",
        examples=["auto"],
    )
    compile: Annotated[Annotated[Literal["auto"], Tag("text")] | Annotated[bool, Tag("boolean")], BY_SHAPE] = Field(
        default="auto",
        description="Whether the model's blocks go through `torch.compile`, which needs a C++ compiler on the node. "
        "`auto`: no.",
        examples=["auto", False],
    )
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = Field(
        default=0, description="Fixes initial weights, data order and dropout.", examples=[17]
    )
    checkpoint: TrainingCheckpoint = Field(
        default=TrainingCheckpoint(every_s=600.0),
        description="When checkpoints are written. Default: every 600 s.",
        examples=[{"every_steps": 100, "keep": 3, "keep_best": "val_loss"}],
    )
    evaluation: Evaluation | None = Field(
        default=None,
        description="Evaluation while training; needs `data.validation`. Null: none.",
        examples=[{"every_steps": 100, "batches": 20}],
    )
    log_every_steps: AutoOrCount = Field(
        default="auto",
        description="A metric point every N steps. `auto`: about one a second, at round steps.",
        examples=["auto", 10],
    )
    guards: Guards = Field(
        default=Guards(),
        description="What is watched while it trains.",
        examples=[{"loss_spikes": {"action": "warn"}}],
    )
    profile: Profile | None = Field(
        default=None,
        description="Trace some steps with torch's profiler. Null: none.",
        examples=[{"first_step": 10, "last_step": 12}],
    )
    export: Export = Field(
        default=Export(),
        description="What the job leaves behind.",
        examples=[{"weights": "full", "format": "safetensors"}],
    )

    @property
    def sequence_length(self) -> int | None:
        """Tokens of one sample where the data is made of tokens: as given, else the model's context."""
        if isinstance(self.data, ImageFolderData | WebDatasetData | PythonData):
            return None
        return self.data.sequence_length or getattr(self.model, "context", None)

    @property
    def dtypes(self) -> PrecisionParts:
        """`precision` in its long form."""
        if isinstance(self.precision, PrecisionParts):
            return self.precision
        return PrecisionParts(parameters="fp32", compute=self.precision, reduce="fp32")
