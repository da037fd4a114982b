"""What only the user's own machine can resolve: the CLI replaces it, so in a POSTed document it is a fault."""

from __future__ import annotations

from collections.abc import Iterator

from shunter_schemas.faults import Fault, pointer
from shunter_schemas.job import JobSpec
from shunter_schemas.source import FolderSource


def is_local_path(place: str) -> bool:
    """Whether `inputs.NAME.from` is a path on the user's machine: neither a bundle nor a URL."""
    return not place.startswith("bundle:") and "://" not in place


def posted_faults(job: JobSpec) -> Iterator[Fault]:
    """Folders in the document, which the service cannot see; the CLI uploads them and submits bundles instead."""
    if isinstance(job.source, FolderSource):
        yield Fault(
            "/source/kind", "the service cannot see a folder on your machine; submit with the CLI, or upload a bundle"
        )
    for name, item in job.inputs.items():
        if is_local_path(item.from_):
            yield Fault(
                pointer(("inputs", name, "from")),
                "the service cannot see a path on your machine; submit with the CLI, or upload a bundle",
            )
