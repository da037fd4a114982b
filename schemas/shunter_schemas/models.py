"""`workload.model` and `workload.adapter`: what is trained."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from shunter_schemas.base import Count, OpenFraction, Part, Path, Positive, Target, Text
from shunter_schemas.hints import Hints


class TransformerModel(Part):
    """A decoder-only transformer language model, built by our trainer."""

    kind: Literal["transformer"] = Field(
        description="A decoder-only transformer language model.", examples=["transformer"]
    )
    layers: Annotated[int, Field(ge=1, le=1024)] = Field(description="Number of blocks.", examples=[12])
    hidden: Annotated[int, Field(ge=1, le=1_048_576)] = Field(
        description="Width of the residual stream; a multiple of `heads`.", examples=[768]
    )
    heads: Annotated[int, Field(ge=1, le=65_536)] = Field(description="Attention heads.", examples=[12])
    kv_heads: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None,
        description="Key and value heads; divides `heads`. Null: as many as `heads`.",
        examples=[4],
    )
    ffn: Annotated[int, Field(ge=1, le=4_194_304)] | None = Field(
        default=None,
        description="Inner width of the feed-forward part. Null: four times `hidden`.",
        examples=[3072],
    )
    vocab: Annotated[int, Field(ge=2, le=16_777_216)] = Field(
        description="Size of the vocabulary; at least 256 for the `bytes` tokenizer.", examples=[50304]
    )
    context: Annotated[int, Field(ge=1, le=16_777_216)] = Field(
        description="The longest sequence in tokens.", examples=[1024]
    )
    tied_embeddings: bool = Field(
        default=False, description="Whether the head's weights are those of the embedding.", examples=[True]
    )

    @property
    def num_kv_heads(self) -> int:
        """`kv_heads` with its default filled in."""
        return self.kv_heads or self.heads

    @property
    def ffn_width(self) -> int:
        """`ffn` with its default filled in."""
        return self.ffn or 4 * self.hidden


class HuggingFaceModel(Part):
    """A model of the `transformers` library."""

    kind: Literal["huggingface"] = Field(description="A `transformers` model.", examples=["huggingface"])
    weights: Path | None = Field(
        default=None,
        description="A folder with `config.json` and weights (safetensors), such as `input:base`; nothing is "
        "downloaded from a hub. Null: fresh weights from `config`.",
        examples=["input:base"],
    )
    config: dict[str, JsonValue] | None = Field(
        default=None,
        description="The model's configuration, or what differs from that of `weights`; `num_labels` is the number "
        "of classes of a classifier.",
        examples=[{"model_type": "llama", "hidden_size": 512}],
    )
    task: Literal["causal_lm", "image_classification", "sequence_classification"] = Field(
        default="causal_lm", description="What the model's head is for.", examples=["causal_lm"]
    )


class PythonModel(Part):
    """The user's own model: `target(**arguments)` returns a `torch.nn.Module`."""

    kind: Literal["python"] = Field(description="The user's own model.", examples=["python"])
    target: Target = Field(
        description="`module:name` of the factory; `model(**batch)` returns a mapping with `loss`, "
        "or outputs for `loss` below.",
        examples=["models:vit_b16"],
    )
    arguments: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Keyword arguments of the factory.",
        examples=[{"classes": 1000}],
    )
    hints: Hints | None = Field(
        default=None,
        description="What the planner should know of the model, which it never imports; enables the memory check and "
        "the choice of a strategy by size.",
        examples=[{"parameters": 7.6e9, "layers": 28, "hidden": 3584}],
    )


Model = Annotated[TransformerModel | HuggingFaceModel | PythonModel, Field(discriminator="kind")]


class LoraAdapter(Part):
    """Low-rank adapters on frozen weights. Checkpoints leave the frozen weights out and name them by digest."""

    kind: Literal["lora"] = Field(description="Low-rank adaptation.", examples=["lora"])
    rank: Count = Field(description="Rank of the adapters.", examples=[16])
    alpha: Positive = Field(description="Scale of the adapters.", examples=[32])
    dropout: OpenFraction | None = Field(
        default=None, description="Dropout before the adapters. Null: none.", examples=[0.05]
    )
    targets: tuple[Text, ...] = Field(
        min_length=1,
        description="Names of the linear layers that get adapters; `all-linear`: all but the output layer. The head "
        "of a classifier is trained beside them.",
        examples=[["q_proj", "v_proj"], ["all-linear"]],
    )
