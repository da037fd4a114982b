"""A job document checked on this machine by the same rules, in the same words, as the service checks it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shunter_schemas.faults import DocumentError, Fault
from shunter_schemas.parse import parse_job

from shunter.deepspeed_file import deepspeed_file_faults
from shunter.document import encode, folders
from shunter.errors import InvalidDocument, in_words
from shunter.named_files import missing_files


def check(document: Mapping[str, Any], base: Path) -> None:
    """Refuse a document that the service would refuse; also one whose folders, or files in them, are not there.

    Raises:
        InvalidDocument: with every fault that was found.
    """
    faults: list[Fault] = []
    try:
        job = parse_job(encode(document))
        faults += [*deepspeed_file_faults(job, base), *missing_files(job, base)]
    except DocumentError as error:
        faults += error.faults
    for folder in folders(document, base):
        if not folder.path.is_dir():
            faults.append(Fault(folder.place, f"{folder.path} is not a folder on this machine"))
    if faults:
        raise InvalidDocument(in_words(faults[0]), faults)
