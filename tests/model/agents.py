"""Agents as they behave: a journal, one exchange at a time, and obedience to what the service desires."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shunter_schemas.muster import Endpoint, Muster, Peer, Reach
from shunter_schemas.node_sync import NodeStatus, Phase, RankPlan, Record, SyncAnswer, SyncRequest
from support.node_messages import boot, file_entry, record

from model.cloud import NEVER, Machine


@dataclass
class Agent:
    """What runs on one machine. `on_start` is called with (agent, generation) when its ranks begin."""

    machine: Machine
    on_start: Callable[[Agent, int], None]
    job_id: str
    node_rank: int
    journal: str
    knows_handle: bool = True
    records: list[Record] = field(default_factory=list)
    acknowledged: int = 0
    newest: int = 0
    running: int | None = None
    """The generation whose ranks run here."""
    left: bool = False
    """It was told to go, and went."""
    stop_told: set[int] = field(default_factory=set)
    """Generations of which it was told that they shall end."""
    done: set[int] = field(default_factory=set)
    lease_until: float = NEVER
    stop_at: float = NEVER
    muster: Muster | None = None
    ranks: range = range(0)
    steps: int = 0
    offset: int = 0

    # --- messages ----------------------------------------------------------------------------------------------

    def request(self, most: int = 2000) -> SyncRequest:
        """What it would send now."""
        phase: Any = "running" if self.running is not None else "drained" if self.newest else "idle"
        return SyncRequest(
            protocol=1,
            node=self.machine.token,
            journal_id=self.journal,
            handle=self.machine.handle if self.knows_handle else None,
            status=NodeStatus(phase=phase, generation=self.newest, muster=self.muster),
            records=[one for one in self.records if one.seq > self.acknowledged][:most],
        )

    def hear(self, answer: SyncAnswer, asked_at: float) -> None:
        """Obey, as the real one does."""
        self.acknowledged = max(self.acknowledged, answer.acknowledged)
        lease, desired = answer.lease, answer.desired
        self.lease_until = NEVER if lease.expires_in_s is None else asked_at + lease.expires_in_s
        self.stop_at = NEVER if lease.stop_in_s is None else asked_at + lease.stop_in_s
        if desired.phase not in (Phase.MUSTER, Phase.RUN):
            self.muster = None
        if desired.phase is Phase.RUN:
            if desired.assignment is not None and desired.generation > self.newest and not self.left:
                self.end("stopped", {"reason": "superseded"})
                self._start(desired.generation, desired.assignment.ranks)
        elif desired.phase is Phase.STOP:
            self._stop(desired.generation, desired.reason)
        elif desired.phase is Phase.RELEASE:
            self.running = None
            self.left = True
        elif desired.generation > self.newest:
            self.end("stopped", {"reason": "held"})
            if desired.phase is Phase.MUSTER:
                self._gather(desired.generation, desired.peers)

    # --- ranks -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The agent comes up."""
        type_, seq, facts = boot(1)
        gpu = {"name": "NVIDIA H100", "memory_gib": 80.0}
        self._write(record(type_, seq, {**facts, "gpus": [gpu]}, generation=0))

    def report_up(self) -> None:
        """Its ranks have joined the gang."""
        for rank in self.ranks:
            self._tell("rank_up", {"rank": rank, "pid": 1})

    def print_line(self) -> None:
        """Ten bytes of output are uploaded."""
        if self.running is None:
            return
        chunk = {"rank": self.node_rank, "stream": "stdout", "offset": self.offset, "length": 10, "lines": 1}
        key = f"{self.job_id}/{self.running}/logs/{self.node_rank}-{self.journal}-{self.offset}"
        self._tell("log", {**chunk, "object": key, "first_at": 1.0, "last_at": 2.0})
        self.offset += 10

    def measure(self) -> None:
        """A step of the training."""
        self.steps += 1
        if self.node_rank == 0:
            self._tell("metrics", {"points": [{"step": self.steps, "at": 1.0, "values": {"loss": 1.0}}]})

    def save(self) -> None:
        """Its part of a checkpoint is uploaded."""
        if self.running is None:
            return
        files = [file_entry(self.job_id, f"{self.steps}-{self.node_rank}", generation=self.running)]
        self._tell("checkpoint", {"step": self.steps, "node_rank": self.node_rank, "files": files})

    def finish(self) -> None:
        """Its ranks succeed."""
        if self.running is not None:
            self.done.add(self.running)
        self.end("done", {})

    def fail(self, failure_class: str) -> None:
        """A rank of it fails."""
        self.end("failed", {"rank": self.node_rank, "failure_class": failure_class, "reason": "boom"})

    def watch_lease(self, now: float) -> None:
        """Alone for too long, or the money is spent."""
        if now >= min(self.lease_until, self.stop_at):
            self.end("stopped", {"reason": "lease_expired"})

    def end(self, how: str, data: dict[str, Any]) -> None:
        """No rank runs here any more, and nothing is left to upload."""
        if self.running is None:
            return
        self._tell(how, data)
        self._tell("drained", {})
        self.running = None

    def _gather(self, generation: int, peers: Sequence[Peer]) -> None:
        """Everybody reaches everybody."""
        self.muster = Muster(
            generation=generation,
            ticket=f"{self.journal}-{generation}",
            endpoints=[Endpoint(address=f"10.0.0.{self.node_rank + 1}", interface="eth0")],
            rendezvous_port=29500,
            data_port=40000,
            reached=[
                Reach(node_rank=peer.node_rank, ticket=peer.ticket, answers=dict.fromkeys(peer.addresses, ""))
                for peer in peers
            ],
        )

    def _start(self, generation: int, plan: RankPlan) -> None:
        first = plan.node_rank * plan.ranks_per_node
        self.ranks = range(first, first + plan.ranks_per_node)
        self.newest = self.running = generation
        self.muster = None
        self.offset = 0
        self.on_start(self, generation)

    def _stop(self, generation: int, reason: str) -> None:
        self.stop_told.add(generation)
        if self.running is not None:
            self.stop_told.add(self.running)
            self.end("stopped", {"reason": reason})
        elif generation > self.newest or not self.newest:
            self.newest = max(self.newest, generation)
            self._write(record("stopped", 1, {"reason": "not_started"}, generation=generation))
            self._write(record("drained", 1, generation=generation))

    def _tell(self, type_: str, data: dict[str, Any]) -> None:
        if self.running is not None:
            self._write(record(type_, 1, data, generation=self.running))

    def _write(self, one: Record) -> None:
        self.records.append(one.model_copy(update={"seq": len(self.records) + 1}))
