"""Every problem that the API answers with: one page for all, and one for each, from the service's own tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from shunter_service.web.problem_pages import PAGES, example
from shunter_service.web.problems import PROBLEMS, TYPE_PREFIX
from tables import table

_HEAD = """# Problems

Every error of the API is an `application/problem+json` document (RFC 9457):

```json
{
  "type": "/v1/problems/invalid_document",
  "title": "The job document is not valid",
  "status": 422,
  "detail": "…",
  "errors": [{"pointer": "/workload/batch/global_size", "detail": "15 samples do not divide over 2 ranks …"}],
  "request_id": "req_01kb9m4t8zq3v5x7y9a1c3e5g7"
}
```

`type` and `title` are the same for every problem of one kind; `detail` tells this case. `errors` points into the
document that was sent (RFC 6901), or to a query parameter. Quote `request_id` to the operator: it
stands in the service's log.

`type` is an address of the service: open it in a browser and read the page of that kind; a program gets it as JSON.
"""


def text() -> str:
    """The page; fails when a kind of problem has no page, or a page no kind."""
    if PAGES.keys() != PROBLEMS.keys():
        raise SystemExit(f"shunter_service/web/problem_pages.py differs in: {sorted(PAGES.keys() ^ PROBLEMS.keys())}")
    rows = ((str(kind.status), f"[`{slug}`](problems/{slug}.md)", kind.title) for slug, kind in PROBLEMS.items())
    return "\n".join([_HEAD, *table(("status", "slug", "title"), rows)]) + "\n"


def pages() -> Mapping[str, str]:
    """A page for each slug."""
    return {f"{slug}.md": "\n".join(_page(slug)) for slug in PROBLEMS}


def _page(slug: str) -> Iterator[str]:
    kind, page = PROBLEMS[slug], PAGES[slug]
    yield f"# {kind.title}\n"
    yield f"`{slug}`, HTTP {kind.status}. `type` is `{TYPE_PREFIX}{slug}`.\n"
    yield f"## When\n\n{page.meaning}\n"
    yield f"## The way out\n\n{page.way_out}\n"
    yield f"## An answer of this kind\n\n```json\n{json.dumps(example(slug), indent=2, ensure_ascii=False)}\n```\n"
    yield "[All problems](../errors.md)\n"
