"""The node protocol, version 1: what an agent and the service tell each other in one exchange.

`POST /v1/node/sync` with `Authorization: Bearer <node's own sync token>`. The agent sends journal records that the
service has not acknowledged; the answer carries the cursor up to which everything is durable and what is *desired* of
the node. Both directions are level-triggered: an exchange may be lost or repeated at any point and nothing is lost or
done twice. The agent (standard library only) writes these shapes as plain JSON; the service reads them with these
models, which ignore fields they do not know so that an older service bears a newer agent.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from shunter_schemas.muster import Muster, Peer
from shunter_schemas.states import FailureClass

PROTOCOL = 1


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Phase(StrEnum):
    """What the service wants of a node."""

    HOLD = "hold"
    """Stay up, run nothing."""
    MUSTER = "muster"
    """Run nothing; open ports for `generation` and call the other nodes, before all are told to run it."""
    RUN = "run"
    """Run `generation` as the assignment says; a lower generation that still runs is stopped first."""
    STOP = "stop"
    """Stop the ranks (SIGTERM, grace, SIGKILL), upload everything, then report `drained`."""
    RELEASE = "release"
    """Everything is collected: stop whatever runs and end the agent."""


class Record(_Message):
    """One line of the agent's journal. `seq` starts at 1 and has no gaps within a journal."""

    seq: int = Field(ge=1)
    at: float
    """Seconds since the epoch by the node's clock."""
    type: str
    """One of the record types below; an unknown type is stored as an event and otherwise skipped."""
    generation: int = 0
    """The gang generation this record belongs to; 0 before any start command."""
    data: dict[str, Any] = Field(default_factory=dict)


# The shapes of `Record.data` by `Record.type`.


class Boot(_Message):
    """`boot`: the agent came up (also after a restart of the agent on the same node)."""

    boot_id: str
    hostname: str
    agent_version: str
    python: str
    cpus: int
    memory_gib: float
    gpus: list[dict[str, Any]] = Field(default_factory=list)
    addresses: list[str] = Field(default_factory=list)
    disk_free_gib: float | None = None
    """Where the agent's folder lies."""
    cuda_error: str = ""
    """Why the driver does not serve programs, where there are GPUs and it does not."""


class Prepared(_Message):
    """`prepare`: a part of the set-up began, ended or failed; shown to the user as progress."""

    part: str
    """`image`, `source`, `inputs`, `environment`, `requirements`, `setup`, `resume`."""
    status: Literal["started", "done", "failed"]
    message: str = ""
    facts: dict[str, Any] = Field(default_factory=dict)
    """E.g. `{"commit": "<sha>"}` for a git source."""


class RankUp(_Message):
    """`rank_up`: a rank's process lives and, for our trainer, has joined the gang."""

    rank: int
    pid: int


class RankExit(_Message):
    """`rank_exit`: a rank's process ended."""

    rank: int
    exit_code: int | None
    signal: int | None = None
    tail: str = ""
    """The last lines of its stderr (or its error file)."""


class GangEnd(_Message):
    """`done`, `failed` or `stopped`: how this node's part of the generation ended. Exactly one per generation."""

    rank: int | None = None
    """The first rank that failed."""
    failure_class: FailureClass | None = None
    reason: str = ""
    """A slug: `user_error`, `setup_failed`, `out_of_memory`, `peer_lost`, `signal`, `lease_expired` …"""
    message: str = ""
    exit_code: int | None = None


class MetricPoint(_Message):
    """One point of `metrics`: `{"points": [...]}`."""

    step: int = Field(ge=0)
    at: float
    values: dict[str, float]


class Progress(_Message):
    """`progress`: where the training is; the newest wins."""

    step: int
    total_steps: int | None = None
    values: dict[str, float] = Field(default_factory=dict)
    eta_s: float | None = None


class FileEntry(_Message):
    """A file that was uploaded: its path inside the checkpoint or output folder, and its object key."""

    path: str
    size: int = Field(ge=0)
    sha256: str
    object: str


class CheckpointUploaded(_Message):
    """`checkpoint`: this node's part of a checkpoint is complete and uploaded. The service commits it."""

    step: int
    node_rank: int
    files: list[FileEntry]
    values: dict[str, float] = Field(default_factory=dict)


class ArtifactUploaded(_Message):
    """`artifact`: a file of the output folder was uploaded."""

    file: FileEntry


class LogChunk(_Message):
    """`log`: bytes `[offset, offset + length)` of one stream of one rank were uploaded."""

    rank: int
    """-1 for the agent's own set-up output."""
    stream: Literal["stdout", "stderr", "setup"]
    offset: int = Field(ge=0)
    length: int = Field(ge=1)
    lines: int = Field(ge=0)
    """Line feeds in this chunk."""
    object: str
    first_at: float
    last_at: float


class Drained(_Message):
    """`drained`: no rank runs and nothing is left to upload for this generation."""


class NodeStatus(_Message):
    """What the agent does at this moment."""

    phase: Literal["idle", "preparing", "running", "stopping", "ended", "drained"]
    generation: int = 0
    ranks_running: int = 0
    uptime_s: float = 0.0
    dropped: int = 0
    """Records that could not be written (disk full) since the boot."""
    clock: float | None = None
    """Seconds since the epoch by the node's clock as this was written: its skew follows from it."""
    stuck: str = Field(default="", max_length=2000)
    """What keeps the node from writing down what happens: a full disk. The service hears of it only here."""
    muster: Muster | None = None
    """While the gang gathers, and until its ranks start."""


