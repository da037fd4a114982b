"""Files that are no job documents: what they are, and the way from them to one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shunter.errors import InvalidDocument

_OURS = ("version", "workload")
"""A document that has one of these is meant as a job document."""


def check_whose(file: Path, document: Mapping[str, Any]) -> None:
    """Refuse what another tool's file says, by the name of the tool: its fields one by one would not help anybody.

    Raises:
        InvalidDocument: it is such a file; the hint is the way from it to a job document.
    """
    if any(field in document for field in _OURS):
        return
    from shunter.importing.sources import kind_of

    kind = kind_of(document)
    if kind is not None:
        hint = f"shunter init job.yaml --from {file} makes one of it"
        raise InvalidDocument(f"{file} is {kind}, and no job document", hint=hint)
    if "type" in document and ("commands" in document or "nodes" in document):
        raise InvalidDocument(f"{file} is a dstack configuration, and no job document", hint="shunter init begins one")


def way_from(file: Path, body: bytes) -> str:
    """What to do with a program or a script that was given as a document; empty where it is neither."""
    if body.startswith(b"#!") and b"\n#SBATCH" in body:
        return f"a job document is made of a batch script by: shunter init job.yaml --from {file}"
    if file.suffix == ".py" or body.startswith(b"#!"):
        return f"a program is started with: shunter run {file}"
    return ""
