"""The DeepSpeed file of a script, checked when the job is submitted, where the file lies in an uploaded bundle.

The archive is read up to the file, never unpacked. What cannot be read here, a git source or a file far inside a large
archive, is checked on the node before the program starts.
"""

from __future__ import annotations

import asyncio

from shunter_schemas.checks.deepspeed import program_of
from shunter_schemas.deepspeed.file import MOST_BYTES, file_faults
from shunter_schemas.faults import Fault
from shunter_schemas.job import JobSpec
from shunter_schemas.strategies import OwnStrategy
from shunter_store.storage import bundle_members, bundles
from shunter_store.storage.objects import ObjectStore


async def deepspeed_file_faults(objects: ObjectStore, job: JobSpec) -> list[Fault]:
    """What is wrong with `strategy.deepspeed_file`; nothing where it cannot be read here."""
    strategy = job.strategy
    if not isinstance(strategy, OwnStrategy) or strategy.deepspeed_file is None:
        return []
    found = bundle_members.place_of(job, strategy.deepspeed_file)
    return [] if found is None else await asyncio.to_thread(_faults, objects, job, strategy.deepspeed_file, *found)


def _faults(objects: ObjectStore, job: JobSpec, name: str, digest: str, path: str) -> list[Fault]:
    if not objects.exists(bundles.object_key(digest)):
        return []  # told by the check of bundles
    try:
        content = bundle_members.read_member(objects, digest, path, MOST_BYTES + 1)
    except FileNotFoundError:
        return [Fault("/strategy/deepspeed_file", f"there is no file {path} in this bundle")]
    return [] if content is None else list(file_faults(content, program_of(job, name)))
