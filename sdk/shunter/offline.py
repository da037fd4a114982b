"""A plan without a service: the planner over the bundled prices, on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shunter_planner import Facts, History, plan
from shunter_planner.answers import answer_of
from shunter_planner.catalogue import bundled_candidates
from shunter_schemas.api import PlanAnswer
from shunter_schemas.parse import parse_job

from shunter.checking import check
from shunter.document import Document, encode

DATED = "prices are those of the bundled catalogue, each of its own day; what is free now is not known"


def plan_offline(document: Document, base: Path) -> PlanAnswer:
    """The plan for a checked document; relative folders lie in `base`.

    Raises:
        InvalidDocument: with every fault that was found.
    """
    check(document, base)
    candidates = bundled_candidates()
    facts = Facts(instances=sorted({candidate.instance for candidate in candidates}))
    answer = answer_of(plan(parse_job(encode(document)), candidates, facts, History()), offers=len(candidates))
    changes: dict[str, Any] = {"notes": (DATED, *answer.notes)}
    return answer.model_copy(update=changes)
