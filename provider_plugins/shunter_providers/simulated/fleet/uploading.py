"""What played agents store: a few bytes for each log chunk and checkpoint, by signed URLs as real ones do."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from shunter_providers.simulated.fleet.part import Part


@dataclass(frozen=True, slots=True)
class Upload:
    """A record, and the object that has to be stored before it is told."""

    type: str
    generation: int
    data: dict[str, Any]
    key: str
    body: bytes


def log_upload(part: Part, journal_id: str, offset: int, first: int, last: int, now: float) -> Upload | None:
    """The lines of the steps `first … last` of the node's first rank; None: there are none."""
    body = "".join(f"step {step} of a played training\n" for step in range(first, last + 1)).encode()
    if not body:
        return None
    key = f"{part.job_id}/{part.generation}/logs/{part.ranks[0]}-stdout/{journal_id}-{offset}"
    data = {
        "rank": part.ranks[0],
        "stream": "stdout",
        "offset": offset,
        "length": len(body),
        "lines": last - first + 1,
        "object": key,
        "first_at": part.begins_at,
        "last_at": now,
    }
    return Upload("log", part.generation, data, key, body)


def checkpoint_upload(part: Part, step: int) -> Upload:
    """The node's part of a checkpoint."""
    body = json.dumps({"step": step, "node_rank": part.node_rank}).encode()
    path = f"step-{step}/node-{part.node_rank}.json"
    key = f"{part.job_id}/{part.generation}/checkpoints/{path}"
    file = {"path": path, "size": len(body), "sha256": hashlib.sha256(body).hexdigest(), "object": key}
    data = {"step": step, "node_rank": part.node_rank, "files": [file], "values": {}}
    return Upload("checkpoint", part.generation, data, key, body)
