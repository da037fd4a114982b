"""What the document can say and this release cannot do yet. Whoever makes one of these work deletes its row.

The document is version 1 as a whole from the first release on, so that clients' documents stay as they are; what cannot
run yet is refused at once instead of being ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from shunter_schemas.faults import Fault, pointer
from shunter_schemas.job import JobSpec

Test = Callable[[Any], bool]


def _given(value: Any) -> bool:
    return bool(value)


def _one_of(*refused: str) -> Test:
    return lambda value: value in refused


def _begins_with(*prefixes: str) -> Test:
    return lambda value: isinstance(value, str) and value.startswith(prefixes)


class Row(NamedTuple):
    """`path` (`*`: every member) is refused where `test` holds, with this way out."""

    path: str
    test: Test
    instead: str
    workload: str | None = None
    """Only for workloads of this kind."""


_FP8: Final = "fp8, which needs its own kernels and scales for every layer; use bf16"
_SECRETS: Final = "stored secrets; leave it out"

# fmt: off
ROWS: Final[tuple[Row, ...]] = (
    Row("limits.max_gpu_idle_s", _given, "watching for idle GPUs; leave it out"),
    Row("keep_alive_s", _given, "keeping nodes for a next job; leave it out"),
    Row("source.secret", _given, _SECRETS),
    Row("inputs.*.from", _begins_with("s3://", "gs://", "az://", "https://", "hf://"),
        "inputs from this place; give a folder and submit with the CLI, or upload a bundle"),
    Row("inputs.*.mode", _one_of("stream"), "reading inputs while training; use copy"),
    Row("inputs.*.secret", _given, _SECRETS),
    Row("workload.precision", _one_of("fp8"), _FP8),
    Row("workload.precision.compute", _one_of("fp8"), _FP8),
    Row("environment.registry", _given, "registries that want credentials; use a public image, or one that the "
        "provider's own settings give access to"),
    Row("environment.python", _given, "choosing the Python version; leave it out to take the node's own"),
    Row("environment.torch", _given, "choosing the torch version; leave it out to take the node's own"),
    Row("environment.secrets", _given, _SECRETS),
    Row("outputs.uri", _given, "a store of one's own; leave it out, the service keeps the files"),
    Row("outputs.secret", _given, _SECRETS),
    Row("tracking", _given, "experiment trackers; leave them out"),
)
# fmt: on


def availability_faults(job: JobSpec) -> Iterator[Fault]:
    """Everything in the document that this release cannot do yet."""
    for row in ROWS:
        if row.workload not in (None, job.workload.kind):
            continue
        for path, value in _find(job, row.path.split("."), ()):
            if row.test(value):
                yield Fault(pointer(path), f"not available yet: {row.instead}")


def _find(value: Any, steps: list[str], path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if not steps:
        yield path, value
    elif steps[0] != "*":
        member = getattr(value, "from_" if steps[0] == "from" else steps[0], None)
        if member is not None:
            yield from _find(member, steps[1:], (*path, steps[0]))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _find(item, steps[1:], (*path, key))
    else:
        for index, item in enumerate(value):
            yield from _find(item, steps[1:], (*path, index))
