"""The job as the API shows it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from shunter_schemas.api.base import Answer, Timestamp
from shunter_schemas.api.plans import PlannedCost, PlannedMemory, PlannedTime
from shunter_schemas.api.recoveries import RecoveryTimes
from shunter_schemas.job import Priority
from shunter_schemas.states import Health, NodeState, State

_AT = "2026-11-30T04:53:15.123Z"
_JOB = "job_01kb9m4t8zq3v5x7y9a1c3e5g7"


class Progress(Answer):
    """Where the training is, by its newest report."""

    step: int = Field(description="Optimizer steps that are done.", examples=[120])
    total_steps: int | None = Field(default=None, description="Steps in all, where known.", examples=[300])
    loss: float | None = Field(default=None, description="The newest training loss.", examples=[2.31])
    tokens_per_s: float | None = Field(default=None, description="Tokens a second over all ranks.", examples=[5120.0])
    eta_s: float | None = Field(
        default=None, description="Seconds from `updated_at` until the last step.", examples=[41.5]
    )
    eta_at: Timestamp | None = Field(
        default=None, description="When the last step is expected, while the job trains.", examples=[_AT]
    )
    values: dict[str, float] = Field(
        default_factory=dict, description="The newest value of every metric.", examples=[{"loss": 2.31, "lr": 0.002}]
    )
    updated_at: Timestamp | None = Field(default=None, description="When it was reported.", examples=[_AT])


class Tried(Answer):
    """One offer that was tried and why it did not do."""

    provider: str = Field(description="The provider instance.", examples=["lambda"])
    instance_type: str = Field(description="What was asked for.", examples=["gpu_8x_h100"])
    region: str = Field(default="", description="Where.", examples=["us-west-1"])
    reason: str = Field(description="A slug.", examples=["no_capacity"])
    detail: str = Field(default="", description="The same for people.", examples=["no gpu_8x_h100 in us-west-1"])
    at: Timestamp | None = Field(default=None, description="When.", examples=[_AT])


class Waiting(Answer):
    """Why the job has no nodes yet."""

    reason: str = Field(description="A slug.", examples=["no_capacity"])
    detail: str = Field(default="", description="The same for people.", examples=["needs 2 CPU slots, 0 of 4 are free"])
    position: int | None = Field(default=None, description="Jobs before it, plus one.", examples=[3])
    blocked_by: tuple[str, ...] = Field(default=(), description="Jobs that hold what it waits for.", examples=[[_JOB]])
    next_try_at: Timestamp | None = Field(default=None, description="When it is tried again.", examples=[_AT])
    tried: tuple[Tried, ...] = Field(
        default=(),
        description="The offers of the last round.",
        examples=[[{"provider": "lambda", "instance_type": "gpu_8x_h100", "reason": "no_capacity"}]],
    )


class Measured(Answer):
    """What was measured of what a plan predicts, in the current attempt."""

    tokens_per_s: float | None = Field(
        default=None, description="Over all ranks, by the newest report.", examples=[61200.0]
    )
    peak_memory_gib: float | None = Field(
        default=None,
        description="Of the main rank: on a GPU what tensors took, on a CPU the whole process.",
        examples=[49.8],
    )
    start_up_s: float | None = Field(
        default=None, description="From the order of the first node until every rank ran.", examples=[201.0]
    )
    usd_per_hour: float | None = Field(default=None, description="What the nodes bill.", examples=[24.0])
    micro_size: int | None = Field(
        default=None,
        description="The micro-batch that fitted when it was tried on the nodes, where the plan chose it. "
        "Null: it was not tried.",
        examples=[2],
    )


class JobPlan(Answer):
    """What the planner chose for the current attempt; every `auto` of the document is pinned here."""

    strategy: str = Field(description="The kind of the strategy.", examples=["ddp"])
    why: str = Field(default="", description="The reason for the choice.", examples=["asked for"])
    provider: str = Field(description="The provider instance.", examples=["local"])
    instance_type: str = Field(description="The kind of node.", examples=["this-machine"])
    region: str = Field(default="", description="Where.", examples=["here"])
    jurisdiction: str = Field(default="", description="Whose law holds there.", examples=["DE"])
    gpu_model: str | None = Field(default=None, description="The GPU model. Null: CPU ranks.", examples=["H100"])
    num_nodes: int = Field(description="Number of nodes.", examples=[1])
    ranks_per_node: int = Field(description="Ranks of each node.", examples=[2])
    world_size: int = Field(description="Ranks in all.", examples=[2])
    micro_size: int | None = Field(default=None, description="Samples of one forward pass on one rank.", examples=[8])
    accumulation: int | None = Field(default=None, description="Forward passes for one optimizer step.", examples=[1])
    activation_checkpointing: str | None = Field(
        default=None, description="`none`, `selective` or `full`; null for scripts.", examples=["none"]
    )
    usd_per_hour: float = Field(default=0.0, description="Price of the whole gang.", examples=[0.0])
    notes: tuple[str, ...] = Field(
        default=(),
        description="What a person should know of it: what is tight, what is a guess.",
        examples=[["nothing is known of the network between these nodes: a slow one is assumed"]],
    )
    memory: PlannedMemory | None = Field(
        default=None,
        description="Predicted memory of a rank. Null: the model's size is not known.",
        examples=[{"need_gib": 52.6, "available_gib": 79.1}],
    )
    time: PlannedTime | None = Field(
        default=None, description="Predicted time; null likewise.", examples=[{"step_s": 4.15, "tokens_per_s": 63133.0}]
    )
    cost: PlannedCost | None = Field(
        default=None, description="Predicted money; null likewise.", examples=[{"usd_per_hour": 24.0, "usd": 29.28}]
    )
    measured: Measured | None = Field(
        default=None,
        description="What came of it so far. Null: nothing was measured yet.",
        examples=[{"tokens_per_s": 61200.0, "peak_memory_gib": 49.8, "start_up_s": 201.0}],
    )


class JobNode(Answer):
    """One node of the job, from its intent to the proof that it is gone."""

    token: str = Field(description="Its name at the provider.", examples=["shn-k3v9qa-7c2mq4x5w6z2a3bd"])
    rank: int = Field(description="Its place in the gang.", examples=[0])
    attempt: int = Field(default=1, description="The attempt that made it.", examples=[1])
    provider: str = Field(description="The provider instance.", examples=["local"])
    instance_type: str = Field(description="The kind of node.", examples=["this-machine"])
    region: str = Field(default="", description="Where.", examples=["here"])
    handle: str = Field(default="", description="The provider's own id.", examples=["local-4711"])
    hostname: str = Field(default="", description="Its host name, once it has reported.", examples=["trainbox"])
    state: NodeState = Field(description="Where its row of the ledger is.", examples=["ready"])
    health: Health = Field(default=Health.OK, description="Whether it reports.", examples=["ok"])
    usd_per_hour: float = Field(default=0.0, description="What it bills.", examples=[0.0])
    created_at: Timestamp | None = Field(default=None, description="When it was intended.", examples=[_AT])
    ready_at: Timestamp | None = Field(default=None, description="When its agent first reported.", examples=[_AT])
    last_seen_at: Timestamp | None = Field(default=None, description="When it last reported.", examples=[_AT])
    released_at: Timestamp | None = Field(default=None, description="When it was proven gone.", examples=[_AT])


class Attempt(Answer):
    """One start of the gang, from the order to run to its end."""

    generation: int = Field(description="Its number; checkpoints and logs carry it.", examples=[1])
    started_at: Timestamp = Field(description="When its nodes were told to run.", examples=[_AT])
    running_at: Timestamp | None = Field(default=None, description="When every rank was up.", examples=[_AT])
    ended_at: Timestamp | None = Field(default=None, description="When it ended.", examples=[_AT])
    how: str = Field(
        description="`running`, `done`, `failed` (by the user's program), `lost` (a node or a rank, for no fault of "
        "the user's), `paused`, `moved`, `stopped` (by a cancel or a limit); an open list.",
        examples=["lost"],
    )
    reason: str | None = Field(default=None, description="A slug, where there is a reason.", examples=["preempted"])
    message: str | None = Field(default=None, description="The same for people.", examples=["rank 1 ended by SIGKILL"])
    nodes: tuple[str, ...] = Field(
        default=(), description="Tokens of its nodes.", examples=[["shn-k3v9qa-7c2mq4x5w6z2a3bd"]]
    )
    last_step: int | None = Field(default=None, description="The last step that it reported.", examples=[120])
    recovery: RecoveryTimes | None = Field(
        default=None,
        description="How it came back, if it followed a loss. The steps of the last three are known.",
        examples=[{"lost_at": _AT, "resumed_at": _AT, "seconds": 31.8, "phases": []}],
    )
    document: int = Field(
        default=1, description="The version of the document that it ran; a move makes a new one.", examples=[1]
    )
    strategy: str | None = Field(default=None, description="The kind of its strategy.", examples=["ddp"])


class JobDocument(Answer):
    """One version of a job's document."""

    version: int = Field(description="From 1 on; each move made one more.", examples=[1])
    first_generation: int = Field(description="The first start of the gang under it.", examples=[1])
    last_generation: int | None = Field(
        default=None,
        description="The last start under it; below the first where none ran. Null: it is the present one.",
        examples=[2],
    )
    replaced_at: Timestamp | None = Field(
        default=None, description="When a move put another in its place. Null: it is the present one.", examples=[_AT]
    )
    spec: dict[str, Any] = Field(
        title="Document", description="The job document.", examples=[{"version": "1", "name": "tiny-lm-ddp"}]
    )


