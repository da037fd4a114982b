"""The place of this process among the ranks, read from torchrun's environment, and how it joins and leaves them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

_COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""Longer than any honest wait; the hang watchdog ends a stuck gang much sooner."""
_CONNECT_TIMEOUT = timedelta(minutes=1)
"""For ranks that were all there a moment ago."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Gang:
    """One rank's view of its gang."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    num_nodes: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this rank speaks for the gang."""
        return self.rank == 0

    @property
    def leads_node(self) -> bool:
        """Whether this rank does what is done once a node."""
        return self.local_rank == 0

    @staticmethod
    def from_environment(environ: Mapping[str, str] = os.environ) -> Gang:
        """Torchrun's variables; without them, a gang of one."""
        local_rank = int(environ.get("LOCAL_RANK", "0"))
        world_size = int(environ.get("WORLD_SIZE", "1"))
        return Gang(
            rank=int(environ.get("RANK", "0")),
            world_size=world_size,
            local_rank=local_rank,
            local_world_size=int(environ.get("LOCAL_WORLD_SIZE", str(world_size))),
            node_rank=int(environ.get("GROUP_RANK", "0")),
            num_nodes=int(environ.get("GROUP_WORLD_SIZE", "1")),
            device=_device(local_rank, environ),
        )


def join(gang: Gang) -> None:
    """Blocks until every rank is there."""
    if gang.device.type == "cuda":
        torch.cuda.set_device(gang.device)
    backend = "cpu:gloo,cuda:nccl" if gang.device.type == "cuda" else "gloo"
    if gang.world_size == 1:
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
        return
    if os.environ.get("MASTER_ADDR") in _LOOPBACK:
        # Otherwise gloo looks the host's name up, which fails or is slow on machines without proper DNS.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(backend, timeout=_COLLECTIVE_TIMEOUT)


def another_group() -> dist.ProcessGroup:
    """A second group of all ranks, whose messages never mix with the first's; for tensors on the CPU.

    Every rank must call it, while nothing is under way in the first. Made when it is needed first, it would leave a
    rank whose peer died just then waiting for the peer's address, half an hour long; a group that is connected breaks.
    """
    group = dist.new_group(backend="gloo", timeout=_CONNECT_TIMEOUT)
    assert isinstance(group, dist.ProcessGroup)
    dist.distributed_c10d._set_pg_timeout(_COLLECTIVE_TIMEOUT, group)
    return group


def leave(gang: Gang) -> None:
    """Wait for every rank, then take the process group down. Call `os._exit` soon after (gloo may abort otherwise)."""
    if gang.world_size > 1:
        dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()


def _device(local_rank: int, environ: Mapping[str, str]) -> torch.device:
    # An empty value is how the agent hides the GPUs from jobs on CPUs.
    if environ.get("CUDA_VISIBLE_DEVICES") != "" and torch.cuda.is_available():
        return torch.device("cuda", local_rank)
    return torch.device("cpu")
