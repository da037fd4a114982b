"""Small steps through a DeepSpeed document, whose values may be anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

Path = tuple[str | int, ...]

AUTO: Final = "auto"
"""Hugging Face's libraries put the value of an argument in its place; DeepSpeed itself does not know it."""


class Finding(NamedTuple):
    """One thing that is wrong in a DeepSpeed document: where in it, and why."""

    path: Path
    detail: str


class Setting(NamedTuple):
    """What a DeepSpeed document has to fit to."""

    world_size: int | None = None
    """None: not known."""
    ranks: str = "the number of ranks"
    """What says how many ranks there are."""
    takes_auto: bool = True
    """Whether somebody resolves `auto` before DeepSpeed reads it."""
    is_whole: bool = True
    """Whether unknown keys of the document itself are refused even if nothing is like them."""


def section(document: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """A part of the document; empty where it is missing or no object."""
    found: Any = document
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def is_on(document: Mapping[str, Any], name: str) -> bool:
    """Whether a part such as `fp16` is there and enabled."""
    return section(document, name).get("enabled") is True


def stage_of(document: Mapping[str, Any]) -> int | None:
    """The stage of ZeRO; None where the document does not say it as a number from 0 to 3."""
    stage = section(document, "zero_optimization").get("stage", 0)
    return stage if type(stage) is int and 0 <= stage <= 3 else None


def offload_device(document: Mapping[str, Any], part: str) -> str:
    """Where `offload_optimizer` or `offload_param` puts its part: `none`, `cpu` or `nvme`."""
    device = section(document, "zero_optimization", part).get("device", "none")
    return device if isinstance(device, str) else "none"


def is_count(value: Any) -> bool:
    """A whole number above 0, and no boolean."""
    return type(value) is int and value > 0


def is_number(value: Any) -> bool:
    """A number, and no boolean."""
    return type(value) in (int, float)


def autos(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where `auto` stands in a document."""
    if isinstance(value, Mapping):
        for name, member in value.items():
            yield from autos(member, (*path, name))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from autos(member, (*path, index))
    elif value == AUTO:
        yield path
