"""A DeepSpeed file of a script: read and checked by the service where it has the file, by the node before the start."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from shunter_schemas.deepspeed.arguments import differences, given_arguments
from shunter_schemas.deepspeed.document import document_findings
from shunter_schemas.deepspeed.reading import Setting
from shunter_schemas.faults import Fault, pointer

MOST_BYTES: Final = 1 << 20
"""A longer file is no configuration."""
SUBSTITUTION: Final = "${deepspeed_config}"


class Program(NamedTuple):
    """What is known of the program that reads the file."""

    name: str
    """The file, as the job document names it."""
    arguments: Sequence[str]
    launcher: str
    world_size: int | None
    ranks: str
    """What says how many ranks there are."""

    @property
    def is_hugging_face(self) -> bool:
        """Whether the program takes the file as Hugging Face's trainer does: by `--deepspeed FILE`."""
        given = given_arguments(self.arguments).get("deepspeed")
        return given is not None and given.value in (self.name, f"./{self.name}", SUBSTITUTION)


def file_faults(content: bytes, program: Program) -> Iterator[Fault]:
    """What is wrong with the file, placed in the job document; each detail says where in the file."""
    place = "/strategy/deepspeed_file"
    if len(content) > MOST_BYTES:
        yield Fault(place, f"{program.name} has {len(content)} bytes, which is no DeepSpeed configuration")
        return
    try:
        document = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_once)
    except _Twice as twice:
        yield Fault(place, f"{program.name}: `{twice}` stands there twice")
        return
    except (ValueError, RecursionError) as error:
        # DeepSpeed itself also reads Hjson, which allows comments; the libraries that pass a file on to it do not.
        if program.is_hugging_face or program.launcher == "accelerate":
            yield Fault(place, f"{program.name} is not JSON: {error}")
        return
    yield from document_faults(document, program, place, f"{program.name}#")


def document_faults(document: Any, program: Program, place: str, file: str = "") -> Iterator[Fault]:
    """What is wrong with the document of a script. Without `file`, it is a part of the job document, at `place`."""
    setting = Setting(program.world_size, program.ranks, takes_auto=True, is_whole=not file)
    for finding in document_findings(document, setting):
        where = pointer(finding.path)
        if file:
            yield Fault(place, f"{file}{where}: {finding.detail}")
        else:
            yield Fault(place + where, finding.detail)
    if program.is_hugging_face and isinstance(document, dict):
        for found in differences(document, program.arguments, program.world_size):
            of = f" of {program.name}" if file else f" ({place}{pointer(found.path)})"
            detail = found.detail.replace("; ", f"{of}; ", 1)
            yield Fault(f"/workload/arguments/{found.position}", detail)


class _Twice(Exception):
    """A key that stands twice in one object, which DeepSpeed refuses."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Twice(name)
        found[name] = value
    return found
