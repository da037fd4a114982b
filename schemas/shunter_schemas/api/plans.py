"""Plans as the API shows them: what would run where, what it would take, and why everything else was not taken."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from shunter_schemas.api.base import Answer, Timestamp

_AT = "2026-11-30T04:53:15.123Z"


class PlannedMemory(Answer):
    """Peak memory of one rank, as predicted."""

    need_gib: float = Field(description="The peak.", examples=[52.6])
    available_gib: float | None = Field(
        default=None, description="What the GPU (or a rank's share of the host) has. Null: not known.", examples=[79.1]
    )
    parts_gib: dict[str, float] = Field(
        default_factory=dict,
        description="By part: `parameters`, `gradients`, `optimizer`, `working` (gathered parameters, buckets), "
        "`activations`, `logits`, `fragmentation`, `runtime`.",
        examples=[{"parameters": 3.7, "gradients": 3.7, "optimizer": 7.5, "activations": 24.6, "logits": 5.9}],
    )
    host_gib: float = Field(default=0.0, description="Main memory that offloading takes, a rank.", examples=[0.0])


class PlannedTime(Answer):
    """Time, as predicted; nine of ten runs lie between `low` and `high`."""

    step_s: float = Field(description="One optimizer step.", examples=[4.15])
    parts_s: dict[str, float] = Field(
        default_factory=dict, description="Of a step, by cause.", examples=[{"products": 3.1, "messages": 0.1}]
    )
    tokens_per_s: float = Field(description="Over all ranks.", examples=[63133.0])
    mfu: float | None = Field(default=None, description="Share of the GPUs' 16-bit peak. Null: CPUs.", examples=[0.41])
    steps: int | None = Field(default=None, description="Optimizer steps. Null: depends on the data.", examples=[1000])
    start_up_s: float = Field(default=0.0, description="Until the first step.", examples=[240.0])
    duration_s: float | None = Field(default=None, description="From the order to the end.", examples=[4392.0])
    low_s: float | None = Field(default=None, description="The low end of `duration_s`.", examples=[3560.0])
    high_s: float | None = Field(default=None, description="The high end of `duration_s`.", examples=[5430.0])


class PlannedCost(Answer):
    """Money in USD, as predicted, with every part of the price."""

    usd_per_hour: float = Field(description="Of the whole gang.", examples=[24.0])
    usd: float | None = Field(default=None, description="The whole run. Null: depends on the data.", examples=[29.28])
    low_usd: float | None = Field(default=None, description="The low end of `usd`.", examples=[23.7])
    high_usd: float | None = Field(default=None, description="The high end of `usd`.", examples=[36.2])
    parts_usd: dict[str, float] = Field(
        default_factory=dict,
        description="`training`, `start_up`, `repeated` (expected loss by preemptions), `disk`, `setup`.",
        examples=[{"training": 27.68, "start_up": 1.6, "repeated": 0.0, "disk": 0.0, "setup": 0.0}],
    )
    usd_per_million_tokens: float | None = Field(default=None, description="Of training data.", examples=[0.11])


class PlannedRun(Answer):
    """One way to run the job."""

    provider: str = Field(description="The provider instance.", examples=["lambda"])
    instance_type: str = Field(description="The kind of node.", examples=["gpu_8x_h100_sxm5"])
    region: str = Field(default="", description="Where.", examples=["eu-central-1"])
    gpu_model: str | None = Field(default=None, description="The GPU model. Null: CPU ranks.", examples=["H100"])
    capacity: str = Field(default="on_demand", description="What kind of capacity.", examples=["on_demand"])
    num_nodes: int = Field(description="Number of nodes.", examples=[1])
    ranks_per_node: int = Field(description="Ranks of each node.", examples=[8])
    strategy: dict[str, Any] = Field(
        description="The strategy, as a document would ask for it.", examples=[{"kind": "fsdp"}]
    )
    micro_size: int | None = Field(default=None, description="Samples of one forward pass on one rank.", examples=[2])
    accumulation: int | None = Field(default=None, description="Forward passes for one optimizer step.", examples=[4])
    activation_checkpointing: str | None = Field(
        default=None, description="`none`, `selective` or `full`.", examples=["none"]
    )
    why: str = Field(
        default="",
        description="The reason for the strategy.",
        examples=["nothing simpler fits"],
    )
    memory: PlannedMemory | None = Field(
        default=None,
        description="Null: the model's size is not known.",
        examples=[{"need_gib": 52.6, "available_gib": 79.1}],
    )
    time: PlannedTime | None = Field(
        default=None,
        description="Null: the model's size is not known.",
        examples=[{"step_s": 4.15, "tokens_per_s": 63133.0}],
    )
    cost: PlannedCost = Field(description="Money.", examples=[{"usd_per_hour": 24.0, "usd": 29.28}])


class RejectedOffer(Answer):
    """An offer that was not taken (or a whole instance), and why."""

    provider: str = Field(description="The provider instance.", examples=["lambda"])
    instance_type: str = Field(default="", description="The kind of node.", examples=["gpu_1x_a10"])
    region: str = Field(default="", description="Where.", examples=["us-west-1"])
    reason: str = Field(description="A slug.", examples=["gpu_memory_needed"])
    detail: str = Field(
        description="The same for people.",
        examples=["ddp needs 178.6 GiB of 79.1 (H100): 59.8 optimizer; with full activation checkpointing 152.6"],
    )
    final: bool = Field(default=True, description="False: it may be had later.", examples=[True])


class Refused(Answer):
    """Why the job cannot run."""

    reason: str = Field(description="A slug: how the job would end.", examples=["does_not_fit"])
    detail: str = Field(description="The same for people.", examples=["no offer takes this job: …"])
    final: bool = Field(description="False: submitted now, it would wait.", examples=[True])


class PlanAnswer(Answer):
    """What would become of a job document if it were submitted now. Nothing was spent, nothing is reserved."""

    chosen: PlannedRun | None = Field(
        default=None,
        description="What would run. Null: see `refused`.",
        examples=[
            {
                "provider": "lambda",
                "instance_type": "gpu_8x_h100_sxm5",
                "num_nodes": 1,
                "ranks_per_node": 8,
                "strategy": {"kind": "fsdp"},
                "cost": {"usd_per_hour": 24.0, "usd": 29.28},
            }
        ],
    )
    refused: Refused | None = Field(
        default=None,
        description="Why nothing would run.",
        examples=[{"reason": "no_capacity", "detail": "no provider offers anything", "final": True}],
    )
    notes: tuple[str, ...] = Field(
        default=(),
        description="What a person should know: what is tight, what is a guess, which limit may be reached.",
        examples=[["limits.max_cost_usd 30.00 may be reached at about step 950 of 1,000; up to 36.20 USD finishes it"]],
    )
    alternatives: tuple[PlannedRun, ...] = Field(
        default=(),
        description="The best few that differ in kind, best first.",
        examples=[
            [
                {
                    "provider": "lambda",
                    "instance_type": "gpu_8x_a100_80gb_sxm4",
                    "num_nodes": 1,
                    "ranks_per_node": 8,
                    "strategy": {"kind": "fsdp"},
                    "cost": {"usd_per_hour": 14.0, "usd": 30.62},
                }
            ]
        ],
    )
    rejected: tuple[RejectedOffer, ...] = Field(
        default=(),
        description="Offers that were not taken, those that nearly were first; `rejected_by` counts all.",
        examples=[[{"provider": "lambda", "reason": "gpu_model", "detail": "A10 of 24 GiB is not one of H100"}]],
    )
    rejected_by: dict[str, int] = Field(
        default_factory=dict, description="How many offers were rejected, by reason.", examples=[{"gpu_model": 12}]
    )
    offers: int = Field(default=0, description="How many offers were looked at.", examples=[214])
    as_of: Timestamp | None = Field(default=None, description="When the oldest of them was read.", examples=[_AT])
    expires_at: Timestamp | None = Field(
        default=None, description="When prices and capacity should be asked for again.", examples=[_AT]
    )