class JobDocuments(Answer):
    """Every version of a job's document."""

    items: tuple[JobDocument, ...] = Field(
        description="Oldest first; the last is the present one.",
        examples=[[{"version": 1, "first_generation": 1, "spec": {"version": "1", "name": "tiny-lm-ddp"}}]],
    )


class Transition(Answer):
    """One change of state."""

    at: Timestamp = Field(description="When.", examples=[_AT])
    from_: State | None = Field(
        default=None,
        validation_alias="from",
        serialization_alias="from",
        description="The state before. Null: the job was accepted.",
        examples=["queued"],
    )
    to: State = Field(description="The state after.", examples=["provisioning"])
    trigger: str | None = Field(default=None, description="What moved it. Null: it was accepted.", examples=["planned"])
    reason: str | None = Field(default=None, description="A slug, where there is a reason.", examples=["done"])
    generation: int | None = Field(default=None, description="The start of the gang then.", examples=[1])


class Forecast(Answer):
    """What a running job will have cost when it is done, by its pace and what bills now."""

    usd: float = Field(description="In all, if nothing ends it before.", examples=[291.0])
    total_steps: int = Field(description="Its last step.", examples=[10000])
    cap_at_step: int | None = Field(
        default=None,
        description="The step at which `limits.max_cost_usd` will be reached. Null: it is done before, or has no cap.",
        examples=[7900],
    )
    usd_above_cap: float | None = Field(
        default=None,
        description="By how much the cap has to be raised (`PATCH /v1/jobs/{id}`) for the job to finish.",
        examples=[41.0],
    )


