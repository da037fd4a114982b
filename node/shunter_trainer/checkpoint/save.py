"""Writing checkpoints while the training goes on.

`save` copies this rank's share of the state and returns; a thread writes it, and at the end of all files the leader of
each node commits the folder. What is replicated on every rank is copied and written by one rank only.
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Mapping
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from shunter_trainer.checkpoint.manifest import (
    POSITION,
    TEMPORARY,
    FileEntry,
    commit,
    describe,
    sync_folder,
    write_durably,
)
from shunter_trainer.checkpoint.prune import prune
from shunter_trainer.failures import (
    CheckpointFault,
    DiskFull,
    PeerDiskFull,
    PeerLost,
    TrainingFailure,
    speaks_of_lost_peer,
)
from shunter_trainer.gang import Gang, another_group
from shunter_trainer.strategies.names import MODEL, OPTIMIZER

_METADATA = ".metadata"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_SHARED_OUT = (MODEL, OPTIMIZER)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a training stands; `trainer.json` of a checkpoint.

    Random numbers need no state: dropout and augmentation are seeded by step, rank and sample.
    """

    step: int
    samples_seen: int
    workload_sha256: str
    world_size: int
    strategy: str
    memory: Mapping[str, float] = field(default_factory=dict)
    """Small numbers that go on from here: the loss scale, what early stopping has seen."""
    base_sha256: str | None = None
    """Digest of the frozen weights that an adapter is trained on; the checkpoint does not hold them."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Where checkpoints go and how many stay."""

    root: Path
    generation: str
    keep: int
    best_by: str | None


class Saver:
    """Writes the checkpoints of one rank. Every rank makes one, and calls `save` at the same steps."""

    def __init__(self, policy: Policy, gang: Gang) -> None:
        self._policy = policy
        self._gang = gang
        self._group = another_group()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._running: Future[None] | None = None
        self.blocked_s = 0.0
        """How long the training stood still for the last `save`."""

    def save(self, state: Mapping[str, Any], position: Position, values: Mapping[str, float]) -> None:
        """Begin a checkpoint; waits for the one before it.

        Raises: CheckpointFault when the one before it could not be written.
        """
        began = time.perf_counter()
        self.wait()
        copy = own_share(state, self._gang)
        self._running = self._pool.submit(self._write, copy, position, dict(values))
        self.blocked_s = time.perf_counter() - began

    def wait(self) -> None:
        """Return when the last checkpoint is committed.

        Raises: CheckpointFault when it could not be written.
        """
        running, self._running = self._running, None
        if running is None:
            return
        try:
            running.result()
        except BaseException as error:  # what torch raises here is no Exception
            raise self._fault(error) from error

    def _fault(self, error: BaseException) -> TrainingFailure:
        """What a failed write means for this rank: torch tells every rank of the failures of all."""
        if speaks_of_lost_peer(str(error)):
            return PeerLost(f"Another rank is gone: it was lost while a checkpoint was written ({error})")
        failures: Mapping[int, Any] = getattr(error, "failures", {})
        if failures and self._gang.rank not in failures:
            return fault_of_others({rank: cause for rank, (cause, *_) in failures.items()})
        own = failures[self._gang.rank][0] if failures else error
        cause = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        kind = DiskFull if _lacks_room(own) else CheckpointFault
        return kind(f"a checkpoint could not be written to {self._policy.root}: {cause}")

    def salvage(self, within_s: float) -> None:
        """Before this rank ends with a failure: let a checkpoint that is under way become whole, if it still can."""
        if self._running is not None:
            futures.wait([self._running], within_s)

    def _write(self, state: dict[str, Any], position: Position, values: dict[str, float]) -> None:
        # Heavy (0.7 s), and needed by nothing else: imported here, beside the running training.
        from torch.distributed.checkpoint.filesystem import FileSystemWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        policy, gang = self._policy, self._gang
        temporary = policy.root / f"{TEMPORARY}step-{position.step:08d}-{policy.generation}"
        temporary.mkdir(exist_ok=True)
        writer = FileSystemWriter(temporary, sync_files=True, overwrite=False)
        save(state, storage_writer=writer, process_group=self._group)
        files = self._gather(describe(temporary, self._own_files(temporary, position)))
        if gang.leads_node:
            commit(temporary, policy.root, position.step, values, files)
            prune(policy.root, position.step, policy.keep, policy.best_by)

    def _own_files(self, temporary: Path, position: Position) -> list[str]:
        rank = self._gang.rank
        own = [file.name for file in temporary.glob(f"__{rank}_*")]
        if rank == 0:
            write_durably(temporary / POSITION, json.dumps(asdict(position), indent=1))
            own += [_METADATA, POSITION]
        sync_folder(temporary)
        return own

    def _gather(self, own: list[FileEntry]) -> list[FileEntry]:
        """The files of all ranks; returns when every rank has written its own."""
        everyone: list[Any] = [None] * self._gang.world_size
        dist.all_gather_object(everyone, own, group=self._group)
        return [entry for entries in everyone for entry in entries]


def fault_of_others(causes: Mapping[int, BaseException]) -> TrainingFailure:
    """What it means for this rank that others, by their ranks, could not write: the one without room is to blame."""
    rank = next((rank for rank, cause in causes.items() if _lacks_room(cause)), next(iter(causes)))
    told = f"rank {rank} could not write its part of a checkpoint ({causes[rank]})"
    return PeerDiskFull(rank, told) if _lacks_room(causes[rank]) else PeerLost(told)


def own_share(state: Mapping[str, Any], gang: Gang) -> dict[str, Any]:
    """A copy, on the CPU, of what this rank writes: its shards, and its part of what every rank holds.

    What several ranks hold alike, be it the whole or a shard, is written by the one with the fewest bytes so far.
    Buffers and settings go to rank 0, whose values count where ranks differ.
    """
    loads: dict[int, list[int]] = {}
    share: dict[str, Any] = {}
    for name, value in sorted(state.items(), key=lambda item: (-_size(item[1]), item[0])):
        own, holders = _holders(value, gang)
        load = loads.setdefault(holders, [0] * holders)
        writer = load.index(min(load)) if isinstance(value, Tensor) and name.startswith(_SHARED_OUT) else 0
        load[writer] += _size(value)
        if writer == own:
            share[name] = _copy(value)
    if gang.device.type == "cuda":
        torch.cuda.synchronize(gang.device)
    return share


def _lacks_room(error: BaseException) -> bool:
    return getattr(error, "errno", None) in _NO_ROOM


def _holders(value: Any, gang: Gang) -> tuple[int, int]:
    """Which one this rank is among those that hold the same, and how many these are."""
    if not _is_dtensor(value):
        return gang.rank, gang.world_size
    own, holders = 0, 1
    for axis, placement in enumerate(value.placements):
        if placement.is_replicate():
            size = value.device_mesh.size(axis)
            own, holders = own * size + value.device_mesh.get_local_rank(axis), holders * size
    return own, holders


def _copy(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    # From a GPU: into pinned memory, which torch keeps for the next time, several times as fast as into fresh memory.
    return value.detach().to("cpu", copy=True, non_blocking=True)


def _is_dtensor(value: Any) -> bool:
    return hasattr(value, "placements")  # told without its heavy module


def _size(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, Tensor) else 0
