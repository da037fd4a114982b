"""The bundle of `shunter debug`: one archive with everything that helps to find a fault, and no secret."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shunter_schemas.api import DebugReport, Job, LogLine, NodeCall
from shunter_schemas.scrubbing import SHORTEST, scrub, scrub_text, secret_values

LAST_LINES: Final = 2000
_STACK_BEGINS: Final = (
    "Traceback (most recent call last)",
    "Current thread 0x",
    "Thread 0x",
    "Stack of rank",
    "stacks of",
)
_STACK_LINES: Final = 60


@dataclass(frozen=True, slots=True)
class Collected:
    """What was found out about a job."""

    job: Job
    """As its owner sees it: what stands under a secret's name in its document is looked for everywhere else."""
    report: DebugReport
    lines: Sequence[LogLine]
    peeks: Sequence[NodeCall]


def write_bundle(path: Path, found: Collected) -> list[str]:
    """Write the archive; returns what lies in it."""
    report, lines = found.report, found.lines
    parts: Mapping[str, Any] = report.parts
    known = sorted((text for text in secret_values(found.job.spec) if len(text) >= SHORTEST), key=len, reverse=True)
    files = {
        "README.txt": _readme(report),
        "versions.json": _json(report.versions),
        **{f"{name}.json": _json(scrub(value, known)) for name, value in parts.items() if name != "node_files"},
        **{
            f"nodes/{node}/{name.replace('/', '-')}": scrub_text(text, known)
            for node, found in (parts.get("node_files") or {}).items()
            for name, text in found.items()
        },
        **_of_peeks(found.peeks, known),
        "logs.txt": "".join(f"{_log_line(line, known)}\n" for line in lines),
        "stacks.txt": "".join(f"{line}\n" for line in _stacks(lines, known)),
    }
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            content = text.encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return sorted(files)


def _of_peeks(peeks: Sequence[NodeCall], known: Sequence[str]) -> dict[str, str]:
    found = {}
    for call in peeks:
        folder = f"nodes/{call.node}"
        if call.answer is None:
            found[f"{folder}/no-answer.txt"] = call.error or "it did not answer in time"
            continue
        for name, text in (call.answer.get("files") or {}).items():
            found[f"{folder}/{str(name).replace('/', '-')}"] = scrub_text(str(text), known)
        found[f"{folder}/processes.json"] = _json(scrub(call.answer.get("processes") or [], known))
    return found


def _stacks(lines: Sequence[LogLine], known: Sequence[str]) -> Iterable[str]:
    """What follows the beginning of a stack on the same stream, each once."""
    open_for: dict[tuple[int, int, str], int] = {}
    for line in lines:
        stream = (line.generation, line.rank, line.stream)
        if any(begin in line.text for begin in _STACK_BEGINS):
            open_for[stream] = _STACK_LINES
        if open_for.get(stream, 0) > 0:
            open_for[stream] -= 1
            yield _log_line(line, known)


def _log_line(line: LogLine, known: Sequence[str]) -> str:
    return f"{line.at:%H:%M:%S} {line.generation}.{line.rank} {line.stream} {scrub_text(line.text, known)}"


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"


def _readme(report: DebugReport) -> str:
    return (
        f"What is known of {report.job_id}, collected {report.collected_at.isoformat()}.\n"
        "Secrets were taken out by name, by form and by value; look through it before you hand it on all the same.\n"
    )
