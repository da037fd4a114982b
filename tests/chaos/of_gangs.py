"""What has to be true of the ranks: never two gangs at once, every byte of theirs once, every journal whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from shunter_store.errors import NotFound

from chaos.evidence import Evidence, NodeFiles, Row
from chaos.programs import SHOUT

Faults = Iterator[str]


def one_gang_is_ordered(found: Evidence) -> Faults:
    """Whenever a node was told to run, no other one was told to run another generation; and generations only grow."""
    newest: dict[str, int] = {}
    for entry in found.record:
        if entry.what != "order":
            continue
        generation = int(entry.after)
        if int(entry.before):
            yield f"{entry.subject}: generation {generation} was ordered while another one was told to run"
        if generation < newest.get(entry.subject, 0):
            yield f"{entry.subject}: generation {generation} was ordered after {newest[entry.subject]}"
        newest[entry.subject] = max(generation, newest.get(entry.subject, 0))


def one_gang_at_a_time(found: Evidence) -> Faults:
    """No rank found another one of its own job and rank alive, and none began a generation twice or an older one."""
    for path in sorted(found.marks.glob("*.generations")):
        started = [int(line) for line in path.read_text().split()]
        if any(after <= before for before, after in pairwise(started)):
            yield f"{path.stem} began the generations {started}"
    for files in found.files:
        for log in sorted(files.path.glob("logs/*/rank-*.stdout")):
            if SHOUT.encode() in log.read_bytes():
                yield f"{log.relative_to(files.path.parent)} found another rank alive"


def every_log_byte_once(found: Evidence) -> Faults:
    """What is kept of a stream is a beginning of what the rank wrote, whole where the generation was drained."""
    journals = {files.journal_id: files for files in found.files}
    kept = _streams(found)
    for key, chunks in kept.items():
        yield from (f"{_named(found, key)}: {fault}" for fault in _stream(found, chunks, journals))
    for row in found.log_streams:
        key = (row["job_id"], row["generation"], row["rank"], row["stream"])
        total = sum(chunk["length"] for chunk in kept.get(key, ()))
        if total != row["bytes"]:
            yield f"{_named(found, key)}: {row['bytes']} bytes are counted, {total} are there"
    for job_id, job in found.jobs.items():
        lines = sum(chunk["lines"] for chunk in found.log_chunks if chunk["job_id"] == job_id)
        if lines != job["log_lines"]:
            yield f"{job['name']}: {job['log_lines']} lines are counted, {lines} are there"
    yield from _missing(found, kept)


def every_journal_is_whole(found: Evidence) -> Faults:
    """Numbered without a gap, and the service has nothing that the journal did not write."""
    acknowledged = {row["journal_id"]: row["acknowledged"] for row in found.nodes if row["journal_id"]}
    for files in found.files:
        numbers = [record.get("seq") for record in files.records]
        if files.torn or numbers != list(range(files.first_seq, files.first_seq + len(numbers))):
            yield f"{files.path.name} has the records {numbers[:50]} from {files.first_seq} on"
        last = files.first_seq + len(numbers) - 1
        if acknowledged.get(files.journal_id, 0) > last:
            yield f"{files.path.name} wrote {last} records, and {acknowledged[files.journal_id]} are acknowledged"


Key = tuple[str, int, int, str]


def _streams(found: Evidence) -> dict[Key, list[Row]]:
    kept: dict[Key, list[Row]] = {}
    for chunk in sorted(found.log_chunks, key=lambda chunk: (chunk["job_line"], chunk["offset"])):
        key = (chunk["job_id"], chunk["generation"], chunk["rank"], chunk["stream"])
        kept.setdefault(key, []).append(chunk)
    return kept


def _stream(found: Evidence, chunks: Sequence[Row], journals: dict[str, NodeFiles]) -> Faults:
    by_journal: dict[str, list[Row]] = {}
    for chunk in chunks:
        by_journal.setdefault(chunk["journal_id"], []).append(chunk)
    if len(by_journal) > 1:
        yield f"comes from {len(by_journal)} journals"
    for journal_id, parts in by_journal.items():
        end, data = 0, b""
        for part in sorted(parts, key=lambda part: part["offset"]):
            if part["offset"] != end:
                yield f"goes on at byte {part['offset']} after byte {end}"
            end = part["offset"] + part["length"]
            try:
                data += b"".join(found.objects.open_range(part["object"]))
            except NotFound as error:
                yield str(error)
        files = journals.get(journal_id)
        written = None if files is None else _file(files, chunks[0])
        if written is not None and written[: len(data)] != data:
            yield f"the {len(data)} bytes that are kept are not the first of the {len(written)} that were written"


def _file(files: NodeFiles, chunk: Row) -> bytes | None:
    name = f"rank-{chunk['rank']}.{chunk['stream']}" if chunk["rank"] >= 0 else chunk["stream"]
    path: Path = files.path / "logs" / str(chunk["generation"]) / name
    return path.read_bytes() if path.exists() else None


def _missing(found: Evidence, kept: dict[Key, list[Row]]) -> Faults:
    """A node that was drained told everything."""
    tokens = {row["journal_id"]: row for row in found.nodes if row["journal_id"]}
    for files in found.files:
        node = tokens.get(files.journal_id)
        if node is None:
            continue
        drained = {record["generation"]: record["seq"] for record in files.records if record["type"] == "drained"}
        for generation, number in drained.items():
            if number > node["acknowledged"]:
                continue  # it was told to nobody: its node died first
            for path in sorted(files.path.glob(f"logs/{generation}/rank-*.*")):
                rank, stream = path.name.removeprefix("rank-").split(".")
                parts = kept.get((node["job_id"], generation, int(rank), stream), ())
                length = sum(part["length"] for part in parts)
                if length != path.stat().st_size:
                    yield f"{files.path.name} wrote {path.stat().st_size} bytes to {path.name}, {length} are kept"


def _named(found: Evidence, key: Key) -> str:
    job_id, generation, rank, stream = key
    name = found.jobs[job_id]["name"] if job_id in found.jobs else job_id
    return f"{name}, generation {generation}, rank {rank}, {stream}"
