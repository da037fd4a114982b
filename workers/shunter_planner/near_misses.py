"""What a document asks for by name that nobody offers: most likely a typing error, so it is told before all else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from shunter_schemas.job import JobSpec
from shunter_schemas.nearest import nearest

from shunter_planner.matching import is_gpu_model
from shunter_planner.values import Candidate

_NAMED: Final = 12


def near_misses(document: JobSpec, offers: Sequence[Candidate]) -> Iterator[str]:
    """Each name that no offer has, with its field and the nearest that some offer has, else those that there are."""
    models = {one.offer.gpu_model for one in offers if one.offer.gpu_model}
    for wanted in document.resources.gpu_models if models else ():
        if not any(is_gpu_model(wanted, one.offer) for one in offers):
            yield f"resources.gpu_models: nobody offers {wanted}{_instead(wanted, models)}"
    regions = {one.offer.region for one in offers if one.offer.region}
    for wanted in document.placement.regions if regions else ():
        if wanted not in regions:
            yield f"placement.regions: nobody offers {wanted}{_instead(wanted, regions)}"


def _instead(wanted: str, known: set[str]) -> str:
    if guess := nearest(wanted, known):
        return f" (did you mean {guess}?)"
    named = sorted(known)
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return f" (there are: {', '.join(named[:_NAMED])}{more})"
