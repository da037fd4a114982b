"""What concerns several fields of a job document at once.

Every check is a function from the whole document to faults; each fault names both places, the numbers, and the way out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shunter_schemas.checks import data, deepspeed, gang, huggingface, references, script, training
from shunter_schemas.faults import Fault
from shunter_schemas.job import JobSpec

CHECKS: tuple[Callable[[JobSpec], Iterator[Fault]], ...] = (
    *gang.CHECKS,
    *training.CHECKS,
    *huggingface.CHECKS,
    *data.CHECKS,
    *script.CHECKS,
    *deepspeed.CHECKS,
    *references.CHECKS,
)


def cross_field_faults(job: JobSpec) -> Iterator[Fault]:
    """The faults that no single field shows."""
    for check in CHECKS:
        yield from check(job)
