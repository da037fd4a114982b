"""What agents send, for tests that need no agent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from shunter_schemas.node_sync import PROTOCOL, NodeStatus, Record, SyncRequest
from shunter_store.node.ledger import NodeRow

Short = tuple[str, int, dict[str, Any]]
"""Type, number and data of a record; generation 1 at the first second."""

NodePhase = Literal["idle", "preparing", "running", "stopping", "ended", "drained"]


def sync_request(
    node: NodeRow,
    *records: Short | Record,
    journal: str = "journal",
    phase: NodePhase = "running",
    generation: int = 1,
    handle: str | None = None,
) -> SyncRequest:
    """One exchange of the node."""
    return SyncRequest(
        protocol=PROTOCOL,
        node=node.token,
        journal_id=journal,
        handle=handle,
        status=NodeStatus(phase=phase, generation=generation),
        records=[made if isinstance(made, Record) else record(*made) for made in records],
    )


def record(type_: str, seq: int, data: dict[str, Any] | None = None, *, generation: int = 1, at: float = 1.0) -> Record:
    """One line of a journal."""
    return Record(seq=seq, at=at, type=type_, generation=generation, data=data or {})


def boot(seq: int = 1) -> Short:
    """The agent came up."""
    facts = {"boot_id": "b", "hostname": "host", "agent_version": "1", "python": "3.11", "cpus": 2, "memory_gib": 4.0}
    return ("boot", seq, facts)


def points(seq: int, steps: Iterable[int], name: str = "loss") -> Short:
    """Metric points whose value is the step."""
    return ("metrics", seq, {"points": [{"step": step, "at": 1.0, "values": {name: float(step)}} for step in steps]})


def log(seq: int, node: NodeRow, *, offset: int = 0, length: int = 10, lines: int = 1, generation: int = 1) -> Short:
    """A chunk of rank 0's stdout."""
    chunk = {
        "rank": node.rank,
        "stream": "stdout",
        "offset": offset,
        "length": length,
        "lines": lines,
        "object": f"{node.job_id}/{generation}/logs/{offset}",
        "first_at": 1.0,
        "last_at": 2.0,
    }
    return ("log", seq, chunk)


def file_entry(job_id: str, path: str, *, generation: int = 1, size: int = 3) -> dict[str, Any]:
    """An uploaded file."""
    return {"path": path, "size": size, "sha256": "0" * 64, "object": f"{job_id}/{generation}/{path}"}


def checkpoint(seq: int, node: NodeRow, step: int, **values: float) -> Short:
    """The node's part of a checkpoint, one file."""
    files = [file_entry(node.job_id, f"part-{node.rank}")]
    return ("checkpoint", seq, {"step": step, "node_rank": node.rank, "files": files, "values": values})
