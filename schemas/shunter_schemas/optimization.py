"""`workload.loss`, `.optimizer` and `.schedule`: how a model learns."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from shunter_schemas.base import CountOrZero, Fraction, NotNegative, Part, Positive, Target

Momentum = Annotated[float, Field(ge=0, lt=1)]


class CausalLmLoss(Part):
    """Cross-entropy of each next token."""

    kind: Literal["causal_lm"] = Field(description="Cross-entropy of each next token.", examples=["causal_lm"])
    label_smoothing: Momentum = Field(default=0.0, description="Label smoothing.", examples=[0.1])


class CrossEntropyLoss(Part):
    """Cross-entropy of classes."""

    kind: Literal["cross_entropy"] = Field(description="Cross-entropy of classes.", examples=["cross_entropy"])
    label_smoothing: Momentum = Field(default=0.0, description="Label smoothing.", examples=[0.1])


class MseLoss(Part):
    """Mean squared error."""

    kind: Literal["mse"] = Field(description="Mean squared error.", examples=["mse"])


class PythonLoss(Part):
    """The user's own loss: `target(outputs, batch, **arguments)` returns a scalar tensor."""

    kind: Literal["python"] = Field(description="The user's own loss.", examples=["python"])
    target: Target = Field(description="`module:name` of the function.", examples=["losses:focal"])
    arguments: dict[str, JsonValue] = Field(
        default_factory=dict, description="Keyword arguments of the function.", examples=[{"gamma": 2.0}]
    )


Loss = Annotated[CausalLmLoss | CrossEntropyLoss | MseLoss | PythonLoss, Field(discriminator="kind")]


class AdamW(Part):
    """Adam with decoupled weight decay."""

    kind: Literal["adamw"] = Field(description="Adam with decoupled weight decay.", examples=["adamw"])
    lr: Positive = Field(description="Peak learning rate.", examples=[3e-4])
    betas: tuple[Momentum, Momentum] = Field(
        default=(0.9, 0.999), description="Decay of the two moments.", examples=[[0.9, 0.95]]
    )
    eps: Positive = Field(default=1e-8, description="Added to the denominator.", examples=[1e-8])
    weight_decay: NotNegative = Field(
        default=0.01, description="Weight decay; not on biases and norms.", examples=[0.1]
    )


class Sgd(Part):
    """Stochastic gradient descent."""

    kind: Literal["sgd"] = Field(description="Stochastic gradient descent.", examples=["sgd"])
    lr: Positive = Field(description="Peak learning rate.", examples=[0.1])
    momentum: Momentum = Field(default=0.0, description="Momentum.", examples=[0.9])
    nesterov: bool = Field(default=False, description="Nesterov's form of momentum; needs `momentum`.", examples=[True])
    weight_decay: NotNegative = Field(
        default=0.0, description="Weight decay; not on biases and norms.", examples=[1e-4]
    )


class PythonOptimizer(Part):
    """The user's own optimizer: `target(parameters, **arguments)` returns a `torch.optim.Optimizer`."""

    kind: Literal["python"] = Field(description="The user's own optimizer.", examples=["python"])
    target: Target = Field(description="`module:name` of the class or factory.", examples=["optim:Lion"])
    arguments: dict[str, JsonValue] = Field(
        default_factory=dict, description="Keyword arguments of the factory.", examples=[{"lr": 1e-4}]
    )


Optimizer = Annotated[AdamW | Sgd | PythonOptimizer, Field(discriminator="kind")]


class _Schedule(Part):
    warmup_steps: CountOrZero | None = Field(
        default=None, description="Steps of linear warm-up from 0. Null: none.", examples=[100]
    )
    warmup_ratio: Fraction | None = Field(
        default=None,
        description="Warm-up as a share of all steps, instead of `warmup_steps`.",
        examples=[0.03],
    )


class ConstantSchedule(_Schedule):
    """After the warm-up the learning rate stays."""

    kind: Literal["constant"] = Field(description="Stays after the warm-up.", examples=["constant"])


class LinearSchedule(_Schedule):
    """After the warm-up the learning rate falls in a straight line."""

    kind: Literal["linear"] = Field(description="Falls in a straight line.", examples=["linear"])
    min_lr_ratio: Fraction = Field(
        default=0.0, description="Learning rate at the end as a share of the peak.", examples=[0.1]
    )


class CosineSchedule(_Schedule):
    """After the warm-up the learning rate falls along half a cosine."""

    kind: Literal["cosine"] = Field(description="Falls along half a cosine.", examples=["cosine"])
    min_lr_ratio: Fraction = Field(
        default=0.0, description="Learning rate at the end as a share of the peak.", examples=[0.1]
    )


class WsdSchedule(_Schedule):
    """Warm-up, stable, decay: at the peak until near the end, then down in a straight line."""

    kind: Literal["wsd"] = Field(description="Warm-up, stable, decay.", examples=["wsd"])
    decay_ratio: Fraction = Field(
        default=0.1, description="Share of all steps at the end in which the learning rate falls.", examples=[0.2]
    )
    min_lr_ratio: Fraction = Field(
        default=0.0, description="Learning rate at the end as a share of the peak.", examples=[0.1]
    )


Schedule = Annotated[ConstantSchedule | LinearSchedule | CosineSchedule | WsdSchedule, Field(discriminator="kind")]
