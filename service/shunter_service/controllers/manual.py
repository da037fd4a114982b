"""What a problem's `type` and a job's `reason` lead to: a page for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from litestar import Controller, Response, get
from litestar.params import FromPath
from pydantic import BaseModel
from shunter_schemas.api import ProblemKind, ReasonKind
from shunter_schemas.reasons import MEANINGS
from shunter_schemas.states import Reason
from shunter_store.job.lifecycle import OUTCOME

from shunter_service import manual
from shunter_service.access import AnyRequest
from shunter_service.web.answers import shaped
from shunter_service.web.problem_pages import PAGES
from shunter_service.web.problems import PROBLEMS, TYPE_PREFIX, not_found

M = TypeVar("M", bound=BaseModel)


class ManualController(Controller):
    """Open to everybody: it says nothing about anybody's jobs."""

    path = "/v1"
    tags = ["service"]
    opt = {"public": True}

    @get("/problems/{slug:str}", operation_id="GetProblemKind")
    async def problem(self, slug: FromPath[str], request: AnyRequest) -> Response[ProblemKind]:
        """What a problem's `type` means: JSON, or a page for browsers."""
        kind = PROBLEMS.get(slug)
        if kind is None:
            raise not_found("kind of problem", slug[:60])
        page = PAGES[slug]
        answer = ProblemKind(
            type=TYPE_PREFIX + slug,
            status=kind.status,
            title=kind.title,
            meaning=page.meaning,
            way_out=page.way_out,
        )
        return _either(request, answer, lambda: manual.problem_page(slug))

    @get("/reasons/{slug:str}", operation_id="GetReasonKind")
    async def reason(self, slug: FromPath[str], request: AnyRequest) -> Response[ReasonKind]:
        """What a job's `reason` means: JSON, or a page for browsers."""
        try:
            reason = Reason(slug)
        except ValueError:
            raise not_found("reason", slug[:60]) from None
        meaning = MEANINGS[reason]
        answer = ReasonKind(reason=reason, ends=OUTCOME[reason], meaning=meaning.meaning, way_out=meaning.way_out)
        return _either(request, answer, lambda: manual.reason_page(reason))


def _either(request: AnyRequest, answer: M, page: Callable[[], str]) -> Response[M]:
    if not manual.wants_page(request.headers.get("accept", "")):
        return shaped(answer, headers={"Vary": "Accept"})
    response = Response(content=page().encode(), media_type="text/html", headers=manual.HEADERS)
    return cast("Response[M]", response)
