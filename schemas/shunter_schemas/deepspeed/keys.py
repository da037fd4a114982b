"""Names in a DeepSpeed document: unknown, old, or taken out."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from shunter_schemas.deepspeed.reading import Finding, Path, Setting, section
from shunter_schemas.deepspeed.tables import ALSO_BY_FIELD_NAME, DEPRECATED, REMOVED, SECTIONS, TOP_LEVEL
from shunter_schemas.nearest import did_you_mean

_SLIP = 0.85
_PARAMETERS = {
    **dict.fromkeys(("lr", "betas", "eps", "weight_decay", "momentum"), "optimizer.params"),
    **dict.fromkeys(("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "total_num_steps"), "scheduler.params"),
    "zero_stage": "zero_optimization` as `stage",
}
"""Members of parts whose members depend on a `type`, and a name that is not DeepSpeed's at all."""
_EXAMPLES = {
    "zero_optimization": '{"stage": 2}',
    **dict.fromkeys(("fp16", "bf16", "torch_autocast"), '{"enabled": true}'),
    **dict.fromkeys(("offload_optimizer", "offload_param"), '{"device": "cpu"}'),
    **dict.fromkeys(("optimizer", "scheduler"), '{"type": "…", "params": {…}}'),
}
"""What is most often given as a word or a switch in place of an object."""


def key_findings(document: Mapping[str, Any], setting: Setting) -> Iterator[Finding]:
    """Keys that DeepSpeed refuses, ignores, or only knows from earlier."""
    for name in document:
        finding = _old((name,))
        if finding is None and name not in TOP_LEVEL and (setting.is_whole or _is_slip(name)):
            elsewhere = did_you_mean(name, TOP_LEVEL) or _in_a_section(name)
            finding = Finding((name,), f"DeepSpeed knows no such key{elsewhere}")
        if finding is not None:
            yield finding
    for place, known in SECTIONS.items():
        path = tuple(place.split("."))
        yield from _members(document, path, known)


def _members(document: Mapping[str, Any], path: tuple[str, ...], known: frozenset[str]) -> Iterator[Finding]:
    parent, name = section(document, *path[:-1]), path[-1]
    if name in parent and not isinstance(parent[name], Mapping) and parent[name] is not None:
        example = _EXAMPLES.get(str(name), "")
        yield Finding(path, f"must be an object{example and ' such as '}{example}")
    for member in section(document, *path):
        finding = _old((*path, member))
        if finding is None and member not in known and ALSO_BY_FIELD_NAME + member not in known:
            finding = Finding((*path, member), f"`{'.'.join(path)}` has no such key{did_you_mean(member, known)}")
        if finding is not None:
            yield finding


def _old(path: Path) -> Finding | None:
    place = ".".join(str(step) for step in path)
    if place in REMOVED:
        return Finding(path, f"DeepSpeed no longer has it: {REMOVED[place]}; leave it out")
    if place in DEPRECATED:
        return Finding(path, f"this is the old name; write {DEPRECATED[place]}")
    return None


def _is_slip(name: str) -> bool:
    """Whether a key is so like a known one that nobody else's could be meant."""
    return bool(difflib.get_close_matches(name[:64], TOP_LEVEL, 1, _SLIP))


def _in_a_section(name: str) -> str:
    """`; it belongs into …`, for a member that stands one level too high."""
    found = _PARAMETERS.get(name) or next((place for place, known in SECTIONS.items() if name in known), None)
    return f"; it belongs into `{found}`" if found else ""
