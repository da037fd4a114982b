"""What has to be true of metric points: each once, as its rank wrote it, and none that was synced is missing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress

from chaos.evidence import Evidence, NodeFiles, Row

Faults = Iterator[str]
Key = tuple[str, int]
"""A job's id and a generation of it."""


def every_metric_point_once(found: Evidence) -> Faults:
    """What is kept was written, what was acknowledged is kept, and of a drained generation everything is."""
    kept = _kept(found)
    written: dict[Key, set[int]] = {}
    owed: dict[Key, set[int]] = {}
    nodes = {row["journal_id"]: row for row in found.nodes if row["journal_id"]}
    for files in found.files:
        node = nodes.get(files.journal_id)
        if node is not None:
            _add(written, node["job_id"], _written(files))
            _add(owed, node["job_id"], _owed(files, node["acknowledged"]))
    for key in kept.keys() | owed.keys():
        steps = Counter(kept.get(key, ()))
        if strange := steps.keys() - written.get(key, set()):
            yield f"{_named(found, key)}: the steps {sorted(strange)[:5]} are kept, and no rank wrote them"
        if missing := owed.get(key, set()) - steps.keys():
            yield f"{_named(found, key)}: the steps {sorted(missing)[:5]} were acknowledged and are not there"
        if twice := [step for step, times in steps.items() if times > 1]:
            yield f"{_named(found, key)}: the steps {sorted(twice)[:5]} are there twice"
    yield from _numbers(found)


def _numbers(found: Evidence) -> Faults:
    """Readers go on behind a number: no two points of a job have the same."""
    arrived: dict[str, list[int]] = {}
    for row in found.metric_chunks:
        arrived.setdefault(row["job_id"], []).extend(row["points"]["arrived"])
        counts = row["points"]["values"].get("count", [])
        if counts != row["points"]["steps"]:
            yield f"{_named(found, (row['job_id'], row['generation']))} counts {counts[:5]} at {row['points']['steps']}"
    for job_id, numbers in arrived.items():
        last = found.jobs[job_id]["metric_seq"] if job_id in found.jobs else 0
        if len(set(numbers)) != len(numbers) or max(numbers) > last:
            yield f"{_named(found, (job_id, 0))} has points with the numbers {sorted(numbers)[:50]} of {last}"


def _kept(found: Evidence) -> dict[Key, list[int]]:
    kept: dict[Key, list[int]] = {}
    for row in found.metric_chunks:
        kept.setdefault((row["job_id"], row["generation"]), []).extend(row["points"]["steps"])
    return kept


def _written(files: NodeFiles) -> dict[int, set[int]]:
    """The steps in the file of rank 0, whose points are the job's, by generation."""
    return {
        int(path.parent.name): {step for line in path.read_bytes().splitlines() if (step := _step(line)) is not None}
        for path in files.path.glob("metrics/*/rank-0.jsonl")
    }


def _owed(files: NodeFiles, acknowledged: int) -> dict[int, set[int]]:
    """The steps that the service has to have, by generation: what the journal says, and once it is drained all."""
    told = [record for record in files.records if record["seq"] <= acknowledged]
    drained = {record["generation"] for record in told if record["type"] == "drained"}
    owed = {generation: steps for generation, steps in _written(files).items() if generation in drained}
    for record in told:
        if record["type"] == "metrics":
            points = record["data"]["points"]
            owed.setdefault(record["generation"], set()).update(int(point["step"]) for point in points)
    return owed


def _add(all_of_them: dict[Key, set[int]], job_id: str, more: Mapping[int, set[int]]) -> None:
    for generation, steps in more.items():
        all_of_them.setdefault((job_id, generation), set()).update(steps)


def _step(line: bytes) -> int | None:
    with suppress(ValueError, KeyError, TypeError):
        return int(json.loads(line)["step"])
    return None


def _named(found: Evidence, key: Key) -> str:
    job: Row | None = found.jobs.get(key[0])
    return f"{key[0] if job is None else job['name']}, generation {key[1]}"