class SyncRequest(_Message):
    """Agent to service."""

    protocol: int
    node: str
    """The node's token (`shn-…`)."""
    journal_id: str
    """New whenever the journal starts anew; the cursor belongs to it."""
    handle: str | None = None
    """The provider's name of this machine, where the agent knows it. Another than the ledger's: it is a twin."""
    status: NodeStatus
    records: list[Record] = Field(default_factory=list, max_length=2000)


class RankPlan(_Message):
    """The place of this node in the gang; enough for torchrun's exact environment."""

    node_rank: int
    num_nodes: int
    ranks_per_node: int
    world_size: int
    master_addr: str
    master_port: int
    """0: the node picks a free port itself (single-node gangs only)."""
    gpus: list[int] = Field(default_factory=list)
    """Indices of the GPUs that belong to this job on this node; empty for CPU ranks."""
    cpu_threads_per_rank: int = 1
    interface: str | None = None


class ObjectRef(_Message):
    """A stored object that the node fetches by a download grant."""

    path: str
    """Where it goes, relative to its folder."""
    size: int
    sha256: str
    object: str


class ResumePoint(_Message):
    """The last committed checkpoint."""

    generation: int
    step: int
    files: list[ObjectRef]


class Assignment(_Message):
    """All that a node needs to run its part of one generation."""

    job_id: str
    generation: int
    document: dict[str, Any]
    """The job document as stored."""
    ranks: RankPlan
    source: ObjectRef | None = None
    """A bundle (`tar.gz`) for `source: bundle`; git sources are cloned by the agent from the document."""
    source_commit: str | None = None
    """For git sources after the first attempt: the commit that was resolved then."""
    inputs: dict[str, ObjectRef] = Field(default_factory=dict)
    resume: ResumePoint | None = None
    stop_grace_s: float = 30.0


class Lease(_Message):
    """How long the node may go on alone. Seconds from the moment of the answer; None: no expiry."""

    expires_in_s: float | None = None
    stop_in_s: float | None = None
    """At that time: checkpoint, stop, drain (budget or duration)."""


class Desired(_Message):
    """What is wanted of the node, in full, in every answer."""

    phase: Phase
    generation: int = 0
    handle: str = ""
    assignment: Assignment | None = None
    """Sent while `phase` is `run` and the agent's status shows a lower generation."""
    reason: str = ""
    peers: list[Peer] = Field(default_factory=list)
    """With `muster`: the other nodes that have opened their ports by now."""
    checkpoint: int = 0
    """With `run`: grows each time that somebody asks for a checkpoint. The first value that comes with a generation
    asks for nothing."""
    since: float | None = None
    """When it was decided, in seconds since the epoch by the service's clock: what the agent shows when it listens.
    None: there is nothing to listen for."""


class SyncAnswer(_Message):
    """Service to agent."""

    protocol: int = PROTOCOL
    acknowledged: int
    """Every record with `seq` <= this is durable; the agent sends the next ones."""
    desired: Desired
    lease: Lease = Lease()
    next_sync_s: float = 15.0
    """Come again after this, or at once when something of note happens."""
    upload_logs: bool = False
    """Somebody watches: upload log bytes at every exchange."""


class ListenRequest(_Message):
    """`POST /v1/node/listen`: be told when something else is wanted of the node than it has heard.

    Only a hint: the agent that is told asks in an exchange what it is. One that never listens, and one whose service
    does not know this message (404), hears the same at its next exchange.
    """

    node: str
    since: float
    """`Desired.since` of the last exchange."""
    wait_s: float = Field(ge=0)
    """How long the service may hold the answer back."""


class ListenAnswer(_Message):
    """At once when there is something new, else when the time is over."""

    changed: bool
    again_in_s: float = 0.0
    """Listen again after this: the service holds as many answers back as it can, or is about to end."""


class GrantRequest(_Message):
    """`POST /v1/node/grants`: permission to write or read objects. Keys of writes must lie under `JOB/GENERATION/`."""

    put: list[str] = Field(default_factory=list, max_length=500)
    get: list[str] = Field(default_factory=list, max_length=500)


class GrantAnswer(_Message):
    """URLs by key. A write URL takes one `PUT`; a second with the same bytes is fine, with others is 409.

    A URL that begins with `/` is relative to the service's own address.
    """

    put: dict[str, str] = Field(default_factory=dict)
    get: dict[str, str] = Field(default_factory=dict)
    expires_in_s: float = 3600.0


class Container(_Message):
    """What a machine has to run under docker, with the agent and the ranks inside."""

    image: str
    gpus: bool
    """Whether the job uses GPUs of the machine."""
    may_install: bool
    """Whether docker is installed where it lacks: on machines that were made for the job."""


class LaunchFile(_Message):
    """`launch.json`: all that an agent knows at birth. Written by the worker, read by the agent."""

    protocol: int = PROTOCOL
    node: str
    sync_token: str
    service_url: str
    service_url_file: str | None = None
    """On nodes that share the service's file system: read again at each try, since the port may change."""
    lease: Lease = Lease()
    ends_machine: bool = False
    """Whether the agent powers the machine off when its lease ends (never on one's own hosts)."""
    power_off: str = ""
    """The shell command that does it; empty: the system's own."""
    home_boot_id: str = ""
    """The boot id of the machine on which the worker runs: that one is never powered off, whoever's node it plays."""
    labels: dict[str, str] = Field(default_factory=dict)
    container: Container | None = None
    """The job's own image, where the machine has to run it; None: there is none, or the provider boots it."""
