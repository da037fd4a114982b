"""Reads what an agent sent. One record that cannot be used never spoils the rest: it is quarantined, and the cursor
moves on; otherwise a node would send it again for ever and nothing after it would arrive."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from shunter_schemas.node_sync import (
    ArtifactUploaded,
    Boot,
    CheckpointUploaded,
    FileEntry,
    GangEnd,
    LogChunk,
    MetricPoint,
    Prepared,
    Progress,
    RankUp,
    Record,
    SyncRequest,
)

from shunter_store.node.gang import End
from shunter_store.report.texts import clean, clean_text
from shunter_store.sql.sqltypes import time_of

M = TypeVar("M", bound=BaseModel)

MOST_RECORDS: Final = 2000
UNREADABLE: Final = "unreadable"

_LONGEST_PATH_BYTES: Final = 1000
_LARGEST_EVENT_BYTES: Final = 65_536


class Unusable(Exception):
    """A record whose data cannot be kept; the text says why."""


@dataclass(slots=True)
class Told:
    """What the records of one exchange say, sorted by the table it goes to. Each entry carries its generation."""

    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    boots: list[Boot] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    ranks_up: list[tuple[int, int, datetime]] = field(default_factory=list)
    ends: list[tuple[int, End, GangEnd, datetime]] = field(default_factory=list)
    drained: list[tuple[int, datetime]] = field(default_factory=list)
    points: dict[int, list[MetricPoint]] = field(default_factory=lambda: defaultdict(list))
    progress: tuple[int, datetime, Progress] | None = None
    logs: list[tuple[int, LogChunk]] = field(default_factory=list)
    artifacts: list[tuple[int, FileEntry]] = field(default_factory=list)
    checkpoints: list[tuple[int, CheckpointUploaded]] = field(default_factory=list)


def read_request(body: bytes) -> SyncRequest:
    """The request in `body`; records that cannot be read become `unreadable` ones with the same number.

    Raises:
        ValidationError: it is no request at all.
    """
    try:
        return SyncRequest.model_validate_json(body)
    except ValidationError:
        raw = _loose(body)
        if not isinstance(raw, dict) or not isinstance(raw.get("records", []), list):
            raise
    records = [record for item in raw.get("records", [])[:MOST_RECORDS] if (record := _salvaged(item)) is not None]
    return SyncRequest.model_validate({**raw, "records": records})


def sort_records(records: Iterable[Record], *, job_id: str, origin: Mapping[str, Any]) -> Told:
    """Sort records by where they go. Pure; unusable ones become the event `node.bad_record`.

    Args:
        origin: added to every event: which node it is.
    """
    told = Told()
    for record in records:
        data = clean(record.data)
        heading = {**origin, "generation": record.generation, "node_at": record.at}
        try:
            takes = _TAKERS.get(record.type)
            _check_heading(record, data)
            if takes is not None:
                takes(told, record, data, job_id)
            if takes is None or record.type in _ALSO_EVENTS:
                told.events.append((_event_type(record.type), _bounded({**heading, **data})))
        except (Unusable, ValidationError) as error:
            bad = {**heading, "seq": record.seq, "type": clean_text(record.type, 64), "error": _why(error)}
            told.events.append(("node.bad_record", bad))
    return told


def _check_heading(record: Record, data: Any) -> None:
    if record.type == UNREADABLE:
        raise Unusable(data.get("error", UNREADABLE))
    if not 0 <= record.generation < 1 << 31:
        raise Unusable(f"no generation: {record.generation}")


def _loose(body: bytes) -> Any:
    try:
        return clean(json.loads(body.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None


def _salvaged(item: Any) -> Record | None:
    try:
        return Record.model_validate(item)
    except ValidationError as error:
        seq = item.get("seq") if isinstance(item, dict) else None
        if type(seq) is not int or seq < 1:
            return None
        return Record(seq=seq, at=0.0, type=UNREADABLE, data={"error": _why(error)})


def _parsed(model: type[M], data: Any) -> M:
    return model.model_validate(data)


def _take_boot(told: Told, record: Record, data: Any, job_id: str) -> None:
    told.boots.append(_parsed(Boot, data))


def _take_prepared(told: Told, record: Record, data: Any, job_id: str) -> None:
    commit = _parsed(Prepared, data).facts.get("commit")
    if isinstance(commit, str):
        told.commits.append(commit[:64])


def _take_rank_up(told: Told, record: Record, data: Any, job_id: str) -> None:
    told.ranks_up.append((record.generation, _parsed(RankUp, data).rank, time_of(record.at)))


def _take_end(told: Told, record: Record, data: Any, job_id: str) -> None:
    told.ends.append((record.generation, End(record.type), _parsed(GangEnd, data), time_of(record.at)))


def _take_drained(told: Told, record: Record, data: Any, job_id: str) -> None:
    told.drained.append((record.generation, time_of(record.at)))


def _take_metrics(told: Told, record: Record, data: Any, job_id: str) -> None:
    points = data.get("points")
    if not isinstance(points, list):
        raise Unusable("no list of points")
    told.points[record.generation] += [point for item in points if (point := _point(item)) is not None]


def _take_progress(told: Told, record: Record, data: Any, job_id: str) -> None:
    data["values"] = _finite(data.get("values"))
    told.progress = (record.generation, time_of(record.at), _parsed(Progress, data))


def _take_log(told: Told, record: Record, data: Any, job_id: str) -> None:
    chunk = _parsed(LogChunk, data)
    _check_object(chunk.object, job_id, record.generation)
    told.logs.append((record.generation, chunk))


def _take_artifact(told: Told, record: Record, data: Any, job_id: str) -> None:
    file = _parsed(ArtifactUploaded, data).file
    _check_file(file, job_id, record.generation)
    told.artifacts.append((record.generation, file))


def _take_checkpoint(told: Told, record: Record, data: Any, job_id: str) -> None:
    part = _parsed(CheckpointUploaded, {**data, "values": _finite(data.get("values"))})
    for file in part.files:
        _check_file(file, job_id, record.generation)
    told.checkpoints.append((record.generation, part))


_TAKERS: Final[Mapping[str, Callable[[Told, Record, Any, str], None]]] = {
    "boot": _take_boot,
    "prepare": _take_prepared,
    "rank_up": _take_rank_up,
    "done": _take_end,
    "failed": _take_end,
    "stopped": _take_end,
    "drained": _take_drained,
    "metrics": _take_metrics,
    "progress": _take_progress,
    "log": _take_log,
    "artifact": _take_artifact,
    "checkpoint": _take_checkpoint,
}

_ALSO_EVENTS: Final = frozenset({"boot", "prepare", "rank_up", "done", "failed", "stopped", "drained"})
"""The others would drown the history: metrics, progress and log lines have their own; a commit tells of checkpoints."""


def _point(item: Any) -> MetricPoint | None:
    """One point, without the values that are no finite numbers; None: nothing of it can be kept."""
    if not isinstance(item, dict):
        return None
    try:
        return MetricPoint.model_validate({**item, "values": _finite(item.get("values"))})
    except ValidationError:
        return None


def _finite(values: Any) -> dict[str, float]:
    if not isinstance(values, dict):
        return {}
    return {k: v for k, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def _check_file(file: FileEntry, job_id: str, generation: int) -> None:
    parts = file.path.split("/")
    if len(file.path.encode()) > _LONGEST_PATH_BYTES or any(part in ("", ".", "..") for part in parts):
        raise Unusable(f"not a relative path: {file.path[:100]!r}")
    if len(file.sha256) != 64:
        raise Unusable(f"no sha256 of {file.path!r}")
    _check_object(file.object, job_id, generation)


def _check_object(key: str, job_id: str, generation: int) -> None:
    """A node may only speak of objects that it may write: those of its own job and generation."""
    if not key.startswith(f"{job_id}/{generation}/") or ".." in key.split("/") or len(key.encode()) > 900:
        raise Unusable(f"the object {key[:100]!r} is not this generation's")


def _event_type(record_type: str) -> str:
    fine = record_type.isascii() and record_type.replace("_", "").isalnum() and len(record_type) <= 40
    return f"node.{record_type}" if fine else "node.unknown"


def _bounded(data: dict[str, Any]) -> dict[str, Any]:
    size = len(json.dumps(data))
    if size <= _LARGEST_EVENT_BYTES:
        return data
    return {key: value for key, value in data.items() if isinstance(value, int | float)} | {"left_out_bytes": size}


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        return clean_text(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", 500)
    return clean_text(str(error), 500)