class Cost(Answer):
    """Money spent on the job, from the ledger."""

    usd: float = Field(default=0.0, description="Spent so far.", examples=[0.0])
    usd_per_hour: float = Field(default=0.0, description="What bills at this moment.", examples=[0.0])
    forecast: Forecast | None = Field(
        default=None,
        description="Null: nothing bills, or the job does not say how far it is.",
        examples=[{"usd": 291.0, "total_steps": 10000, "cap_at_step": 7900, "usd_above_cap": 41.0}],
    )


class JobSummary(Answer):
    """A job in a list; at most 300 bytes."""

    id: str = Field(description="The job's id.", examples=[_JOB])
    name: str = Field(description="Its label.", examples=["tiny-lm-ddp"])
    state: State = Field(description="Where it is.", examples=["running"])
    reason: str | None = Field(default=None, description="Why it stopped or stops.", examples=["done"])
    step: int | None = Field(default=None, description="Steps done.", examples=[120])
    total_steps: int | None = Field(default=None, description="Steps in all.", examples=[300])
    created_at: Timestamp = Field(description="When it was accepted.", examples=[_AT])
    finished_at: Timestamp | None = Field(default=None, description="When its outcome was fixed.", examples=[_AT])
    paused: bool | None = Field(default=None, description="True: it is paused, or about to be.", examples=[True])


class JobPage(Answer):
    """Jobs, newest first."""

    items: tuple[JobSummary, ...] = Field(
        description="The jobs of this page.",
        examples=[[{"id": _JOB, "name": "tiny-lm-ddp", "state": "running", "created_at": _AT}]],
    )
    next_cursor: str | None = Field(
        default=None, description="Pass it as `cursor` for the next page. Null: this is the last.", examples=["MDFrYg"]
    )


class Job(Answer):
    """A job: what was asked for, where it is, and what it did."""

    id: str = Field(description="The job's id.", examples=[_JOB])
    name: str = Field(description="Its label.", examples=["tiny-lm-ddp"])
    labels: dict[str, str] = Field(
        default_factory=dict, description="Labels to filter and group by.", examples=[{"team": "nlp"}]
    )
    priority: Priority = Field(default="normal", description="Which jobs go first.", examples=["normal"])
    state: State = Field(description="Where it is.", examples=["running"])
    reason: str | None = Field(default=None, description="Why it stopped or stops; an open list.", examples=["done"])
    message: str | None = Field(
        default=None,
        description="The reason for people; the first failing rank's last lines where a program failed.",
        examples=["rank 1 ended with exit code 1"],
    )
    health: Health = Field(
        default=Health.OK, description="`unreachable`: nodes do not report; never a failure by itself.", examples=["ok"]
    )
    outcome: State | None = Field(
        default=None,
        description="How it ends: fixed with the reason, before the nodes are gone.",
        examples=["succeeded"],
    )
    created_at: Timestamp = Field(description="When it was accepted.", examples=[_AT])
    updated_at: Timestamp = Field(description="When anything of it last changed.", examples=[_AT])
    started_at: Timestamp | None = Field(default=None, description="When it first ran.", examples=[_AT])
    finished_at: Timestamp | None = Field(default=None, description="When its outcome was fixed.", examples=[_AT])
    released_at: Timestamp | None = Field(
        default=None, description="When the last node was proven gone.", examples=[_AT]
    )
    cancel_requested_at: Timestamp | None = Field(
        default=None, description="When somebody asked for its end.", examples=[_AT]
    )
    pause_requested_at: Timestamp | None = Field(
        default=None, description="When somebody paused it; gone once it is resumed.", examples=[_AT]
    )
    move_requested_at: Timestamp | None = Field(
        default=None, description="When somebody asked for a move that is not carried out yet.", examples=[_AT]
    )
    move: dict[str, Any] | None = Field(
        default=None,
        description="The parts of the document that the move will change.",
        examples=[{"strategy": {"kind": "fsdp"}}],
    )
    document: int = Field(default=1, description="The version of the document; each move makes one more.", examples=[1])
    retry_of: str | None = Field(
        default=None, description="The job whose document this one takes up again.", examples=[_JOB]
    )
    resumes_from_step: int | None = Field(
        default=None, description="The step of that job's checkpoint from which this one goes on.", examples=[100]
    )
    created_by: str | None = Field(default=None, description="Who submitted it.", examples=["key_01kb9m4t8z"])
    project: str = Field(default="default", description="The project it belongs to.", examples=["default"])
    revision: int = Field(description="Grows with every change.", examples=[14])
    attempt: int = Field(default=0, description="Plans that were carried out so far.", examples=[1])
    generation: int = Field(default=0, description="Starts of the gang so far.", examples=[1])
    progress: Progress | None = Field(
        default=None, description="Where the training is.", examples=[{"step": 120, "total_steps": 300, "loss": 2.31}]
    )
    waiting: Waiting | None = Field(
        default=None, description="Why it has no nodes yet.", examples=[{"reason": "no_capacity", "position": 3}]
    )
    plan: JobPlan | None = Field(
        default=None,
        description="What was chosen for the current attempt.",
        examples=[
            {
                "strategy": "ddp",
                "provider": "local",
                "instance_type": "this-machine",
                "num_nodes": 1,
                "ranks_per_node": 2,
                "world_size": 2,
            }
        ],
    )
    nodes: tuple[JobNode, ...] = Field(
        default=(),
        description="Its nodes, also those that are gone.",
        examples=[
            [
                {
                    "token": "shn-k3v9qa-7c2mq4x5w6z2a3bd",
                    "rank": 0,
                    "provider": "local",
                    "instance_type": "this-machine",
                    "state": "ready",
                }
            ]
        ],
    )
    attempts: tuple[Attempt, ...] = Field(
        default=(),
        description="Starts of its gang so far, oldest first.",
        examples=[[{"generation": 1, "started_at": _AT, "how": "lost", "reason": "preempted", "last_step": 120}]],
    )
    transitions: tuple[Transition, ...] = Field(
        default=(),
        description="Its states so far, oldest first.",
        examples=[[{"at": _AT, "from": None, "to": "queued"}]],
    )
    cost: Cost = Field(default=Cost(), description="Money spent.", examples=[{"usd": 0.0}])
    spec: dict[str, Any] = Field(
        title="Content",  # what generated clients call its type; `JobSpec` and `JobDocument` are others' names
        description="The job document.",
        examples=[{"version": "1", "name": "tiny-lm-ddp"}],
    )
    links: dict[str, str] = Field(
        default_factory=dict, description="Related addresses by name.", examples=[{"logs": f"/v1/jobs/{_JOB}/logs"}]
    )
